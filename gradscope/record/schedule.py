"""Which steps, passes or updates are looked at: the first ones, and ever fewer after them."""


def is_chosen(number: int) -> bool:
    """0, 1, 2, 4, 8, ..."""
    return not number & (number - 1)


def next_chosen(number: int) -> int:
    """The first one after it."""
    return 1 << number.bit_length()


def before_chosen(number: int) -> int:
    """How many come between it and that one."""
    return next_chosen(number) - number - 1
