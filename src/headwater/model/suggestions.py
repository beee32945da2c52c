"""What somebody may have meant by a name that is not there."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_ALIKE: Final = 0.6  # of 1: `itn` is found for `int`, and `id` is not found for `is`


def meant_by(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like this one, whatever its case and underscores; None if none is."""
    plain = {_plain(one): one for one in known}
    found = get_close_matches(_plain(name), plain, n=1, cutoff=_ALIKE)
    return plain[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that refuses a name: what was perhaps meant, or nothing."""
    meant = meant_by(name, known)
    return "" if meant is None else f"; did you mean {meant!r}?"


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
