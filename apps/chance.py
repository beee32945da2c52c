"""Chance that is a function of the row's number, so that a generator makes the same rows in whatever batches.

Each `salt` gives a stream of its own: draw one column with salt 1, the next with salt 2.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)


def drawn(numbers: npt.ArrayLike, seed: int, salt: int = 0) -> npt.NDArray[np.uint64]:
    """Return 64 random bits for each number (SplitMix64's finaliser over number, seed and salt)."""
    start = np.uint64((seed * 0x1_0000_0001 + salt * 0x9E37_79B1_85EB_CA87) % 2**64)
    with np.errstate(over="ignore"):
        return _mixed(np.asarray(numbers).astype(np.uint64) * _GOLDEN + _mixed(start + _GOLDEN))


def uniform(numbers: npt.ArrayLike, seed: int, salt: int = 0) -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for each number."""
    return (drawn(numbers, seed, salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def whole(numbers: npt.ArrayLike, below: npt.ArrayLike, seed: int, salt: int = 0) -> npt.NDArray[np.int64]:
    """Return a whole number in [0, below) for each number."""
    numbers_below: npt.NDArray[np.int64] = (uniform(numbers, seed, salt) * np.asarray(below)).astype(np.int64)
    return numbers_below


def normal(numbers: npt.ArrayLike, seed: int, salt: int = 0) -> npt.NDArray[np.float64]:
    """Return a normally distributed number (mean 0, deviation 1) for each number (Box and Muller)."""
    radius = np.sqrt(-2.0 * np.log(1.0 - uniform(numbers, seed, 2 * salt + 0x5EED)))
    normals: npt.NDArray[np.float64] = radius * np.cos(2.0 * np.pi * uniform(numbers, seed, 2 * salt + 0x5EEE))
    return normals


def _mixed(bits: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return np.asarray(bits ^ (bits >> np.uint64(31)))
