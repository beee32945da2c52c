"""A broker that cannot be reached: how long to rest between tries, and what the log is told.

The first rest is a tenth of a second, each one after it twice as long, up to half a minute; every rest is cut by
chance, so that clients that a broker left at one instant do not come back at one instant. The log tells of an outage
when it begins and when it is over, and not of the tries between.
"""

import logging
import random
import time
from typing import Final

from headwater.connectors.mqtt.address import Address

log = logging.getLogger(__name__)

REST_S_MIN: Final = 0.1
REST_S_MAX: Final = 30.0
STEADY_S: Final = 5.0  # a connection that lasts so long was a good one: the next outage starts with short rests again
BRIEF_MAX: Final = 3  # connections in a row that did not last, before the log says what that often means


class Outage:
    """How long to rest before the next try, and what the log is told."""

    def __init__(self, address: Address, client_id: str) -> None:
        """Begin with a broker that nobody has tried yet."""
        self._address, self._client_id = address, client_id
        self._since_s: float | None = None
        self._up_since_s: float | None = None
        self._tries = 0
        self._brief = 0  # connections in a row that did not last
        self._chance = random.Random()

    def begin(self, reason: str) -> None:
        """Note that a connection failed or was lost."""
        now = time.monotonic()
        if self._up_since_s is not None:
            lasted = now - self._up_since_s > STEADY_S
            self._tries = 0 if lasted else self._tries
            self._brief = 0 if lasted else self._brief + 1
            self._up_since_s = None
        if self._since_s is None:
            if self._brief >= BRIEF_MAX:
                reason = f"{reason}, again and again; perhaps another client has our client id {self._client_id}"
            log.warning("%s cannot be reached: %s; trying again until it can", self._address, reason)
            self._since_s = now
        self._tries += 1

    def end(self) -> None:
        """Note that the broker is there."""
        self._up_since_s = time.monotonic()
        if self._since_s is not None:
            log.warning("%s is back after %.1f s", self._address, self._up_since_s - self._since_s)
            self._since_s = None

    def rest_s(self) -> float:
        """Return how long to rest now."""
        return min(REST_S_MAX, REST_S_MIN * 2.0 ** min(max(self._tries - 1, 0), 30)) * self._chance.uniform(0.5, 1.0)
