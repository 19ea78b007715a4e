"""What `gradscope check --show-config` prints: each setting, with the place that set it."""

from collections.abc import Iterable, Iterator, Set
from dataclasses import fields

from gradscope.check.cases import TIME_LIMIT, cases_of
from gradscope.config import Config, Input, Thresholds
from gradscope.report.printable import clean


def shown(
    config: Config,
    asked: Iterable[str] = (),
    *,
    inputs: tuple[Input, ...] = (),
    typed: Set[str] = frozenset(),
) -> str:
    """Every setting with where it came from, for the file as a whole and for each target; asked
    for as in `cases_of`. `typed` are the fields that the command line has set."""
    cases = cases_of(config, asked, inputs=inputs)
    lines = [f"# {config.path or 'no configuration file'}", *_settings(config, typed, None)]
    for case in {case.name: case for case in cases}.values():
        lines += ["", f"# target {case.name}", *_settings(case.config, typed, config)]
    width = max((len(line.split("  # ")[0]) for line in lines if "  # " in line), default=0)
    return "".join(f"{clean(_aligned(line, width))}\n" for line in lines)


def _aligned(line: str, width: int) -> str:
    value, mark, origin = line.partition("  # ")
    return f"{value:<{min(width, 60)}}  # {origin}" if mark else line


def _settings(config: Config, typed: Set[str], above: Config | None) -> Iterator[str]:
    """The settings that differ from those above, all where nothing is above."""
    for one in fields(config):
        if one.name in ("path", "targets", "origins", "name"):
            continue
        value = getattr(config, one.name)
        key = one.name.replace("_", "-")
        if above is not None and value == getattr(above, one.name):
            continue
        if one.name in typed:
            origin = "command line"
        elif key == "time-limit" and value == TIME_LIMIT and key not in config.origins:
            origin = "default of check"
        else:
            origin = config.origins.get(key, "default")
        yield f"{key}: {_worded(value)}  # {origin}"


def _worded(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case Input():
            return f"{value.name}={value.expression}"
        case Thresholds():
            set_ = {
                one.name.replace("_", "-"): getattr(value, one.name)
                for one in fields(value)
                if getattr(value, one.name) != one.default
            }
            return ", ".join(f"{name} {limit:g}" for name, limit in set_.items()) or "none"
        case tuple():
            return f"[{', '.join(_worded(item) for item in value)}]"
    return str(value)
