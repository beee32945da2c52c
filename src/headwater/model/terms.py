"""Terms, versions and lots: the order of an app's stewards, and of the changes of each (fencing tokens).

A node that hears of a term or version may have to exceed it, and tell others. By counting no node gets near half of the
maximum; only a compromised one names a number above that. Such numbers are not accepted, so a successor always exists:
without one an entry could no longer be changed.
"""

from random import Random
from typing import Annotated, Final

from msgspec import Meta

DRAWN_BITS: Final = 32  # of a term: two that are drawn at the same time differ
TERM_MAX: Final = (1 << 63) - 1
VERSION_MAX: Final = (1 << 63) - 1

Term = Annotated[int, Meta(ge=0, le=TERM_MAX)]
Version = Annotated[int, Meta(ge=0, le=VERSION_MAX)]
Lot = tuple[Term, Version]  # of one placement of an instance, and of no other


def is_counted(term: Term, version: Version = 0) -> bool:
    """Whether these can come from counting, and so have successors."""
    return term <= TERM_MAX // 2 and version <= VERSION_MAX // 2


def term_after(term: Term, rng: Random) -> Term:
    """Return a new unique term, above another."""
    assert is_counted(term), term
    return (term >> DRAWN_BITS) + 1 << DRAWN_BITS | rng.getrandbits(DRAWN_BITS)
