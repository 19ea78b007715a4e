"""The recorder on small programs: what it sees, what it leaves alone."""

import gc
import math
import random
from collections.abc import Callable

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from gradscope.diagnose import find_roots
from gradscope.facts import Ending, Event, Kind, Phase, Root, Trace
from gradscope.record import Observation, StopTrace
from gradscope.record.events.provenance import Provenance
from gradscope.record.schema import plain_name, read_schema


def record(program: Callable[[], object], **options: object) -> Trace:
    gc.collect()  # an optimizer, or a scaler, of another test might take the last gradients
    recorder = Observation(**{"keep_going": False, **options})
    ending = Ending("finished")
    try:
        with recorder:
            program()
    except StopTrace:
        ending = Ending("stopped")
    except Exception as error:
        ending = Ending("raised", str(error))
    return recorder.trace("test", ending)


def only_root(program: Callable[[], object]) -> Root:
    roots = find_roots(record(program))
    assert len(roots) == 1
    return roots[0]


def text_of(event: Event) -> str:
    """The source text under the blamed call's span."""
    location = event.blame.location
    with open(location.file) as file:
        line = file.read().splitlines()[location.line - 1]
    return line[location.col : location.end_col]


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values, requires_grad=True)


class TestForwardBirth:
    def test_names_the_expression_and_its_operands(self):
        def program():
            x, y = leaf(1.0, 2.0), torch.tensor([0.5, 0.0])
            (x + x / y).sum().backward()

        root = only_root(program)

        assert root.event.kind is Kind.BIRTH
        assert root.event.phase is Phase.FORWARD
        assert text_of(root.event) == "x / y"
        assert root.event.values() == {"self": 2.0, "other": 0.0}
        assert root.event.index == (1,)
        assert (root.event.bad, root.event.numel) == (1, 2)
        assert [operand.name for operand in root.event.inputs] == ["x", "y"]

    def test_an_operand_that_was_overwritten_is_told_as_it_was(self):
        def program():
            y = leaf(-1.0, 4.0) * 1
            y.sqrt_()
            y.sum().backward()

        event = only_root(program).event

        assert event.op == "sqrt"
        assert event.values()["self"] == -1.0

    def test_the_module_path_names_the_layer(self):
        class Block(torch.nn.Module):
            def forward(self, x):
                return x.log()

        model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Sequential(Block()))

        event = only_root(lambda: model(leaf(0.0, 1.0)).sum().backward()).event

        assert event.blame.location.module == "1.0"

    def test_rows_tell_which_samples_are_bad(self):
        def program():
            x = torch.ones(4, 3)
            x[2] = 0
            (1 / x.requires_grad_()).sum().backward()

        event = only_root(program).event

        assert (event.rows, event.row_count) == ((2,), 1)


class TestBackwardBirth:
    def test_is_blamed_on_the_forward_call_with_its_gradient(self):
        def program():
            x = leaf(0.0, 4.0)
            torch.where(x > 0, x.sqrt(), x).sum().backward()

        event = only_root(program).event

        assert (event.phase, event.node, event.op) == (Phase.BACKWARD, "SqrtBackward0", "sqrt")
        assert text_of(event) == "x.sqrt()"
        assert event.grad_output == 0.0
        assert event.hidden_by.op == "where"
        assert event.values()["self"] == 0.0

    def test_is_seen_through_a_function_transform(self):
        def distance(centre):
            return (torch.zeros(2) - centre).pow(2).sum().sqrt()

        event = only_root(lambda: torch.func.grad(distance)(torch.zeros(2))).event

        assert text_of(event) == "(torch.zeros(2) - centre).pow(2).sum().sqrt()"
        assert event.grad_output == 1.0

    def test_a_formula_that_is_differentiated_again_is_the_same_cause(self):
        def program():
            x = leaf(0.0, 4.0)
            root = x.sqrt()
            (slope,) = torch.autograd.grad(root.sum(), x, create_graph=True)
            (slope.nan_to_num(posinf=0.0).square().sum() + root.sum()).backward()

        assert only_root(program).event.blame.formula_of.op == "sqrt"

    def test_a_line_that_several_layers_run_is_told_once(self):
        class Root(torch.nn.Module):
            def forward(self, x):
                return x.sqrt()

        model = torch.nn.ModuleList([Root(), Root()])

        def program():
            sum(layer(leaf(-1.0)) for layer in model).sum().backward()

        assert only_root(program).also == ()

    def test_a_line_that_a_checkpoint_runs_again_is_no_formula(self):
        def program():
            block = lambda t: (t * 2).sqrt() * 3  # noqa: E731
            checkpoint(block, leaf(0.0), use_reentrant=True).sum().backward()

        assert only_root(program).event.blame.formula_of is None

    def test_a_gradient_that_arrives_is_not_zero(self):
        event = only_root(lambda: (leaf(0.0, 4.0).sqrt() * 3).sum().backward()).event

        assert event.grad_output == 3.0
        assert event.hidden_by is None

    @pytest.mark.parametrize("first", [True, False])
    def test_nan_from_summed_branches_goes_back_to_the_branches(self, first):
        def program():
            x = leaf(0.0)
            a = x * 1.0 if first else x
            (a.sqrt() - 2 * a.sqrt()).sum().backward()

        roots = find_roots(record(program))

        assert {root.event.op for root in roots} == {"sqrt"}

    def test_double_backward_blames_the_op_on_the_first_gradient(self):
        def program():
            x = leaf(0.0, 0.0)
            (gradient,) = torch.autograd.grad((x**2).sum(), x, create_graph=True)
            gradient.pow(2).sum().sqrt().backward()

        event = only_root(program).event

        assert (event.op, event.node) == ("sqrt", "SqrtBackward0")

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_inside_a_checkpoint(self, reentrant):
        def program():
            checkpoint(
                lambda t: (t * 2).sqrt() * 3, leaf(0.0), use_reentrant=reentrant
            ).sum().backward()

        event = only_root(program).event

        assert text_of(event) == "(t * 2).sqrt()"
        assert event.grad_output == 3.0
        assert event.values()["self"] == 0.0

    def test_in_a_custom_backward_is_blamed_on_its_own_line(self):
        class Bad(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.abs()

            @staticmethod
            def backward(ctx, grad_output):
                (x,) = ctx.saved_tensors
                return grad_output * (x / x.abs())

        event = only_root(lambda: Bad.apply(leaf(0.0, 1.0)).sum().backward()).event

        assert text_of(event) == "x / x.abs()"
        assert event.node == "BadBackward"


class TestHiddenValues:
    def test_a_write_in_place_is_the_mask_though_what_it_wrote_sent_the_zero(self):
        def program():
            x = torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True)
            share = x / x.sum(1, keepdim=True)
            share[share.isnan()] = 0.0
            share.sum(1).square().sum().backward()

        assert only_root(program).event.hidden_by.op == "index_put"

    def test_a_weight_of_zero_is_found_behind_a_stack(self):
        def program():
            lengths = torch.stack([one.square().sum().sqrt() for one in (leaf(0.0), leaf(2.0))])
            (torch.tensor([0.0, 1.0]) * (lengths - 1.0).square()).sum().backward()

        assert only_root(program).event.hidden_by.op == "mul"

    @pytest.mark.parametrize(
        ("hide", "op"),
        [
            (lambda y: y[:, 1:].fill_(0.0), "fill"),
            (lambda y: y.select_scatter(torch.zeros(1), 1, 1), "select_scatter"),
            (lambda y: pack_padded_sequence(y, [1], True).data, "_pack_padded_sequence"),
        ],
    )
    def test_ways_to_leave_elements_out(self, hide, op):
        def program():
            x = torch.zeros(1, 1, requires_grad=True)
            y = (x + torch.tensor([[1.0, 0.0]])).sqrt().clone()
            kept = hide(y)
            (kept.sum() + (y.sum() if op == "fill" else 0.0)).backward()

        assert only_root(program).event.hidden_by.op == op

    def test_a_shape_is_not_a_value(self):
        def program():
            x = leaf(0.0, 1.0)
            torch.where(x > 0, 1 / x, torch.zeros_like(1 / x)).sum().backward()

        assert [e.call.op for e in record(program).events if e.kind is Kind.KILL] == ["where"]

    def test_a_masked_inf_that_returns_leads_to_its_birth(self):
        def program():
            x = leaf(100.0, 1.0)
            torch.where(x > 50, x, torch.log1p(torch.exp(x))).sum().backward()

        root = only_root(program)

        assert root.event.op == "exp"
        assert root.event.phase is Phase.FORWARD
        kinds = [event.kind for event in root.chain]
        assert kinds.index(Kind.BIRTH) < kinds.index(Kind.KILL) < kinds.index(Kind.REVIVAL)

    def test_births_that_reach_no_symptom_are_none(self):
        def program():
            x = leaf(1.0, 2.0)
            best = torch.full((2,), math.inf)
            best = torch.minimum(best, x.detach())
            torch.log(torch.zeros(2))
            scores = x.masked_fill(torch.tensor([True, False]), -math.inf)
            (scores.softmax(0) * best).sum().backward()

        trace = record(program)

        assert trace.symptoms == ()
        assert find_roots(trace) == ()

    def test_a_meant_inf_is_to_blame_only_where_it_turns_into_nan(self):
        def program():
            logp = leaf(1.0, 2.0).masked_fill(torch.tensor([True, False]), -math.inf).log_softmax(0)
            (logp.exp() * logp).sum().backward()

        event = only_root(program).event

        assert text_of(event) == "logp.exp() * logp"
        assert event.values() == {"self": 0.0, "other": -math.inf}


class TestOrigins:
    def test_nan_in_the_batch(self):
        def program():
            batch = torch.ones(4, 3)
            batch[2, 1] = math.nan
            torch.nn.Linear(3, 2)(batch).sum().backward()

        event = only_root(program).event

        assert event.kind is Kind.SOURCE
        assert text_of(event).startswith("batch[2, 1]")

    def test_nan_in_one_parameter(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))

        def program():
            with torch.no_grad():
                model[1].weight[1, 1] = math.nan
            model(torch.ones(1, 3)).sum().backward()

        event = only_root(program).event

        assert event.kind is Kind.SOURCE
        assert (event.operands[0].held_as, event.operands[0].name) == (
            "parameter",
            "model.1.weight",
        )

    def test_a_loaded_parameter_is_found_where_it_is_used(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
        state = {name: value.clone() for name, value in model.state_dict().items()}
        state["1.weight"][0, 0] = math.nan

        def program():
            model.load_state_dict(state)
            model(torch.ones(1, 3)).sum().backward()

        event = only_root(program).event

        assert (event.kind, event.op) == (Kind.SOURCE, "addmm")
        assert event.blame.location.module == "1"

    def test_memory_that_nothing_wrote(self):
        def program():
            y = torch.empty(5)
            y[:3] = 1.0
            (leaf(1.0, 1.0, 1.0, 1.0, 1.0) * y).sum().backward()

        event = only_root(program).event

        assert event.kind is Kind.UNINITIALIZED
        assert text_of(event) == "torch.empty(5)"

    def test_memory_that_was_filled_is_fine(self):
        def program():
            y = torch.empty(5)
            y.normal_()
            z = torch.empty(2)
            z[0], z[1] = 1.0, 2.0
            (leaf(1.0) * y.sum() * z.sum()).sum().backward()

        assert record(program).symptoms == ()


class TestSteps:
    @staticmethod
    def training(breaks_at: int, steps: int, seen: list[int]) -> Callable[[], None]:
        def program():
            w = torch.nn.Parameter(torch.ones(1))
            optimizer = torch.optim.SGD([w], lr=0.0)
            for step in range(steps):
                seen.append(step)
                optimizer.zero_grad()
                torch.log(w * (breaks_at - step)).sum().backward()
                optimizer.step()

        return program

    def test_a_late_failure_is_reported_at_its_step_and_ends_the_program(self):
        seen: list[int] = []

        trace = record(self.training(17, 30, seen))

        assert {symptom.step for symptom in trace.symptoms} == {17}
        assert seen[-1] == 17
        assert [step.index for step in trace.steps] == list(range(18))
        assert trace.steps[0].loss == pytest.approx(math.log(17))

    def test_steps_limit_ends_a_healthy_program(self):
        seen: list[int] = []

        trace = record(self.training(99, 30, seen), steps=5)

        assert trace.ending.kind == "stopped"
        assert len(trace.steps) == 5
        assert trace.symptoms == ()

    def test_keep_going_goes_on(self):
        seen: list[int] = []

        record(self.training(3, 6, seen), keep_going=True)

        assert seen == list(range(6))

    def test_a_program_that_catches_everything_is_stopped_at_every_op(self):
        swallowed = []

        def program():
            for _ in range(3):
                try:
                    leaf(0.0).sqrt().sum().backward()
                except:  # noqa: E722
                    swallowed.append(True)

        stops = []
        trace = record(program, on_stop=lambda ending: stops.append(True))

        assert len(trace.symptoms) == 1
        assert len(swallowed) == 3
        assert len(stops) == 1

    def test_nan_made_by_the_optimizer_is_found_there(self):
        def program():
            w = torch.nn.Parameter(torch.tensor([0.0, 2.0], dtype=torch.float16))
            optimizer = torch.optim.Adam([w], lr=0.1, foreach=True)
            (w[0] * 0 + w[1]).backward()
            optimizer.step()

        root = only_root(program)

        assert root.event.phase is Phase.OPTIMIZER
        assert root.event.op in ("addcdiv", "div")
        assert root.symptoms[0].kind.endswith("-param")

    def test_gradients_that_a_scaler_throws_away_are_no_symptom(self):
        scales = []

        def program():
            w = torch.nn.Parameter(torch.full((2,), 300.0))
            optimizer = torch.optim.SGD([w], lr=0.0)
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
            for _ in range(6):
                optimizer.zero_grad()
                scaler.scale((w.half() * 100).sum().float()).backward()
                scaler.step(optimizer)
                scaler.update()
                scales.append(scaler.get_scale())

        assert record(program).symptoms == ()
        assert scales[0] < 2.0**10  # the first gradients were inf

    def test_skipped_steps_are_no_symptom(self):
        def program():
            w = torch.nn.Parameter(torch.ones(2))
            optimizer = torch.optim.SGD([w], lr=0.1)
            for scale in (3e38, 1.0, 1.0):
                optimizer.zero_grad()
                (w * 10).pow(2).sum().backward(torch.tensor(scale))
                if torch.isfinite(w.grad).all():
                    optimizer.step()

        assert record(program).symptoms == ()

    def test_a_bad_gradient_waits_for_the_optimizer_that_takes_it(self):
        def program():
            d, g = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.ones(1))
            first, second = torch.optim.SGD([d], lr=0.1), torch.optim.SGD([g], lr=0.1)
            d.sqrt().sum().backward()
            g.sqrt().sum().backward()
            second.step()
            first.step()

        trace = record(program)

        assert [(s.kind, s.tensor, s.step) for s in trace.symptoms] == [("inf-grad", "d", 0)]
        assert trace.ending.kind == "stopped"

    def test_a_bad_gradient_at_the_very_end_is_a_symptom(self):
        def program():
            w = torch.nn.Parameter(torch.ones(1))
            optimizer = torch.optim.SGD([w], lr=1.0)
            for shift in (1.0, 1.0, 0.0):
                optimizer.zero_grad()
                (w * shift).sqrt().sum().backward()
                if not torch.isfinite(w.grad).all():
                    break
                optimizer.step()

        assert [symptom.step for symptom in record(program).symptoms] == [2]

    def test_a_program_that_gives_up_on_its_loss_is_explained(self):
        def program():
            loss = (leaf(0.0) / 0).sum()
            if torch.isnan(loss):
                raise ValueError("loss is NaN")

        trace = record(program)

        assert trace.ending.kind == "raised"
        assert [symptom.kind for symptom in trace.symptoms] == ["nan-loss"]
        assert find_roots(trace)[0].event.op == "div"


class TestTransparency:
    @staticmethod
    def train() -> tuple[list[float], list[torch.Tensor]]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.Dropout(0.3), torch.nn.GELU(), torch.nn.Linear(8, 3)
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(torch.randn(5, 6)), torch.arange(5) % 3)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.detach().clone() for p in model.parameters()]

    def test_losses_parameters_and_generators_are_bit_identical(self):
        bare, bare_parameters = self.train()
        bare_state, bare_random = torch.get_rng_state(), random.getstate()
        with Observation(keep_going=False):
            seen, seen_parameters = self.train()

        assert seen == bare
        assert all(torch.equal(a, b) for a, b in zip(seen_parameters, bare_parameters, strict=True))
        assert torch.equal(torch.get_rng_state(), bare_state)
        assert random.getstate() == bare_random

    @pytest.mark.parametrize("broken", [True, False])
    def test_nothing_stays_patched(self, broken):
        before = self.patched()
        record(lambda: (leaf(0.0) / 0).sum().backward() if broken else leaf(1.0).sum().backward())

        assert self.patched() == before

    @staticmethod
    def patched() -> tuple[object, ...]:
        return (
            torch.nn.Module.__call__,
            vars(torch.autograd.Function)["apply"],
            torch.autograd._engine_run_backward,
            torch.autograd.graph._engine_run_backward,
            torch.autograd.graph.saved_tensors_hooks.__init__,
            torch.compile,
        )

    def test_memory_is_flat_over_many_steps(self):
        recorder = Observation(keep_going=False)
        w = torch.nn.Parameter(torch.ones(3))
        mask = torch.tensor([True, False, False])

        def step():
            w.grad = None
            w.masked_fill(mask, -math.inf).softmax(0).square().sum().backward()

        with recorder:
            for _ in range(20):
                step()
            early = self.held(recorder)
            for _ in range(300):
                step()

        assert self.held(recorder) == early

    @staticmethod
    def held(recorder: Observation) -> tuple[int, int, int]:
        calls = sum(len(calls) for calls in recorder.context.journal.generations)
        recorder.context.provenance.forget_dead()
        return len(recorder.context.journal.events), calls, len(list(recorder.context.provenance))

    def test_a_nan_is_told_though_there_is_no_room_for_all_that_came_of_it(self, monkeypatch):
        def program():
            x = leaf(0.0, 1.0).log()
            for _ in range(50):
                x = x + 1.0
            x.sum().backward()

        monkeypatch.setattr("gradscope.record.journal._MOST_EVENTS", 20)

        assert only_root(program).event.op == "log"

    def test_a_zero_tensor_is_not_read(self):
        x = leaf(1.0, -2.0)

        with Observation(keep_going=False):
            x.sgn().sum().backward()

        assert torch.equal(x.grad, torch.zeros(2))

    def test_faults_of_ours_do_not_become_the_program_s(self, monkeypatch):
        def fail(*args: object) -> None:
            raise RuntimeError("ours")

        monkeypatch.setattr("gradscope.record.events.examine.Examiner._examine", fail)
        trace = record(lambda: (leaf(0.0) / 0).sum().backward())

        assert any("ours" in note for note in trace.notes)


class TestSchema:
    @pytest.mark.parametrize(
        ("op", "plain"),
        [
            ("_foreach_addcdiv_", "addcdiv"),
            ("sqrt_", "sqrt"),
            ("_softmax", "_softmax"),
            ("__and__", "__and__"),
        ],
    )
    def test_plain_name(self, op, plain):
        assert plain_name(op) == plain

    def test_written_arguments(self):
        assert read_schema(torch.ops.aten.add_.Tensor).written == (0,)
        assert read_schema(torch.ops.aten.add.out).written == ("out",)
        assert read_schema(torch.ops.aten._foreach_add_.Scalar).written == (0,)
        assert read_schema(torch.ops.aten.native_batch_norm.default).written == ()

    def test_views_are_skipped(self):
        assert read_schema(torch.ops.aten.view.default).skip
        assert not read_schema(torch.ops.aten.add.Tensor).skip
        assert not read_schema(torch.ops.aten.add_.Tensor).skip


class TestProvenance:
    def test_an_address_that_is_reused_is_another_memory(self):
        provenance = Provenance()
        first = torch.ones(1000)
        provenance.mark(first, 7, intended=False)
        key = first.untyped_storage()._cdata
        del first

        for _ in range(50):
            again = torch.ones(1000)
            assert again.untyped_storage()._cdata != key
            assert provenance.of(again) is None
