"""Rows of many keys in waves, for functions in which a row of a key depends on the one before it.

A wave has at most one row of each key, so that all of its rows can be worked out at once, as arrays.
"""

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.intp]


def waves(codes: npt.NDArray[np.integer]) -> list[Positions]:
    """Part rows into waves by the codes of their keys; rows of a key are in order from wave to wave."""
    order = np.argsort(codes, kind="stable")
    in_order = codes[order]
    nth_of_key = np.arange(len(codes)) - np.searchsorted(in_order, in_order)
    return [order[nth_of_key == wave] for wave in range(int(nth_of_key.max()) + 1)]
