"""Quoting in messages what others have written, at a length that a person reads.

A column name, a value, a topic or a line may have any length, and an error is logged, kept and sent to whoever asks: so
nothing is quoted whole that was not written by us.
"""

from collections.abc import Iterable
from typing import Final

QUOTED_CHARS_MAX: Final = 60  # of one thing: enough to recognise it
LISTED_MAX: Final = 20  # of several: a table with more columns is known by its first ones
CAUSE_CHARS_MAX: Final = 300  # of what a library says, which may quote a value whole
MESSAGE_CHARS_MAX: Final = 4_000  # of a whole message: a page of a terminal

_LEFT_OUT: Final = "..."


def quoted(value: object) -> str:
    """Return a value as Python would write it, shortened."""
    if isinstance(value, str | bytes):
        value = value[: QUOTED_CHARS_MAX + 1]  # the rest is not shown, and need not be written out
    return brief(repr(value))


def listed(names: Iterable[object]) -> str:
    """Return names behind one another, each shortened, and how many more there are."""
    every = list(names)
    told = ", ".join(brief(name) for name in every[:LISTED_MAX])
    return told if len(every) <= LISTED_MAX else f"{told} and {len(every) - LISTED_MAX} more"


def brief(value: object, chars_max: int = QUOTED_CHARS_MAX) -> str:
    """Return a text, or what else is to be told without quotes, up to so many characters."""
    text = str(value)
    return text if len(text) <= chars_max else text[:chars_max] + _LEFT_OUT


def cause(failure: BaseException) -> str:
    """Return what a library says of why it failed."""
    return brief(failure, CAUSE_CHARS_MAX)


def abridged(message: str) -> str:
    """Return a message without its middle if it is too long: it begins with what happened and ends with what to do."""
    if len(message) <= MESSAGE_CHARS_MAX:
        return message
    end = MESSAGE_CHARS_MAX // 4
    return message[: MESSAGE_CHARS_MAX - end - len(_LEFT_OUT) - 2] + f" {_LEFT_OUT} " + message[-end:]


def plural(number: int, thing: str) -> str:
    """Return `1 row`, `2 rows`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
