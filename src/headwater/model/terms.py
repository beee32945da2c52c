"""Terms, versions and lots: in which order stewards have an app, and what one of them has changed.

Whoever hears of a term or a version may have to go beyond it, and tell that to others. Counting up, nobody comes near
half of the highest that can be told; only somebody in wrong hands names one above it. Nobody goes on from there, so
there is always one that comes after what we have: else we could neither change an entry nor tell others of it.
"""

from random import Random
from typing import Annotated, Final

from msgspec import Meta

DRAWN_BITS: Final = 32  # of a term: two that are drawn at the same time differ
TERM_MAX: Final = (1 << 63) - 1
VERSION_MAX: Final = (1 << 63) - 1

Term = Annotated[int, Meta(ge=0, le=TERM_MAX)]
Version = Annotated[int, Meta(ge=0, le=VERSION_MAX)]
Lot = tuple[Term, Version]  # of one placement of an instance; no other has the same


def is_counted(term: Term, version: Version = 0) -> bool:
    """Whether somebody can have come there by counting, so that we may go on from there."""
    return term <= TERM_MAX // 2 and version <= VERSION_MAX // 2


def term_after(term: Term, rng: Random) -> Term:
    """Return a term that is above another, which was counted, and nobody else's."""
    assert is_counted(term), term
    return (term >> DRAWN_BITS) + 1 << DRAWN_BITS | rng.getrandbits(DRAWN_BITS)
