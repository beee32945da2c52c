"""Eight peers in four zones, and the links between them: 20 ms there and back within a zone, up to 100 between two."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

PEERS: Final = ("north", "north", "east", "east", "south", "south", "west", "west")  # the zone of each
WITHIN_MS: Final = 20.0  # there and back
BETWEEN_MS: Final[Mapping[frozenset[str], float]] = {
    frozenset({"north", "east"}): 40.0,
    frozenset({"north", "south"}): 60.0,
    frozenset({"north", "west"}): 50.0,
    frozenset({"east", "south"}): 80.0,
    frozenset({"east", "west"}): 70.0,
    frozenset({"south", "west"}): 100.0,
}
CENTRE: Final = 0  # which of the peers is nearest to all others: one of the north
BYTES_PER_S: Final = 12_500_000  # 100 Mbit/s
JITTER_MS: Final = 1.0


def round_trip_ms(one: str, other: str) -> float:
    """Return how long it takes from a zone to another and back."""
    return WITHIN_MS if one == other else BETWEEN_MS[frozenset({one, other})]


def write_links(path: Path) -> Path:
    """Write the links as nodes read them."""
    tables = [f"[within]\n{_quality(WITHIN_MS)}", f"[default]\n{_quality(max(BETWEEN_MS.values()))}"]
    for pair, round_trip in BETWEEN_MS.items():
        one, other = sorted(pair)
        tables.append(f'[[between]]\nzones = ["{one}", "{other}"]\n{_quality(round_trip)}')
    path.write_text("\n".join(tables), encoding="utf-8")
    return path


def _quality(round_trip_ms: float) -> str:
    return f'delay = "{round_trip_ms / 2:g}ms"\njitter = "{JITTER_MS:g}ms"\nbytes_per_s = {BYTES_PER_S}\n'


def told() -> dict[str, object]:
    """Return all of it, for the results."""
    between = {" - ".join(sorted(pair)): round_trip for pair, round_trip in BETWEEN_MS.items()}
    return {
        "peers": list(PEERS),
        "round_trip_within_ms": WITHIN_MS,
        "round_trips_between_ms": between,
        "bytes_per_s": BYTES_PER_S,
        "jitter_ms": JITTER_MS,
    }
