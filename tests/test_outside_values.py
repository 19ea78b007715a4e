"""Bad values that come from outside of the ops: under which name, and by which of two ways."""

import functools
import math
import sys

import numpy as np
import pytest
import torch

from gradscope.diagnose import diagnose
from gradscope.facts import Ending
from gradscope.record import Observation, StopTrace, sites
from gradscope.record.names import assigned_name


def findings(program):
    recorder = Observation(steps=3, keep_going=False)
    try:
        with recorder:
            program()
    except StopTrace:
        pass
    return diagnose(recorder.trace("test", Ending("finished")))


def first_finding(program):
    return findings(program)[0]


def here():
    """What the caller's line gives the result of this call to."""
    frame = sys._getframe(1)
    return assigned_name(((frame.f_code, frame.f_lasti),))


class Holder:
    def keep(self):
        self.kept = here()
        return self.kept


class TestNames:
    def test_a_plain_assignment(self):
        table = here()

        assert table == "table"

    def test_an_attribute(self):
        assert Holder().keep() == "self.kept"

    def test_a_part_of_an_expression_has_none(self):
        inside = [here(), here()]

        assert inside == [None, None]


class TestBatches:
    def test_a_loop_is_pointed_at_without_its_body(self):
        rows = [np.full(3, value, dtype=np.float32) for value in (1.0, float("nan"))]

        def program():
            weight = torch.ones(3, requires_grad=True)
            for batch in torch.utils.data.DataLoader(rows):
                loss = (weight * batch).sum()
                loss.backward()

        finding = first_finding(program)

        assert finding.rule == "GS501"
        for place in (finding.location, *(one.location for one in finding.related)):
            assert place.end_line == place.line

    def test_so_is_a_block(self):
        class Scope:
            def __enter__(self):
                self.place = sites.resolve(*here_in(1))
                return self

            def __exit__(self, *_):
                pass

        with Scope() as scope:
            pass

        assert scope.place.end_line == scope.place.line
        width = scope.place.end_col - scope.place.col
        assert width in (len("with Scope() as scope:"), len("Scope()"))  # since Python 3.12


def here_in(depth):
    frame = sys._getframe(depth + 1)
    return frame.f_code, frame.f_lasti


class TestData:
    @pytest.mark.parametrize(
        ("bad", "said"), [(float("inf"), "inf"), (float("-inf"), "inf"), (float("nan"), "NaN")]
    )
    def test_a_list_with_a_bad_number_is_bad_data(self, bad, said):
        def program():
            x = torch.ones(2, requires_grad=True)
            target = torch.tensor([0.5, bad])
            (x - target).square().sum().backward()

        found = first_finding(program)

        assert (found.name, found.op) == ("bad-input", "sub")
        assert found.message == f"`target` holds {said} at 1 of 2 elements"

    def test_scores_masked_by_a_literal_are_no_bad_data(self):
        def program():
            x = torch.ones(2, requires_grad=True)
            logp = (x + torch.tensor([0.0, float("-inf")])).log_softmax(0)
            (logp.exp() * logp).sum().backward()

        assert first_finding(program).name == "inf-arithmetic"

    def test_a_constant_is_no_data(self):
        def program():
            x = torch.zeros(2, requires_grad=True)
            (x * torch.tensor(float("inf"))).sum().backward()

        assert first_finding(program).name == "inf-arithmetic"


def test_the_side_that_where_did_not_take_is_innocent():
    def program():
        x = torch.tensor([0.0, 1.0], requires_grad=True)
        torch.where(x < -1, float("nan"), x.log()).sum().backward()

    found = first_finding(program)

    assert (found.name, found.op) == ("log-zero", "log")


def test_an_integer_denominator_is_measured():
    def program():
        x = torch.ones(2, requires_grad=True)
        (x / torch.tensor([0, 2])).sum().backward()

    found = first_finding(program)

    assert found.name == "zero-division"
    assert found.evidence["operands"] == {"self": 1.0, "other": 0.0}


SGD = functools.partial(torch.optim.SGD, momentum=0.9)
ADAM = torch.optim.AdamW


@pytest.mark.parametrize("options", [{}, {"foreach": True}])
@pytest.mark.parametrize(
    ("kind", "setting", "value", "told"),
    [
        (SGD, "lr", math.inf, "`SGD` steps with lr = inf"),
        (SGD, "weight_decay", math.inf, "`SGD` steps with weight_decay = inf"),
        (SGD, "momentum", math.nan, "`SGD` steps with momentum = nan"),
        (ADAM, "lr", math.inf, "`AdamW` steps with lr = inf"),
        (ADAM, "lr", math.nan, "`AdamW` steps with lr = nan"),
        (ADAM, "betas", (math.nan, 0.999), "`AdamW` steps with betas[0] = nan"),
    ],
)
def test_a_setting_that_is_not_finite_is_told_once(kind, options, setting, value, told):
    layer = torch.nn.Linear(2, 1)
    optimizer = kind([{"params": [layer.bias]}, {"params": [layer.weight]}], lr=0.1, **options)

    def program():
        for step in range(3):
            if step == 2:
                optimizer.param_groups[1][setting] = value
            optimizer.zero_grad()
            layer(torch.ones(3, 2)).square().mean().backward()
            optimizer.step()

    (found,) = findings(program)

    assert (found.rule, found.message) == ("GS408", told)


class Bounded(torch.optim.SGD):
    """Has a bound of its own, which inf switches off."""

    def __init__(self, parameters, bound):
        super().__init__(parameters, lr=0.1)
        self.param_groups[0]["bound"] = bound


def test_a_bound_of_inf_is_not_to_blame():
    def program():
        w = torch.zeros(2, requires_grad=True)
        optimizer = Bounded([w], bound=float("inf"))
        w.sqrt().sum().backward()
        optimizer.step()

    assert first_finding(program).rule != "GS408"


def test_the_learning_rate_is_inf():
    def program():
        x = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.SGD([x], lr=0.1)
        optimizer.param_groups[0]["lr"] = float("inf")
        x.sum().backward()
        optimizer.step()

    found = first_finding(program)

    assert found.message == "`SGD` steps with lr = inf"
    assert [fix.kind for fix in found.fixes] == ["lower-lr"]


def test_running_statistics_of_a_bad_batch_are_no_cause_of_their_own():
    def program():
        norm = torch.nn.BatchNorm1d(2)
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), norm)
        batch = torch.ones(3, 2) / torch.tensor([0.0, 1.0])
        norm(batch)
        norm.eval()
        model(torch.ones(3, 2)).sum().backward()

    assert [one.name for one in findings(program)] == ["zero-division"]
