"""The rules: one cause a file, found by walking `causes`."""

from gradscope.rules.rule import Rule

# isort: split
from gradscope.rules.registry import RULES, by_name, rule_filter  # may import rules of others

__all__ = ["RULES", "Rule", "by_name", "rule_filter"]
