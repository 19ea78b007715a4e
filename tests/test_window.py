"""Ops on a device are judged a window at a time; a program on the CPU stands in for one there."""

from collections.abc import Iterable, Iterator

import pytest
import torch
from corpus import diagnosed, programs
from test_recorder import leaf, record, text_of

from gradscope.diagnose import find_roots
from gradscope.facts import Finding, Phase
from gradscope.record.window import _OPS, Window

# A few of every kind: births in forward and backward, masks, data, steps of an optimizer.
ALIKE = frozenset(
    """
    adam_by_hand_counts_from_zero adjacency_nan_rows_zeroed barrier_of_inf bond_angle_masked_fill
    checkpointed_block_log click_ratio_clamped_late companding_power complex_product_overflows
    csv_blank_cell_nan custom_function_entropy damaged_checkpoint diffusion_last_timestep
    eikonal_penalty_at_origin fit_with_closure_detaches gcn_degree_inverse half_softmax_then_log
    inner_loop_flat_task learning_rate_is_inf masks_leave_a_gap mha_batch_with_empty_document
    orthogonal_basis_rank_deficient root_written_into_view sum_of_terms_one_bad
    vq_codebook_dead_code
    """.split()
)

Windows = list[list[str]]


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[Windows]:
    """No tensor counts as one on the CPU. What is yielded: the ops of each window judged."""
    judged: Windows = []
    close = Window.close

    def noted(self):
        if self.is_open:
            judged.append([op.info.name for op in self._ops])
        close(self)

    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "is_cpu", False)
        patched.setattr(Window, "close", noted)
        yield judged


def test_a_birth_in_the_middle_is_named(windows):
    def program():
        x = leaf(1.0, -2.0, 3.0)
        y = (x * 2.0 + 1.0).log()
        (y.exp() * 0.5).sum().backward()

    [root] = find_roots(record(program))

    [window] = [window for window in windows if "log" in window]
    assert window[0] != "log" != window[-1]
    assert "exp" in window
    assert text_of(root.event) == "(x * 2.0 + 1.0).log()"
    assert root.event.index == (1,)


def test_a_write_in_place_closes_the_window_first(windows):
    """Nothing is left of the NaN at its source when the program goes on."""

    def program():
        x = leaf(4.0, 0.0)
        y = (x - 1.0).detach().sqrt()
        z = x + y
        y.zero_()
        z.sum().backward()

    [root] = find_roots(record(program))

    assert [window[-1] for window in windows if "sqrt" in window] == ["add"]
    assert text_of(root.event) == "(x - 1.0).detach().sqrt()"
    assert root.symptoms[0].kind == "nan-loss"


def test_a_write_elsewhere_leaves_it_open(windows):
    count = torch.zeros(3)

    def program():
        x = leaf(4.0, 1.0)
        y = x.sqrt()
        count.add_(1.0)
        y.log().sum().backward()

    assert find_roots(record(program)) == ()
    assert [True for window in windows if "sqrt" in window and "log" in window]


def test_what_a_full_window_holds_is_judged(windows):
    def program():
        x = leaf(1.0, -1.0)
        for _ in range(100):
            x = x * 1.0
        y = x.log()
        for _ in range(100):
            y = y * 1.0
        y.sum().backward()

    [root] = find_roots(record(program))

    assert max(map(len, windows)) == _OPS
    assert root.event.op == "log"


def test_a_backward_node_is_judged_when_the_next_ones_have_run(windows):
    """By then autograd has freed what it saved, and what was sent to it is gone."""

    def program():
        x = leaf(0.0, 4.0)
        y = (x * 1.0).pow(0.5)
        torch.where(x > 1.0, y, x).sum().backward()

    [root] = find_roots(record(program))

    assert root.event.phase is Phase.BACKWARD
    assert text_of(root.event) == "(x * 1.0).pow(0.5)"
    assert root.event.grad_output == 0.0
    assert [(operand.role, operand.at) for operand in root.event.saved] == [("self", 0.0)]
    assert root.event.hidden_by.op == "where"


def test_an_op_of_several_results_waits_too(windows):
    """It would be told as the first to meet the NaN, if it were looked at before what made it."""

    def program():
        x = leaf(1.0, -1.0)
        scores = x.log().expand(2, 2)
        torch.nn.functional.cross_entropy(scores, torch.tensor([0, 1])).backward()

    [root] = find_roots(record(program))

    assert [True for window in windows if "log" in window and "nll_loss_forward" in window]
    assert root.event.op == "log"


def test_a_look_at_once_is_after_the_window(windows, monkeypatch):
    """What has come back to the CPU is looked at directly, and its source before it."""

    def program():
        x = leaf(1.0, -1.0)
        y = x.log()
        with monkeypatch.context() as patched:
            patched.setattr(torch.Tensor, "is_cpu", True)
            (y * 2.0).sum().backward()

    [root] = find_roots(record(program))

    assert [window[-1] for window in windows] == ["log"]
    assert root.event.op == "log"


@pytest.mark.parametrize(
    "case", [case for case in programs("cases") if case.name in ALIKE], ids=lambda case: case.name
)
@pytest.mark.long
def test_the_findings_are_those_of_the_direct_way(case, tmp_path, request):
    directly = diagnosed(case, tmp_path).findings
    request.getfixturevalue("windows")

    assert told(diagnosed(case, tmp_path).findings) == told(directly)


def told(findings: Iterable[Finding]) -> list[object]:
    """What does not hang on looking at once, as a name does and the value of a term of the loss."""
    return [
        (
            finding.name,
            finding.severity,
            (finding.step, finding.phase, finding.node),
            (finding.op, finding.location, finding.related),
            [(s.kind, s.step, s.tensor, s.bad, s.numel, s.first_index) for s in finding.symptoms],
            [fix.kind for fix in finding.fixes],
        )
        for finding in findings
    ]
