"""The learning rate of an update by hand, and the edit that changes it."""

from pathlib import Path

import pytest
from corpus import finding_of

from gradscope.facts import Edit, Location, Phase, Update
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import locate
from gradscope.repair.write.propose import candidates
from gradscope.rules.wording.proposals import proposed
from gradscope.source import parsed
from gradscope.source.hand_updates import rate_by_hand


def written(folder: Path, line: str, above: str = "") -> Update:
    text = f"{above}{line}\n"
    (folder / "train.py").write_text(text)
    number = text.count("\n")
    place = Location(str(folder / "train.py"), number, 0, number, len(line), "<module>")
    return Update(step=0, optimizer="", lr=None, location=place)


def edits(update: Update) -> list[Edit]:
    """That make its learning rate a half of 0.5."""
    fix = proposed(ask.LowerRate(0.5, 0.25, update))
    found = finding_of("GS404", phase=Phase.OPTIMIZER, step=1, op="step", location=update.location)
    return [edit for one in candidates(locate(found), fix) for edit in one.edits]


def rate_of(update: Update) -> object:
    text = parsed(update.location.file)
    assert text is not None
    found = rate_by_hand(text, update.location)
    return found.value if found is not None else None


@pytest.mark.parametrize(
    ("line", "above"),
    [
        ("w -= 0.5 * w.grad", ""),
        ("w.data -= w.grad * 0.5", ""),
        ("w.sub_(0.5 * (w.grad + 1e-4 * w))", ""),
        ("w.add_(w.grad, alpha=-0.5)", ""),
        ("w.copy_(w - lr * w.grad)", "lr = 0.5\n"),
        ("w.data.add_(-lr * grad)", "lr = 0.5\n"),
    ],
)
def test_the_factor_of_the_gradient_is_the_rate(tmp_path, line, above):
    update = written(tmp_path, line, above)

    assert rate_of(update) == 0.5
    (edit,) = edits(update)
    text = (tmp_path / "train.py").read_text().splitlines()
    assert text[edit.line - 1][edit.col : edit.end_col] == "0.5"
    assert edit.text == "0.25"


def test_a_rate_inside_a_function_is_found_in_its_own_scope(tmp_path):
    above = "lr = 9.0\ndef step(w):\n    lr = 0.5\n"

    assert rate_of(written(tmp_path, "    w -= lr * w.grad", above)) == 0.5


@pytest.mark.parametrize(
    ("line", "above"),
    [
        ("w -= rate() * w.grad", ""),
        ("w -= lr * w.grad", "lr = 0.5\nlr *= 0.1\nlr = lr + lr\n"),
        ("step(w)", ""),
    ],
)
def test_what_is_not_written_is_not_guessed(tmp_path, line, above):
    update = written(tmp_path, line, above)

    assert rate_of(update) is None
    assert edits(update) == []
