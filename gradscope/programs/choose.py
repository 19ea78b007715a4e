"""Which target is meant: the command line's, else the configuration's, else an example."""

from collections.abc import Iterable

from gradscope.config import Config, Input, errors_at
from gradscope.dataclass import dataclass
from gradscope.programs.parse import FIRST_EXAMPLE, parse_parts, parse_target
from gradscope.programs.targets import Target

PARTS = ("model", "loss", "batch")


@dataclass(frozen=True, slots=True)
class Choice:
    """A target, the configuration that holds for it, and what is to be said of the choice."""

    target: Target
    config: Config
    remarks: tuple[str, ...] = ()


def choose(
    config: Config,
    text: str | None = None,
    arguments: Iterable[str] = (),
    *,
    inputs: tuple[Input, ...] = (),
    parts: tuple[str | None, str | None, str | None] = (None, None, None),
    example: str = FIRST_EXAMPLE,
) -> Choice:
    """The target that `text`, or else `parts` (model, loss and batch), or else `config` names.

    The name of a target in the configuration's list stands for that one; where the command line
    names none, the first of the list is meant.
    """
    listed = {str(one.name): one for one in config.targets}
    if text in listed and not any(parts):
        return _configured(listed[text], arguments, inputs)
    own = (*config.inputs, *inputs)
    if any(parts):
        return Choice(parse_parts(*parts, where=text, inputs=own), config)
    if text is not None:
        return Choice(parse_target(text, arguments, own), config)
    if config.target is not None or config.model is not None or not listed:
        return _configured(config, arguments, inputs, example)
    return _configured(config.targets[0], arguments, inputs)


def _configured(
    config: Config, arguments: Iterable[str], inputs: tuple[Input, ...], example: str = ""
) -> Choice:
    """What a configuration, or one entry of its list, names; the example where it names nothing."""
    inputs = (*config.inputs, *inputs)
    parts = (config.model, config.loss, config.batch)
    if any(parts):
        with errors_at(next((config.origins[key] for key in PARTS if key in config.origins), None)):
            target: Target = parse_parts(
                *parts, where=config.target, inputs=inputs, folder=config.folder
            )
    elif config.target is not None:
        with errors_at(config.origins.get("target")):
            target = parse_target(
                config.target, tuple(arguments) or config.args, inputs, config.folder
            )
    else:
        remark = f"no target given: this is the built-in example {example}"
        listed = "(gradscope examples lists them)"
        return Choice(parse_target(example), config, (f"{remark} {listed}",))
    return Choice(target, config, (f"target from {config.path}: {target.name}",))
