"""GS301 of a large Function: the verdict comes first, and what is sought after it has bounds."""

import math
import os
import signal
import time

import pytest
import torch
import wrong_functions

from gradscope.facts import Ending
from gradscope.record import Observation
from gradscope.record.forking import answers
from gradscope.record.probes import experiment, function_checks, relations
from gradscope.record.probes.relations import Evidence, relate, some, wrong_at

LARGE = 40 * relations.MOST


def evidence_of(backward, shape=(LARGE,)):
    """What a backward of x * x shows that returns `backward(grad_output, x)`."""
    x = torch.linspace(0.5, 2.0, math.prod(shape), dtype=torch.float64).view(shape)
    cotangents = torch.rand((2, *shape), dtype=torch.float64) + 0.5
    right = cotangents * 2 * x
    got = torch.stack([backward(one, x) for one in cotangents])
    wrong = wrong_at(got, right, 1e-4).any(0)
    return Evidence(got, right, 2 * x, cotangents.flatten(1), wrong, 1e-4, aligned=True), {"x": x}


@pytest.mark.parametrize(
    ("backward", "relation"),
    [
        (lambda g, x: 128 * g * x, ("factor",)),
        (lambda g, x: -2 * g * x, ("sign",)),
        (lambda g, x: 2 * g, ("missing",)),
        (lambda g, x: 2 * x, ("ignored",)),
        (lambda g, x: torch.full_like(x, float((2 * g * x).mean())), ("mean",)),
        (lambda g, x: 2 * g.mean() * x, ("number",)),
        (lambda g, x: g * (2 * x).clamp(max=3), ("bounded",)),
        (lambda g, x: g * x.exp(), ("unknown",)),
        (lambda g, x: torch.where(x < 1, 2 * g * x, g * x), ("some",)),
    ],
)
def test_a_relation_shows_in_some_of_many_elements(backward, relation):
    evidence, named = evidence_of(backward)
    assert relate(evidence, named).kinds == relation


def test_a_transposed_matrix_shows_in_some_of_its_elements():
    shape = (200, LARGE // 200)
    evidence, named = evidence_of(lambda g, x: (2 * g * x).mT.reshape(shape), shape)
    assert relate(evidence, named).kinds == ("transposed",)


def test_the_elements_that_are_looked_at_are_few_and_hold_the_wrong_ones():
    wrong = torch.zeros(LARGE, dtype=torch.bool)
    wrong[12345] = True

    at = some(wrong)

    assert 12345 in at
    assert relations.MOST // 4 < len(at) <= relations.MOST
    assert len(some(~wrong)) <= relations.MOST
    assert len(some(torch.zeros_like(wrong))) <= relations.MOST


def found_in(cls, *args):
    with Observation(keep_going=False) as recorder:
        cls.apply(*args)
    trace = recorder.trace("case", Ending("finished"))
    return trace.functions, trace.not_checked


def test_a_change_is_looked_for_at_some_elements_and_holds_at_all(monkeypatch):
    monkeypatch.setattr(relations, "MOST", 16)

    [check], left = found_in(Sine, torch.linspace(-3, 3, 900, requires_grad=True))

    assert (check.verdict, [one.text for one in check.slips], left) == ("wrong", ["cos"], ())


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.sin()


def test_the_verdict_stands_when_the_time_for_the_rest_is_over(monkeypatch):
    monkeypatch.setattr(function_checks, "SECONDS_EACH", 0.5)
    monkeypatch.setattr(experiment, "slips", lambda *_: time.sleep(60))

    [check], [left] = found_in(wrong_functions.Doubled, torch.rand(9, requires_grad=True))

    assert (check.verdict, check.relation.kinds, check.relation.factor) == ("wrong", ("factor",), 2)
    assert left.what == "what would be right in the backward of `Doubled`"
    assert left.why.startswith("no answer in 0.5 seconds")


def test_an_answer_stays_when_the_next_one_takes_too_long():
    def work():
        yield "first"
        while True:
            pass

    found = answers(work, 0.2)

    assert (found.last, found.is_complete) == ("first", False)
    assert 0.2 <= found.seconds < 2


def test_time_in_which_a_copy_is_kept_from_its_work_does_not_count():
    def work():
        me = os.getpid()
        goes_on = os.fork()
        if goes_on == 0:
            time.sleep(1.0)
            os.kill(me, signal.SIGCONT)
            os._exit(0)
        os.kill(me, signal.SIGSTOP)
        yield "late"

    found = answers(work, 0.5)

    assert (found.last, found.is_complete) == ("late", True)
    assert found.seconds < 0.5
