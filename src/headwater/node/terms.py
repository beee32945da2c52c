"""Terms, versions and lots: in which order stewards have an app, and what one of them has changed.

Whoever hears of a term or a version may have to go beyond it, and tell that to others. So there is a highest one that
is believed and told; counting up, nobody comes near it. Who claims it has that app for good, and nothing else.
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


def term_after(term: Term, rng: Random) -> Term:
    """Return a term that is above another, and nobody else's."""
    counted = min((term >> DRAWN_BITS) + 1, TERM_MAX >> DRAWN_BITS)
    return counted << DRAWN_BITS | rng.getrandbits(DRAWN_BITS)


def version_after(version: Version) -> Version:
    """Return the version that follows another."""
    return min(version + 1, VERSION_MAX)
