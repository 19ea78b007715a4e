"""The rules: one cause a file, found by walking `causes`."""

from gradscope.rules.registry import RULES, by_name, rule_filter
from gradscope.rules.rule import Rule

__all__ = ["RULES", "Rule", "by_name", "rule_filter"]
