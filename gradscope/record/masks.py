"""Which call threw a value away, among the calls between an op and the loss."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.facts import Call

# Give a gradient of exactly 0 to every element that they did not choose.
_CHOOSE = frozenset(
    "where masked_fill masked_select masked_scatter index index_put clamp clamp_min clamp_max minimum maximum "
    "fmin fmax max min amax amin nan_to_num relu threshold hardtanh triu tril gather take topk sort median "
    "nanmedian kthvalue nanmean nansum cummax cummin index_fill scatter max_pool2d_with_indices leaky_relu "
    "nll_loss_forward nll_loss nll_loss2d_forward nll_loss_nd smooth_l1_loss".split()
)
# Discard only when a factor is 0 or the part was left out; told apart from harmless uses only by
# values, so they count where nothing else on the way explains the zero.
_MAY_DROP = frozenset(
    "mul slice select narrow split split_with_sizes unbind chunk index_select diagonal native_dropout "
    "bmm mm dot matmul addmm sub div sum prod copy unsafe_split embedding".split()
)


def discarding_call(path: Sequence[Call]) -> Call | None:
    """The nearest call on the way to the loss that sends a gradient of exactly 0 back."""
    for kinds in (_CHOOSE, _MAY_DROP):
        for call in path:
            if call.op in kinds:
                return call
    return None
