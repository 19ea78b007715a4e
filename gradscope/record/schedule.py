"""Which steps, passes or updates are looked at: the first ones, and ever fewer after them."""


def is_chosen(number: int) -> bool:
    """0, 1, 2, 4, 8, ..."""
    return not number & (number - 1)


def before_chosen(number: int) -> int:
    """How many come between it and the first such one after it."""
    return (1 << number.bit_length()) - number - 1


def between_looks(step: int) -> int:
    """The steps from one look at the parameters to the next: what is NaN there stays so, and a
    look that comes later by a 64th of the run is early enough."""
    return min(max(16, step // 64), 256)
