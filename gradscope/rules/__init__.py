"""The rules: one cause a file, found by walking this package."""

from gradscope.rules.pages import explain_list, explain_page
from gradscope.rules.registry import RULES, by_name
from gradscope.rules.rule import Rule

__all__ = ["RULES", "Rule", "by_name", "explain_list", "explain_page"]
