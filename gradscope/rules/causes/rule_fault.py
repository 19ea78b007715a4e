"""A rule of our own that raised."""

from gradscope.facts import Finding, Severity
from gradscope.rules.rule import Rule


class RuleFault(Rule):
    """
    ## What it does
    Finds a rule of gradscope's own that raised. The other rules went on.

    ## Why is this bad?
    The cause that this rule looks for was not looked for, so the report may lack a finding. It is
    a fault of gradscope, not of the program.

    ## Fix safety
    There is nothing to repair in the program. The message, with the program that led to it, is
    what a bug report needs.
    """

    code = "GS901"
    name = "rule-fault"
    severity = Severity.NOTE

    def report(self, rule: Rule, error: Exception) -> Finding:
        """The note about a rule that raised."""
        detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return self.found(
            f"the rule {rule.name} ({rule.code}) raised {detail}",
            "This is a fault of gradscope. The other rules went on; this one reported nothing.",
            evidence={"rule": rule.code, "error": detail},
        )
