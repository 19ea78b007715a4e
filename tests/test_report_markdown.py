"""The job summary: the reviewed page, and text that markdown must not obey."""

from dataclasses import replace

import pytest
import report_cases as cases
from markdown_it import MarkdownIt
from markdown_it.token import Token

REPORTS = ["full", "healthy", "failed", "hostile"]


def tokens(name: str, times: int = 1) -> list[Token]:
    """As GitHub reads it: CommonMark with tables, HTML and bare links. Each finding is told so many
    times."""
    report = getattr(cases, name)()
    report = replace(report, findings=report.findings * times)
    text = cases.render("markdown", report, sources=cases.sources)
    blocks = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    return [token for block in blocks for token in (block, *(block.children or ()))]


@pytest.mark.parametrize("name", ["full", "healthy", "failed"])
def test_page_is_the_reviewed_one(name):
    text = cases.render("markdown", getattr(cases, name)(), sources=cases.sources)

    cases.assert_snapshot(f"{name}.md", text)


@pytest.mark.parametrize("name", REPORTS)
def test_no_text_becomes_html_or_a_link(name):
    kinds = {token.type for token in tokens(name)}

    assert kinds.isdisjoint({"html_block", "html_inline", "link_open", "image"})


@pytest.mark.parametrize("name", REPORTS)
def test_emphasis_is_only_ours(name):
    assert not [token for token in tokens(name) if token.type == "em_open"]


def test_hostile_text_is_shown_as_it_is():
    shown = [token.content for token in tokens("hostile") if token.type == "text"]
    name = cases.HOSTILE.replace("\x1b", "\\x1b").replace("\x07", "\\x07")
    name = name.replace("\r\n", " ").replace("\u202e", "\\u202e")

    assert name in shown


def test_every_row_of_a_table_has_the_columns_of_its_head():
    kinds = [token.type for token in tokens("hostile", times=2)]

    assert [kinds.count("th_open"), kinds.count("td_open")] == [4 + 2 * 7, 2 * 4 + 2 * 7]


def test_fences_hold_what_they_fence():
    fences = [token for token in tokens("hostile") if token.type == "fence"]

    assert [fence.info for fence in fences] == ["text", "diff", "text", "text"]


def test_the_patch_is_the_whole_patch():
    (first, *_) = [token for token in tokens("full") if token.info == "diff"]

    assert first.content.rstrip("\n") == cases.masked_branch().fixes[1].patch
