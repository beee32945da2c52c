"""Emulation of edge links between processes on one machine: delay, jitter, bandwidth and loss, by a seed.

The kernel can do this too (netem), but on many machines it may not. So the sender holds back what it sends until it
would have arrived. As on a TCP connection, everything arrives in order, and a loss shows as the delay of a
retransmission, whose timeout doubles with each further loss, and all that follows waits behind it (head-of-line
blocking). Nothing is lost, but on a link that is cut. A new connection takes two round trips, one for TCP and one for
TLS, before its first byte leaves.

Only traffic between nodes is held back, not the requests of users.
"""

import tomllib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random
from typing import Any, Final

from headwater.model.errors import ConfigError
from headwater.model.time import MILLISECOND, SECOND, Duration, Instant, parse_duration

RETRANSMISSION_MIN: Final = Duration(200 * MILLISECOND)  # as Linux does
RETRANSMISSIONS_MAX: Final = 6  # then the bytes arrive; a real connection would break after minutes
ZONES_KNOWN_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkQuality:
    """The properties of a link in one direction."""

    delay: Duration = Duration(0)  # one way
    jitter: Duration = Duration(0)  # at most, added to the delay
    bytes_per_s: int = 0  # 0: no limit
    loss: float = 0.0  # of packets; here one write counts as one packet
    is_cut: bool = False  # nothing arrives

    def __post_init__(self) -> None:
        if self.delay < 0 or self.jitter < 0 or self.bytes_per_s < 0:
            raise ConfigError("a link's delay, jitter and bandwidth cannot be negative")
        if not 0 <= self.loss < 1:
            raise ConfigError(f"a link cannot lose a share of {self.loss}; use 0 to below 1, or cut it")


PERFECT: Final = LinkQuality()


class EmulatedLink:
    """One direction of a link; computes when what is sent over it arrives."""

    def __init__(self, quality: LinkQuality, rng: Random) -> None:
        self.quality = quality
        self.free_at = Instant(0)  # the sender's end has put all bytes on the link
        self._last_arrival = Instant(0)
        self._rng = rng

    def open(self, now: Instant) -> None:
        """Begin a new connection: no byte leaves before the handshakes are done."""
        self.free_at = Instant(max(self.free_at, now) + 4 * self.quality.delay)

    def arrival(self, size_bytes: int, now: Instant) -> Instant:
        """Return when bytes arrive that are offered now and sent as soon as the link is free."""
        quality, rng = self.quality, self._rng
        leaves: int = max(self.free_at, now)
        if quality.bytes_per_s:
            leaves += size_bytes * SECOND // quality.bytes_per_s
        self.free_at = Instant(leaves)
        arrives = leaves + quality.delay
        if quality.jitter:
            arrives += rng.randrange(quality.jitter + 1)
        if quality.loss:
            arrives += self._sent_again_after()
        self._last_arrival = Instant(max(arrives, self._last_arrival))
        return self._last_arrival

    def _sent_again_after(self) -> int:
        waited, timeout = 0, max(RETRANSMISSION_MIN, 2 * self.quality.delay)
        for _ in range(RETRANSMISSIONS_MAX):
            if self._rng.random() >= self.quality.loss:
                break
            waited += timeout
            timeout *= 2
        return waited


@dataclass(slots=True)
class LinkTable:
    """The quality of the links between zones, and the zone of each address.

    Zones of addresses are configured, or learned: every message names its sender's address and zone.
    """

    own_zone: str
    default: LinkQuality = PERFECT  # between zones that are not named, and to addresses of unknown zone
    within: LinkQuality = PERFECT  # a zone
    between: Mapping[frozenset[str], LinkQuality] = field(default_factory=dict)  # a set of one zone: within it
    zones: "OrderedDict[str, str]" = field(default_factory=OrderedDict)  # of addresses
    seed: int = 0

    def learn(self, address: str, zone: str) -> bool:
        """Record an address's zone; True if it is news."""
        if self.zones.get(address) == zone:
            return False
        self.zones[address] = zone
        if len(self.zones) > ZONES_KNOWN_MAX:
            self.zones.popitem(last=False)
        return True

    def quality(self, address: str) -> LinkQuality:
        """Return the quality of the link from here to an address."""
        zone = self.zones.get(address)
        if zone is None:
            return self.default
        fallback = self.within if zone == self.own_zone else self.default
        return self.between.get(frozenset((self.own_zone, zone)), fallback)

    def link(self, own_address: str, address: str) -> EmulatedLink:
        """Return the link to an address; its chance depends on the seed and the two ends only."""
        return EmulatedLink(self.quality(address), Random(f"{self.seed} {own_address} {address}"))


# --- from a file ------------------------------------------------------------------------------------------------------


def read_links(path: Path, own_zone: str) -> LinkTable:
    """Read a file of links: `seed`, `[default]`, `[within]`, `[[between]]` with its `zones`, and `[zones]`."""
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise ConfigError(f"the links file {path} cannot be read: {failure.strerror}") from failure
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise ConfigError(f"the links file {path} is not TOML: {failure}") from failure
    return _table(written, own_zone, str(path))


def _table(written: Mapping[str, Any], own_zone: str, where: str) -> LinkTable:
    _refuse_unknown(written, {"seed", "default", "within", "between", "zones"}, where)
    seed, between, zones = written.get("seed", 0), written.get("between", []), written.get("zones", {})
    if not isinstance(seed, int) or not isinstance(between, list) or not isinstance(zones, dict):
        raise ConfigError(f"{where}: seed is a number, between a list of tables, zones a table of addresses")
    return LinkTable(
        own_zone=own_zone,
        default=_quality(written.get("default", {}), f"{where}, [default]"),
        within=_quality(written.get("within", {}), f"{where}, [within]"),
        between=dict(_pair(one, f"{where}, [[between]]") for one in between),
        zones=OrderedDict((str(address), str(zone)) for address, zone in zones.items()),
        seed=seed,
    )


def _pair(written: Any, where: str) -> tuple[frozenset[str], LinkQuality]:
    pair = written.get("zones") if isinstance(written, dict) else None
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(zone, str) for zone in pair):
        raise ConfigError(f'{where} needs zones = ["one", "other"]')
    return frozenset(pair), _quality({key: value for key, value in written.items() if key != "zones"}, where)


def _quality(written: Any, where: str) -> LinkQuality:
    if not isinstance(written, dict):
        raise ConfigError(f"{where} is not a table")
    _refuse_unknown(written, {each.name for each in fields(LinkQuality)}, where)
    try:
        return LinkQuality(
            delay=parse_duration(written.get("delay", "0s")),
            jitter=parse_duration(written.get("jitter", "0s")),
            bytes_per_s=int(written.get("bytes_per_s", 0)),
            loss=float(written.get("loss", 0.0)),
            is_cut=_as_bool(written.get("is_cut", False)),
        )
    except (ConfigError, TypeError, ValueError, OverflowError, AttributeError) as failure:
        raise ConfigError(f"{where}: {failure}; times are written like '40ms'") from failure


def _as_bool(written: Any) -> bool:
    if not isinstance(written, bool):
        raise ValueError(f"is_cut is true or false, not {written!r}")
    return written


def _refuse_unknown(written: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in written:
        if key not in known:
            raise ConfigError(f"{where}: there is no {key!r}; there are: {', '.join(sorted(known))}")
