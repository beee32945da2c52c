"""Outages of a broker: the backoff between attempts, and what is logged.

The first pause is a tenth of a second, each further one twice as long, up to half a minute (exponential backoff); every
pause is shortened at random (jitter), so that clients which lost a broker together do not return together. The log has
the beginning and the end of an outage, not the attempts between.
"""

import logging
import random
import time
from typing import Final

from headwater.connectors.mqtt.address import Address

log = logging.getLogger(__name__)

REST_S_MIN: Final = 0.1
REST_S_MAX: Final = 30.0
STEADY_S: Final = 5.0  # a connection that lasts so long was good: the backoff starts over
BRIEF_MAX: Final = 3  # connections in a row that did not last, before the log gives the likely reason


class Outage:
    """The backoff, and what is logged."""

    def __init__(self, address: Address, client_id: str) -> None:
        """Begin before the first attempt."""
        self._address, self._client_id = address, client_id
        self._since_s: float | None = None
        self._up_since_s: float | None = None
        self._tries = 0
        self._reason = ""
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
        self._reason = reason
        self._tries += 1

    def end(self) -> None:
        """Record that the broker has accepted us."""
        self._up_since_s = time.monotonic()
        if self._since_s is not None:
            log.warning("%s is back after %.1f s", self._address, self._up_since_s - self._since_s)
            self._since_s = None

    def told(self) -> str:
        """Say why it cannot be reached, as an ending of a sentence; nothing before the first try has failed."""
        return "" if self._since_s is None else f", which cannot be reached: {self._reason}"

    def rest_s(self) -> float:
        """Return the pause before the next attempt."""
        return min(REST_S_MAX, REST_S_MIN * 2.0 ** min(max(self._tries - 1, 0), 30)) * self._chance.uniform(0.5, 1.0)
