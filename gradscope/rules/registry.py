"""Every rule there is, found by walking the causes: a new rule is a new file there. Packages bring
their own by the entry point group `gradscope.rules`: a class, or a module that has some."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Set
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from gradscope.config import Config, errors_at
from gradscope.errors import GradscopeError
from gradscope.facts import Finding
from gradscope.rules import causes
from gradscope.rules.rule import Rule

GROUP = "gradscope.rules"


def _walk() -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for module_info in pkgutil.iter_modules(causes.__path__):
        module = importlib.import_module(f"{causes.__name__}.{module_info.name}")
        found |= {rule.code: rule() for rule in _rules_in(module)}
    for entry in entry_points(group=GROUP):
        found |= {rule.code: rule() for rule in _brought(entry, {*found})}
    return dict(sorted(found.items()))


def _rules_in(module: ModuleType) -> Iterator[type[Rule]]:
    """Those that are written there, and not only imported."""
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Rule) and "code" in vars(value):
            if value.__module__ == module.__name__:
                yield value


def _brought(entry: EntryPoint, taken: Set[str]) -> Iterator[type[Rule]]:
    """Those of another package. Raises GradscopeError where it is no rule."""
    where = f"the entry point {entry.name} of {GROUP} ({entry.value})"
    try:
        value = entry.load()
    except Exception as fault:
        raise GradscopeError(f"{where} cannot be loaded: {fault}") from fault
    rules = list(_rules_in(value)) if isinstance(value, ModuleType) else [value]
    for rule in rules:
        if not (isinstance(rule, type) and issubclass(rule, Rule) and hasattr(rule, "code")):
            raise GradscopeError(f"{where} is no rule", help="name a subclass of Rule, or a module")
        if rule.code in taken:
            raise GradscopeError(f"{where} has the code {rule.code}, which another rule has")
        yield rule


RULES: dict[str, Rule] = _walk()


def rule_filter(config: Config) -> Callable[[Finding], bool]:
    """Which findings the configuration wants to see. Raises GradscopeError for an unknown rule."""
    select = tuple(_codes(word, config.origins.get("select")) for word in config.select)
    ignore = tuple(_codes(word, config.origins.get("ignore")) for word in config.ignore)

    def wanted(finding: Finding) -> bool:
        chosen = not select or finding.rule.startswith(select)
        return chosen and not finding.rule.startswith(ignore)

    return wanted


def _codes(word: str, origin: str | None) -> str:
    """The code of a rule's name; a family ("GS1") stands for all codes that begin with it."""
    family = word.upper()
    if any(code.startswith(family) for code in RULES):
        return family
    with errors_at(origin):
        return by_name(word).code


def by_name(name: str) -> Rule:
    """The rule of that code or name, in any case.

    Raises `GradscopeError` with the nearest match where there is none.
    """
    wanted = name.strip().lower()
    names = {key.lower(): rule for rule in RULES.values() for key in (rule.code, rule.name)}
    if wanted in names:
        return names[wanted]
    # Of names alone: another number is no likelier to be meant than the rest.
    near = difflib.get_close_matches(wanted, [rule.name for rule in RULES.values()], n=1)
    hint = f"did you mean {names[near[0]].code} {near[0]}? " if near else ""
    raise GradscopeError(
        f"unknown rule {name}", help=f"{hint}`gradscope explain` lists all {len(RULES)}"
    )
