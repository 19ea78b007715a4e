"""The rules over traces built by hand: the right cause speaks, its neighbours are silent."""

import math
from dataclasses import replace

import pytest

from gradscope.diagnose import diagnose, find_roots
from gradscope.facts import (
    Ancestor,
    Call,
    Event,
    Finding,
    Kind,
    Location,
    Operand,
    Phase,
    Root,
    Severity,
    Step,
    Subject,
    Symptom,
    Trace,
    Trouble,
)
from gradscope.rules import RULES, order
from gradscope.rules.wording import phrases

INF, NAN = math.inf, math.nan
BY_VALUE = [rule for code, rule in RULES.items() if code.startswith(("GS1", "GS2", "GS5"))]

NAN_GRAD = Symptom(Trouble.NAN, Subject.GRADIENT, 0, "w", bad=2, numel=8, first_index=(0,))
NAN_LOSS = Symptom(Trouble.NAN, Subject.LOSS, 0, "loss", bad=1, numel=1)


def place(line: int) -> Location:
    return Location("loss.py", line, 4, line, 12, "loss")


def call(op: str, line: int = 4, **facts: object) -> Call:
    return Call(op=op, location=place(line), **facts)


def tensor(role: str, at: float | None, **facts: object) -> Operand:
    """An operand of 8 elements whose value at the bad element is `at`."""
    counts = {
        "zeros": int(at == 0),
        "nan": int(at is not None and math.isnan(at)),
        "posinf": int(at == INF),
        "neginf": int(at == -INF),
    }
    known = {"shape": (8,), "dtype": "float32", "numel": 8, "name": None} | counts | facts
    if at is not None and math.isfinite(at):
        known = {"min": min(at, 0.0), "max": max(at, 0.0)} | known
    return Operand(role=role, at=at, **known)


def forward(op: str, *inputs: Operand, gives: float = NAN, **facts: object) -> Event:
    """A birth going forward, at 2 of 8 elements."""
    known = {"kind": Kind.BIRTH, "index": (3,), "bad": 2, "numel": 8} | facts
    output = tensor("output", gives, dtype=inputs[0].dtype if inputs else "float32")
    known = {"output": output} | known
    return Event(
        id=1, step=0, phase=Phase.FORWARD, call=call(op), blame=call(op), inputs=inputs, **known
    )


def backward(op: str, *saved: Operand, gives: float = NAN, **facts: object) -> Event:
    """A birth inside the backward of `op`, at 2 of 8 elements."""
    known = {"kind": Kind.BIRTH, "index": (3,), "bad": 2, "numel": 8, "grad_output": 0.5} | facts
    return Event(
        id=1,
        step=0,
        phase=Phase.BACKWARD,
        call=call("mul"),
        blame=call(op),
        node=f"{op.title()}Backward0",
        saved=saved,
        output=tensor("output", gives),
        **known,
    )


def event(op: str, kind: Kind, phase: Phase = Phase.FORWARD, id: int = 2, **facts: object) -> Event:
    return Event(id=id, step=0, kind=kind, phase=phase, call=call(op, 7), blame=call(op), **facts)


def root(first: Event, *after: Event, symptoms: tuple[Symptom, ...] = (NAN_LOSS,)) -> Root:
    return Root(first, symptoms, (first, *after))


def explain(one: Root, trace: Trace | None = None) -> list[Finding]:
    """What the rules say of a root, the finding that is reported first."""
    trace = trace or Trace("loss.py", steps=(Step(0, 0.25, 0.1, 9),))
    found = [finding for rule in BY_VALUE if (finding := rule.explain(one, trace)) is not None]
    return sorted(found, key=order.rank)


def hidden(first: Event, by: str = "where") -> Root:
    """The birth of a value that a mask threw away, and whose gradient is NaN."""
    kill = event(by, Kind.KILL)
    revival = replace(backward(first.op, grad_output=0.0), id=3, kind=Kind.REVIVAL)
    return root(first, kill, revival, symptoms=(NAN_GRAD,))


SOFTPLUS = Ancestor("SoftplusBackward0", call("softplus", 2))

CAUSES = {
    "a branch that where discards": (
        root(
            backward("sqrt", tensor("self", 0.0), grad_output=0.0, hidden_by=call("where", 9)),
            symptoms=(NAN_GRAD,),
        ),
        ["masked-branch"],
    ),
    "a pole that indexing hides": (
        hidden(forward("div", tensor("self", 1.0), tensor("other", 0.0), gives=INF), "index"),
        ["masked-branch"],
    ),
    "an overflow that minimum hides": (
        hidden(forward("exp", tensor("self", 95.0), gives=INF), "minimum"),
        ["masked-branch"],
    ),
    "a pole that nan_to_num hides": (
        hidden(forward("log", tensor("self", 0.0), gives=-INF), "nan_to_num"),
        ["masked-branch"],
    ),
    "NaN labels that a mask hides": (
        root(
            replace(
                event("sub", Kind.SOURCE, id=1), inputs=(tensor("other", NAN, held_as="data"),)
            ),
            event("where", Kind.KILL),
            replace(backward("pow", tensor("self", NAN), grad_output=0.0), kind=Kind.REVIVAL),
            symptoms=(NAN_GRAD,),
        ),
        ["masked-branch"],
    ),
    "a root at zero": (
        root(backward("sqrt", tensor("self", 0.0), gives=INF), symptoms=(NAN_GRAD,)),
        ["singular-derivative"],
    ),
    "a root at zero whose residual is zero": (
        root(
            backward("sqrt", tensor("self", 0.0), grad_output=0.0, hidden_by=call("sub")),
            symptoms=(NAN_GRAD,),
        ),
        ["singular-derivative"],
    ),
    "an op that the table does not know": (
        root(backward("frobnicate", tensor("self", 0.5)), symptoms=(NAN_GRAD,)),
        ["singular-derivative"],
    ),
    "zero times a meant inf": (
        root(forward("mul", tensor("self", 0.0), tensor("other", -INF))),
        ["inf-arithmetic"],
    ),
    "inf minus inf": (
        root(forward("sub", tensor("self", INF), tensor("other", INF))),
        ["inf-arithmetic"],
    ),
    "a meant inf that reaches the loss": (
        root(event("masked_fill", Kind.CONSTANT, id=1, output=tensor("output", -INF))),
        ["inf-arithmetic"],
    ),
    "gradients of both signs": (
        root(
            backward("sqrt", tensor("self", 0.0), gives=INF),
            event(
                "sqrt",
                Kind.PROPAGATION,
                phase=Phase.BACKWARD,
                branches=(call("sqrt"), call("sqrt", 5)),
            ),
            symptoms=(NAN_GRAD,),
        ),
        ["singular-derivative"],
    ),
    "a division by zero": (
        root(forward("div", tensor("self", 1.0), tensor("other", 0.0), gives=INF)),
        ["zero-division"],
    ),
    "nothing over nothing": (
        root(forward("div", tensor("self", 0.0), tensor("other", 0.0))),
        ["zero-division"],
    ),
    "a division by what was flushed": (
        root(
            forward(
                "div",
                tensor("self", 1.0),
                tensor("other", 0.0),
                gives=INF,
                ancestry=(None, SOFTPLUS),
            )
        ),
        ["underflow", "zero-division"],
    ),
    "an eps that float16 loses": (
        root(
            replace(
                forward(
                    "addcdiv",
                    tensor("self", 1.0, dtype="float16"),
                    tensor("tensor1", 1e-6, dtype="float16"),
                    tensor("tensor2", 0.0, dtype="float16"),
                    gives=INF,
                ),
                phase=Phase.OPTIMIZER,
            )
        ),
        ["underflow", "zero-division"],
    ),
    "the logarithm of zero": (
        root(forward("log", tensor("self", 0.0), gives=-INF)),
        ["log-zero"],
    ),
    "the logarithm of a product that was flushed": (
        root(
            forward(
                "log",
                tensor("self", 0.0),
                gives=-INF,
                ancestry=(Ancestor("ProdBackward0", call("prod", 2)),),
            )
        ),
        ["underflow", "log-zero"],
    ),
    "the logarithm of a negative number": (
        root(forward("log", tensor("self", -0.5))),
        ["domain-error"],
    ),
    "a cosine above one": (root(forward("acos", tensor("self", 1.0000001))), ["domain-error"]),
    "NaN of an unknown op": (
        root(forward("frobnicate", tensor("self", 0.5))),
        ["domain-error"],
    ),
    "exp of 95": (root(forward("exp", tensor("self", 95.0), gives=INF)), ["overflow"]),
    "a sum in half precision": (
        root(forward("sum", tensor("self", None, dtype="float16", min=0.0, max=0.9), gives=INF)),
        ["overflow"],
    ),
    "attention whose scores keep no fraction": (
        root(
            backward(
                "scaled_dot_product_attention",
                tensor("logsumexp", None, min=2e12, max=3e15),
                gives=INF,
            ),
            symptoms=(NAN_GRAD,),
        ),
        ["overflow", "singular-derivative"],
    ),
    "inf of an unknown op": (
        root(forward("frobnicate", tensor("self", 0.5), gives=INF)),
        ["overflow"],
    ),
    "a row of nothing but -inf": (
        root(forward("_softmax", tensor("self", -INF, neginf=2), scalars=(("dim", -1),))),
        ["all-masked-softmax", "inf-arithmetic"],
    ),
    "the mean of nothing": (
        root(forward("mean", Operand("self", shape=(0,), dtype="float32"), index=())),
        ["empty-reduction"],
    ),
    "the spread of one item": (
        root(forward("std", replace(tensor("self", 0.5), shape=(1,), numel=1), numel=1)),
        ["empty-reduction"],
    ),
    "equal singular values": (
        root(
            backward("_linalg_svd", tensor("S", None, min=1.0, max=1.0), grad_output=None),
            symptoms=(NAN_GRAD,),
        ),
        ["degenerate-decomposition"],
    ),
    "NaN in the batch": (
        root(event("mm", Kind.SOURCE, id=1, inputs=(tensor("self", NAN, held_as="data"),))),
        ["bad-input"],
    ),
    "NaN in a parameter": (
        root(event("mm", Kind.SOURCE, id=1, inputs=(tensor("self", NAN, held_as="parameter"),))),
        ["bad-parameter"],
    ),
    "inf in a buffer": (
        root(event("mul", Kind.SOURCE, id=1, inputs=(tensor("self", INF, held_as="buffer"),))),
        ["bad-parameter"],
    ),
    "memory that nothing wrote": (
        root(event("empty", Kind.UNINITIALIZED, id=1, output=tensor("output", NAN), numel=8)),
        ["uninitialized-memory"],
    ),
}


@pytest.mark.parametrize("story", CAUSES)
def test_the_cause_is_named_first_and_neighbours_are_silent(story):
    one, causes = CAUSES[story]

    assert [finding.name for finding in explain(one)] == causes


@pytest.mark.parametrize("story", CAUSES)
def test_every_finding_has_words_and_a_repair(story):
    for finding in explain(CAUSES[story][0]):
        text = " ".join((finding.message, finding.label, finding.why, *finding.numbers))

        assert finding.message[0].islower() or finding.message[0] in "`0123456789N"
        assert not finding.message.endswith(".")
        assert finding.why.endswith(".")
        assert "{" not in text and "None" not in text and "unknown" not in text
        assert finding.fixes
        assert all("{" not in fix.code + fix.title for fix in finding.fixes)


def test_masked_branch_names_the_mask_and_its_line():
    finding = explain(CAUSES["a branch that where discards"][0])[0]

    assert finding.message == "gradient of `w` is NaN at 2 of 8 elements"
    assert [(one.role, one.location.line) for one in finding.related] == [("mask", 9)]
    assert "`where` (line 9)" in finding.why
    assert "finite (0.25)" in finding.why
    assert finding.evidence["grad_output"] == 0.0
    assert finding.evidence["slope"] == math.inf
    assert [fix.kind for fix in finding.fixes] == ["masked-branch", "epsilon"]
    assert "torch.where(x > 0, x, 1.0)" in finding.fixes[0].code


def test_a_hidden_pole_is_told_from_the_gradient_that_it_leaks_into():
    finding = explain(CAUSES["a pole that indexing hides"][0])[0]

    assert (finding.op, finding.phase, finding.node) == ("div", Phase.BACKWARD, "DivBackward0")
    assert finding.evidence["operands"] == {"self": 1.0, "other": 0.0}


def test_a_repair_behind_the_op_is_said_to_come_too_late():
    late = explain(CAUSES["a pole that nan_to_num hides"][0])[0]
    clamped = explain(hidden(forward("log", tensor("self", 0.0), gives=-INF), "clamp"))[0]

    assert "`nan_to_num` replaces the value, and not the slope" in late.why
    assert "clamp bounds the value, and not the slope" in clamped.why


def test_the_same_pole_without_a_mask_is_no_masked_branch():
    pole = forward("div", tensor("self", 1.0), tensor("other", 0.0), gives=INF)
    absorbed = root(pole, event("reciprocal", Kind.KILL), symptoms=(NAN_GRAD,))
    finding = explain(absorbed)[0]

    assert finding.name == "zero-division"
    assert finding.phase is Phase.BACKWARD, "the loss is finite, the gradient is not"


def test_a_product_on_the_way_hides_nothing_that_arithmetic_has_absorbed():
    # 1 / (1 + exp(-x)): the inf becomes 0 in the reciprocal, and no mask is near.
    one = hidden(forward("exp", tensor("self", 95.0), gives=INF), "reciprocal")
    revival = replace(one.chain[2], hidden_by=call("mul"))

    assert [f.name for f in explain(root(*one.chain[:2], revival, symptoms=(NAN_GRAD,)))] == [
        "overflow"
    ]


def test_weights_that_are_all_masked_are_no_underflow():
    exp = event("exp", Kind.KILL)
    weights = Ancestor("SumBackward1", call("sum"), (Ancestor("ExpBackward0", exp.call),))
    first = forward("div", tensor("self", 0.0), tensor("other", 0.0), ancestry=(None, weights))
    given_an_inf = Trace("loss.py", steps=(Step(0, 0.25, 0.1, 9),), events=(exp,))

    found = [finding.name for finding in explain(root(first), given_an_inf)]
    assert found == ["all-masked-softmax", "zero-division"]


def test_a_logsumexp_of_meant_infs_is_where_the_trouble_is():
    constant = event("masked_fill", Kind.CONSTANT, id=1)
    finding = explain(root(constant, event("logsumexp", Kind.PROPAGATION)))[0]

    assert (finding.name, finding.op) == ("all-masked-softmax", "logsumexp")


def test_a_softmax_by_hand_is_known_by_what_exp_feeds():
    first = forward("exp", tensor("self", 95.0), gives=INF)
    total = event("sum", Kind.PROPAGATION, id=2, sources=(1,))
    share = event("div", Kind.PROPAGATION, id=3, sources=(1, 2))
    finding = explain(root(first, share), Trace("loss.py", events=(first, total, share)))[0]

    assert finding.fixes[0].kind == "stable-op"
    assert finding.evidence["pattern"] == "softmax"


def test_large_scores_of_attention_acquit_its_mask():
    finding = explain(CAUSES["attention whose scores keep no fraction"][0])[0]

    assert "Nothing is wrong with the mask" in finding.why
    assert "reach 3e+15" in finding.why


def test_bad_data_is_reported_where_it_is_first_computed_with():
    literal = replace(
        event("lift_fresh", Kind.SOURCE, id=1), output=tensor("output", NAN), numel=1, bad=1
    )
    reads = replace(event("addmm", Kind.PROPAGATION, id=3), blame=call("addmm", 9))
    finding = explain(root(literal, event("copy", Kind.PROPAGATION), reads))[0]

    assert (finding.name, finding.op) == ("bad-input", "addmm")
    assert finding.location == place(9)
    assert [one.role for one in finding.related] == ["birth"]


def test_an_epsilon_behind_the_root_is_said_to_come_too_late():
    late = (call("add", 5, constant=1e-8),)
    meant = (call("add", 5, constant=1.0),)
    first = backward("sqrt", tensor("self", 0.0), gives=INF, path=late)

    assert "added after `sqrt` (line 5) comes too late" in explain(root(first))[0].why
    assert "too late" not in explain(root(replace(first, path=meant)))[0].why


@pytest.mark.parametrize(
    ("between", "late"), [([], True), (["mul"], True), (["neg", "mul"], True), (["exp"], False)]
)
def test_an_epsilon_behind_a_division_is_in_the_headline(between, late):
    path = (*(call(op, 4) for op in between), call("add", 5, constant=1e-6))
    zero = tensor("self", 0.0, name="v")

    found = explain(root(forward("rsqrt", zero, gives=INF, path=path)))[0]

    assert found.message.endswith(": 1e-06 is added after the division") is late


@pytest.mark.parametrize(
    ("op", "constant", "dtype", "lost"),
    [
        ("log", 1e-50, "float32", True),
        ("log", 1e-12, "float32", False),
        ("log", 1e-8, "float16", True),
        ("sqrt", 1e-46, "float32", True),
        ("div", 1e-8, "float16", True),
        ("div", 1e-7, "float16", False),
        ("div", 1.0, "float32", False),
    ],
)
def test_an_epsilon_below_the_dtype_is_said_to_be_0(op, constant, dtype, lost):
    above = Ancestor("AddBackward0", call("add", 3, constant=constant))
    role = "other" if op == "div" else "self"
    zero = tensor(role, 0.0, dtype=dtype)
    ancestry = (None, above) if op == "div" else (above,)
    first = (
        backward(op, zero, gives=INF, ancestry=ancestry)
        if op == "sqrt"
        else forward(op, *([tensor("self", 1.0, dtype=dtype)] if op == "div" else []), zero,
                     gives=INF, ancestry=ancestry)
    )  # fmt: skip

    says = f"{constant:g} that it adds is 0 in {dtype}" in explain(root(first))[0].why

    assert says is lost


def test_a_clamp_that_lets_the_edge_through_protects_only_the_value():
    above = Ancestor("ClampBackward1", call("clamp", 3))
    first = backward("acos", tensor("self", 1.0), gives=-INF, ancestry=(above,))
    finding = explain(root(first, symptoms=(NAN_GRAD,)))[0]

    assert "`clamp` (line 3) protects the value and not the slope" in finding.why
    assert [one.location.line for one in finding.related] == [3]
    assert finding.fixes[0].kind == "clamp-domain"


def test_what_the_node_read_is_not_taken_for_an_operand():
    # Inside SqrtBackward0 a division runs, whose own operand `self` is the gradient 0.
    inner = (tensor("self", 0.0), tensor("other", 2.0))
    first = backward("sqrt", tensor("self", 4.0), inputs=inner)

    assert explain(root(first))[0].evidence["operands"] == {"self": 4.0}


def test_the_term_of_the_loss_and_the_sample_are_named():
    path = (call("mean", 6, value=0.2), call("add", 8, value=0.8))
    output = Operand("output", shape=(4, 8), dtype="float32", at=INF)
    first = forward(
        "log", tensor("self", 0.0), output=output, path=path, rows=(3,), row_count=1, bad=4
    )
    numbers = explain(root(first))[0].numbers

    assert "all 4 lie in sample 3" in numbers
    assert any(
        "the term (line 6)" in one and "0.2, in a sum of 0.8 (25 %)" in one for one in numbers
    )


def test_a_loss_that_grew_before_is_said_to_have():
    first = replace(forward("exp", tensor("self", 95.0), gives=INF), step=3)
    losses = (1.0, 40.0, 9e5, INF)
    trace = Trace("loss.py", steps=tuple(Step(i, loss, 0.1, 9) for i, loss in enumerate(losses)))
    finding = explain(root(first), trace)[0]

    assert "the loss grew before: 1, 40, 900000" in finding.numbers
    assert [fix.kind for fix in finding.fixes][-2:] == ["clip-norm", "lower-lr"]


def test_half_precision_is_repaired_by_the_dtype_first():
    finding = explain(CAUSES["a sum in half precision"][0])[0]

    assert "overflows float16 at 2 of 8 elements" in finding.message
    assert finding.fixes[0].kind == "dtype"


def test_rows_of_a_masked_softmax_are_counted():
    output = Operand("output", shape=(4, 6), dtype="float32", at=NAN)
    first = forward(
        "_softmax", tensor("self", -INF), output=output, bad=12, numel=24, scalars=(("dim", -1),)
    )
    finding = explain(root(first))[0]

    assert finding.message == "`softmax` runs over nothing but -inf in 2 of 4 rows"
    assert finding.fixes[0].kind == "guard-empty"


def test_a_rule_that_raises_is_a_note():
    note = RULES["GS901"].report(RULES["GS201"], ValueError("boom"))

    assert (note.rule, note.severity) == ("GS901", Severity.NOTE)
    assert "zero-division (GS201) raised ValueError: boom" in note.message


def test_what_was_not_observed_is_a_note():
    (note,) = diagnose(Trace("loss.py", notes=("saved tensors lie behind hooks.",)))

    assert (note.rule, note.severity) == ("GS902", Severity.NOTE)
    assert note.message == "saved tensors lie behind hooks"


def test_a_healthy_run_has_no_finding():
    assert diagnose(Trace("loss.py", steps=(Step(0, 0.25, 0.1, 9),))) == ()


def test_a_place_in_another_file_is_named_with_it():
    here = Location("losses.py", 4, 0, 4, 5, "f")
    near = Call(op="div", location=here)

    assert phrases.line(near, near) == " (line 4)"
    made = Call(op="relu", location=replace(here, file="model.py", line=8))
    assert phrases.line(made, near) == " (model.py:8)"
    assert phrases.line(Call(op="relu"), near) == ""


@pytest.mark.parametrize("first", [Kind.CONSTANT, Kind.BIRTH])
def test_a_meant_inf_is_known_through_any_number_of_copies(first):
    """Of a long recurrence, each step with two ways back: no recursion, and no way taken twice."""
    copies = (
        event("add", Kind.PROPAGATION, id=id, sources=(id - 1, max(id - 2, 0)))
        for id in range(1, 3000)
    )
    events = (event("masked_fill", first, id=0), *copies)
    revival = event("mul", Kind.REVIVAL, Phase.BACKWARD, id=3000, sources=(2999,))
    trace = Trace("loss.py", (*events, revival), (replace(NAN_GRAD, event=3000),))

    (found,) = find_roots(trace)

    assert found.event.id == (3000 if first is Kind.CONSTANT else 0)
