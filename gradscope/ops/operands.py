"""The values of an event's operands, as the edges of the table ask for them."""

from gradscope.facts import Event, Operand, Phase
from gradscope.ops.dtypes import finfo


def operands(event: Event) -> dict[str, float]:
    """What `Edge.holds` may ask for: the operands of the blamed call at the event's index.

    `self` is the value of that argument there. `self.min`, `self.max` (over the finite elements),
    `self.numel`, `self.nan`, `self.posinf`, `self.neginf`, `self.zeros` describe all of it, and
    `self.requires_grad` is 1 or 0: an op that mixes elements (a norm, a matmul, a softmax) has no
    single operand to one element of its result. `output` and `output.numel` are the result of a
    forward event, `grad_input` what a backward event wrote, `grad_output` the gradient that came
    into its node. `dtype.max`, `dtype.tiny`, `dtype.eps` are those of what was written.
    """
    found = event.values()
    backward = event.phase is Phase.BACKWARD
    described = event.saved if backward else (*event.inputs, *event.saved)
    for operand in described:
        found |= _described(operand.role, operand)
    if event.output is not None:
        role = "grad_input" if backward else "output"
        found |= _described(role, event.output)
    if event.grad_output is not None:
        found["grad_output"] = event.grad_output
    return found | _finfo(event)


def _described(role: str, operand: Operand) -> dict[str, float]:
    found = {
        f"{role}.numel": float(operand.numel),
        f"{role}.nan": float(operand.nan),
        f"{role}.posinf": float(operand.posinf),
        f"{role}.neginf": float(operand.neginf),
        f"{role}.zeros": float(operand.zeros),
        f"{role}.requires_grad": float(operand.requires_grad),
    }
    if operand.min is not None and operand.max is not None:
        found |= {f"{role}.min": operand.min, f"{role}.max": operand.max}
    if operand.at is not None:
        found[role] = operand.at
    return found


def _finfo(event: Event) -> dict[str, float]:
    dtypes = [operand.dtype for operand in (event.output, *event.saved, *event.inputs) if operand]
    found = finfo(next((dtype for dtype in dtypes if dtype), "float32"))
    return {"dtype.max": found.max, "dtype.tiny": found.tiny, "dtype.eps": found.eps}
