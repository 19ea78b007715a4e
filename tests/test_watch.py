"""`gradscope.watch()` around a block of a program that runs by itself."""

import pytest
import torch

import gradscope
from gradscope.errors import GradscopeError
from gradscope.source import lines


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(steps: int, start: float = 0.0) -> tuple[list[float], torch.Tensor]:
    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.tensor([start, 1.0]))
    optimizer = torch.optim.SGD([w], lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (w.sqrt() * torch.rand(2)).sum()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses, w.detach()


def test_a_healthy_block_is_healthy_and_unchanged():
    bare = train(5, start=2.0)

    with gradscope.watch() as seen:
        watched = train(5, start=2.0)

    assert watched[0] == bare[0]
    assert torch.equal(watched[1], bare[1])
    assert seen.findings() == ()
    assert not seen.fails
    assert "the watched block: healthy: every loss and gradient was finite (5 steps" in str(seen)


def test_a_block_runs_on_unless_it_is_to_stop():
    with gradscope.watch() as seen:
        losses, _ = train(4)

    assert len(losses) == 4
    assert len(seen.report().trace.steps) == 4
    assert seen.findings()[0].rule == "GS102"


def test_stop_leaves_the_block_at_its_first_error():
    reached = False

    with gradscope.watch(stop=True) as seen:
        train(4)
        reached = True

    assert not reached
    assert len(seen.report().trace.steps) == 1
    assert seen.fails
    text = seen.text()
    assert "error[GS102] singular-derivative" in text
    assert "loss = (w.clamp_min(1e-12).sqrt() * torch.rand(2)).sum()" in text
    assert "not tried: this run cannot be made again" in text


def test_steps_leave_it_too():
    with gradscope.watch(stop=True, steps=3) as seen:
        train(9, start=2.0)

    assert len(seen.report().trace.steps) == 3
    assert not seen.fails


def test_an_exception_of_the_block_is_its_own():
    with pytest.raises(ZeroDivisionError), gradscope.watch():
        _ = 1 / 0


def test_rules_are_selected_ignored_and_accepted():
    with gradscope.watch(select="GS2") as selected, gradscope.watch(ignore=["GS102"]) as ignored:
        train(1)
    with gradscope.watch() as seen:
        train(1)
    seen.accept("singular-derivative")

    assert [selected.findings(), ignored.findings(), seen.findings()] == [(), (), ()]


def test_the_nearest_configuration_holds(folder):
    (folder / "gradscope.yaml").write_text("ignore: [GS102]\n")

    with gradscope.watch() as seen:
        train(1)

    assert seen.findings() == ()


def test_mistakes_are_told_before_anything_runs(folder):
    with pytest.raises(GradscopeError, match="unknown rule GS777"):
        gradscope.watch(select="GS777")
    (folder / "gradscope.yaml").write_text("stepz: 3\n")
    with pytest.raises(GradscopeError, match="unknown key stepz"):
        gradscope.watch()


def test_other_names_are_no_attributes():
    with pytest.raises(AttributeError, match="no attribute 'wach'"):
        gradscope.wach  # noqa: B018


def test_of_a_chain_the_last_link_is_pointed_at(folder):
    """In every place: the headline's, the chain's, and in what the patch is beside."""
    x = torch.zeros(2, 3, requires_grad=True)

    with gradscope.watch(stop=True) as seen:
        x.square().sum(-1).sqrt().mean().backward()

    (finding,) = seen.findings()
    line = lines(finding.location.file)[finding.location.line - 1]
    assert line[finding.location.col : finding.location.end_col] == ".sqrt()"
    assert finding.chain[0].blame.location == finding.location
    assert "vector_norm(x, dim=-1)" in seen.text()


def test_what_a_penalty_computes_from_the_weights_is_not_kept():
    w = torch.nn.Parameter(torch.ones(3))
    start = torch.zeros(3)
    optimizer = torch.optim.SGD([w], lr=0.01)

    with gradscope.watch() as seen:
        for _ in range(50):
            optimizer.zero_grad()
            (w - start).square().sum().backward()
            optimizer.step()

    assert len(seen._observation.sizes.leaves._results) <= 1
