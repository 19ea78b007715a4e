"""An ignore comment that nothing needs any more."""

from gradscope.facts import Finding, Location, Severity
from gradscope.rules.rule import Rule


class UnusedIgnore(Rule):
    """
    ## What it does
    Finds an ignore comment that no finding of a check needs any more, or that names no rule.

    ## Why is this bad?
    What the comment was written for is gone, and it would accept whatever goes wrong at its line in
    the future.

    ## Fix safety
    Safe: removing the comment changes no value. Where only some runs reach the line, keep it and
    check a target that does.
    """

    code = "GS903"
    name = "unused-ignore"
    severity = Severity.WARNING

    def report(self, location: Location, message: str, why: str) -> Finding:
        """The warning about one comment. Only a check of several targets can tell."""
        return self.found(message, why, label="remove it", location=location)
