"""The page: reviewed, self-contained, and unable to run what a name says."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest
import report_cases as cases

from gradscope import __version__
from gradscope.facts import Holds, NumberDecides
from gradscope.facts.verdicts import Effects

REPORTS = ["full", "healthy", "failed", "hostile"]
VOID = {"meta"}
ATTRIBUTES = {"class", "id", "href", "style", "lang", "name", "content", "charset", "http-equiv"}


class Page(HTMLParser):
    """Tags, attributes and text; a tag that closes another one's element is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(name: str) -> Page:
    return Page(cases.render("html", getattr(cases, name)(), sources=cases.sources))


def test_page_is_the_reviewed_one():
    text = cases.render("html", cases.full(), sources=cases.sources)

    cases.assert_snapshot("full.html", text.replace(__version__, "VERSION"))


@pytest.mark.parametrize("name", REPORTS)
def test_every_element_is_closed(name):
    assert page(name).open == []


@pytest.mark.parametrize("name", REPORTS)
def test_nothing_is_fetched_and_nothing_runs(name):
    found = page(name)

    assert found.tags.isdisjoint({"script", "img", "link", "iframe", "object", "form", "base"})
    assert {attribute for attribute, _ in found.attributes} <= ATTRIBUTES
    assert all(value.startswith("#finding-") for key, value in found.attributes if key == "href")
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes


def test_hostile_text_is_shown_as_it_is():
    text = page("hostile").text

    assert (
        "\\x1b]0;owned\\x07\\x1b[2J \\u202e<script>alert(1)</script>]]>&`|*_[x](http://x)" in text
    )
    assert {character for character in text if not character.isprintable()} == {"\n"}


def test_links_lead_to_findings():
    found = page("full").attributes
    targets = {f"#{value}" for name, value in found if name == "id"}

    assert {value for name, value in found if name == "href"} == targets
    assert len(targets) == 4


def test_a_patch_of_another_file_names_it():
    """As on the terminal: the finding is elsewhere."""
    finding = cases.masked_branch()
    lead = next(fix for fix in finding.fixes if fix.verified)
    moved = replace(lead, patch=lead.patch.replace("gamma_loss.py", "lib/branches.py"))
    report = replace(cases.full(), findings=(replace(finding, fixes=(moved,)),))

    for format in ("html", "terminal"):
        shown = cases.render(format, report, sources=cases.sources)
        assert "lib/branches.py" in (Page(shown).text if format == "html" else shown), format


def test_where_no_patch_leads_every_page_says_so():
    finding = cases.masked_branch()
    refuted = tuple(fix for fix in finding.fixes if fix.verified is False)
    doubtful = replace(refuted[0], verdict=Holds(Effects(), NumberDecides(2.5)))
    report = replace(cases.full(), findings=(replace(finding, fixes=refuted),))
    in_doubt = replace(report, findings=(replace(finding, fixes=(doubtful, *refuted)),))

    for format in ("html", "markdown", "terminal"):
        shown = cases.render(format, report, sources=cases.sources)
        assert "none of the patches that were tried repairs it" in shown, format
        shown = cases.render(format, in_doubt, sources=cases.sources)
        assert "no patch that was tried can be taken without your judgement" in shown, format
