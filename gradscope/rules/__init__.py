"""The rules: one cause a file, found by walking this package."""

from gradscope.rules.rule import RULES, Rule, by_name

__all__ = ["RULES", "Rule", "by_name"]
