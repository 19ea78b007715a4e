"""A backward that raises: where, and the changes of its source with which it comes to its end."""

import inspect
from contextlib import suppress
from typing import Any

from gradscope.facts import Location, Slip
from gradscope.record.probes.blame import Watcher
from gradscope.record.probes.calls import NoVerdict, TooFew
from gradscope.record.probes.derivative import Sample, Truth
from gradscope.record.probes.slips import slips
from gradscope.record.sites import resolve
from gradscope.record.stand_ins import links


class Raises(Exception):
    """A backward has raised, and not what tells of its calls."""

    def __init__(self, sample: Sample, fault: Exception) -> None:
        super().__init__(str(fault))
        self.sample, self.fault = sample, fault

    @property
    def location(self) -> Location | None:
        """Where, in its own text."""
        code = getattr(inspect.unwrap(self.sample.calls.formula), "__code__", None)
        own = [one for one in links(self.fault.__traceback__) if one.tb_frame.f_code is code]
        return resolve(own[-1].tb_frame.f_code, own[-1].tb_lasti) if own else None

    def slips(self, truth: Truth) -> tuple[Slip, ...]:
        """What to write for all of its gradients to be right."""
        sample, watcher = self.sample, Watcher(self.sample.calls.formula)
        with suppress(Exception), watcher:
            sample.calls.backward(sample.base, sample.cotangents[0])
        nothing = [...] * len(sample.point)  # which fits no input
        return slips(sample, 0, truth, nothing, watcher.names)


def first_backward(sample: Sample) -> list[Any]:
    try:
        return sample.calls.backward(sample.base, sample.cotangents[0])
    except (TooFew, NoVerdict):
        raise
    except Exception as fault:
        raise Raises(sample, fault) from fault
