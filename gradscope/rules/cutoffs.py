"""From where on the rules judge, and why there: what nobody can configure. What one can is in
`facts.Limits`."""

# A gradient over depth and time (GS401, GS402).
# Fewer repeats than this, or one repeat that makes half of the change, is an op and no growth.
FEWEST_REPEATS = 5
STEEP = 4.0  # times, by each repeat both ways: so fewer of them tell
STEADY_SHARE = 0.5
LARGEST_SHARE = 0.5  # of the growth that one repeat may make: more is an op, and no growth
SHARE_OF_NORM = 1e-4  # an element of what the repeats have made, of a norm over many
SHRINKS = 0.8  # of an activation's norm, per layer
CLIPPED = 0.99  # a total norm that an optimizer saw this much smaller was clipped, or unscaled

# Values at the first step (GS401), beside their targets, and beside the data that they are made of.
# Layers in their usual sizes leave data as large as it is, or make it smaller.
OVERSIZED = 100.0
WIDE = 10.0  # of logits, beside the loss of a guess
FEWEST_PRODUCTS = 3  # that have made them so
GROWS = 1.2  # times, by each of these
DOUBLES = 2.0  # on the whole: it is the weights, and less are parts that are added up
SETTLES = 10  # steps within which a loss that comes down to its usual size does so by itself
USUAL = 2.0  # times the loss of a guess, there
LEFT = 10.0  # and from here on it has not come down

# One that fades over a run (GS402).
EARLY = 5  # updates that tell what was usual
LAST = 3  # measured updates in a row: batches differ
# Of what was usual. Of a problem that is solved the gradient fades further, but its loss falls; the
# steps of a rate that decays are shorter, and its gradients are not.
FADED = 1e-2
GONE = 1e-3  # of what was usual: from here on it is an error
EXPLAINED = 0.5  # of the fade, in powers, that the slope of one op has to explain

# One that is lost at the bounds of an activation from the first step on (GS402).
LEARNT = 1e-2  # of the loss at first: what is left is no harm
FAR = 10.0  # of the product: what is added to it has not brought it there
LARGE_GAIN = 4.0  # of weights: the usual initialisations have 0.6 to 1.7

# A gradient that is missing (GS403).
FEWEST_CLEARED = 3  # updates in a row without a gradient; a single one may skip its step so
LASTING = 3  # passes in a row without a gradient; batches differ, and one may be flat by chance

# Losses that grow (GS404).
# One leap has to be by so many times more than rises in a row: noise between batches leaps too.
LEAP = 100.0
# In a run that stays finite the evidence has to be stronger: a loss may rise for a good reason.
FINITE_RISES = 5
FINITE_GROWTH = 10.0
# If training is the reason, the weights have changed by that much, all together; where they have
# grown tenfold, a tenth of the usual growth of the loss is proof enough.
MOVED = 1.1
GROWN = 10.0
LARGEST_STEP = 0.01  # of the weights that a step may move them by; recipes have less than that
SHORTEST_STEP = 1e-3  # of the given one: what needs a shorter one has left its quadratic behind
FEWEST_STALE = 5  # updates in a row whose gradients had piled up; fewer may be meant
FEWEST_TERMS = 4  # backward passes an update: a loss of two or three terms is no mean

# One op that multiplies a gradient (GS406).
# From here on: a root kept at 1e-12 has slope 5e5; what batches, units and depth do to one op
# stays below a thousand, and an order of magnitude is left between.
HUGE = 1e4
# The same where rounding alone could put the operand on the singular point: the slope of acos at
# the last float32 below 1 is 2,900.
HUGE_IN_REACH = 500.0
# The same of a divisor that has crossed 0, where the loss has leapt by LEAP as well.
HUGE_AT_POLE = 1e3
ROOM = 10.0  # times the distance of the steep elements from the singular point
LEFT_ALONE = 1e-2  # of the distance of the others: there a pole is kept off no further

# Updates that are lost (GS407), and sums in place of means (GS409).
FEWEST = 4  # passes, or updates, of which the same is to be said
FEWEST_UPDATES = 2  # of the same number of passes
REGULAR = 0.8  # of them all: a batch that is skipped for its NaN comes now and then
MOSTLY = 0.5  # of the elements that a step is to move
# What a bound leaves of the gradient, and how far of a weight such a step goes: a hundredth of the
# 1e-3 that is the rule of thumb, and a tenth where no sum in place of a mean explains the bound.
OVERCLIPPED = ((1e-3, 1e-5), (1e-6, 1e-4))
FALLEN = 0.95  # of the loss at first, which noise of a batch does not make of a mean of many
FEW_MOVES = 1 / 16  # of all that a schedule makes: of epochs that do not end with an update
IDLE = 0.1  # of all updates: a schedule may end at 0, and a few steps before its last
WHOLE_RATE = 0.5  # a learning rate from here on may be one that a factor is of the size of
STILL_RISING = 1.5  # times: a warm-up that is not over
BACKED_OFF = 17  # steps in a row that a scaler skips on its way from 65,536 down to 1
ACCUMULATES = 2  # passes an update, at least
