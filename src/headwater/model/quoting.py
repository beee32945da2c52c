"""Quotes foreign text in messages, at a length that a person reads.

A column name, a value, a topic or a line may have any length, and an error is logged, stored and sent to whoever asks:
so only our own texts are quoted whole.
"""

from collections.abc import Iterable
from typing import Final

QUOTED_CHARS_MAX: Final = 60  # of one thing: enough to recognise it
LISTED_MAX: Final = 20  # of several: a wide table is recognised by its first columns
CAUSE_CHARS_MAX: Final = 300  # of what a library says, which may quote a value whole
MESSAGE_CHARS_MAX: Final = 4_000  # of a whole message: a page of a terminal

_LEFT_OUT: Final = "..."


def quoted(value: object) -> str:
    """Return a value as Python would write it, shortened."""
    if isinstance(value, str | bytes):
        value = value[: QUOTED_CHARS_MAX + 1]  # the rest is not shown, and need not be written out
    return brief(repr(value))


def listed(names: Iterable[object]) -> str:
    """Return names separated by commas, each shortened, and how many more there are."""
    every = list(names)
    told = ", ".join(brief(name) for name in every[:LISTED_MAX])
    return told if len(every) <= LISTED_MAX else f"{told} and {len(every) - LISTED_MAX} more"


def brief(value: object, chars_max: int = QUOTED_CHARS_MAX) -> str:
    """Return a text, or the text of a value, cut to so many characters."""
    text = str(value)
    return text if len(text) <= chars_max else text[:chars_max] + _LEFT_OUT


def cause(failure: BaseException) -> str:
    """Return a library's error message, shortened."""
    return brief(failure, CAUSE_CHARS_MAX)


def abridged(message: str) -> str:
    """Shorten a message in the middle: it begins with what happened and ends with what to do."""
    if len(message) <= MESSAGE_CHARS_MAX:
        return message
    end = MESSAGE_CHARS_MAX // 4
    return message[: MESSAGE_CHARS_MAX - end - len(_LEFT_OUT) - 2] + f" {_LEFT_OUT} " + message[-end:]


def plural(number: int, thing: str) -> str:
    """Return `1 row`, `2 rows`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
