"""What a port has refused, by reason: all of it counted, some of it logged, and no secret in either."""

import logging
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final

log = logging.getLogger(__name__)

WINDOW_S: Final = 10.0
_TOLD_CHARS_MAX: Final = 200


def printable(text: str) -> str:
    """Return a peer's text, escaped and shortened for a line of a log."""
    return ascii(text[:_TOLD_CHARS_MAX])[1:-1]


class Reason(StrEnum):
    """Why a connection or request was refused."""

    TOO_MANY = "too many connections"
    TOO_MANY_STRANGERS = "too many that have not said who they are"
    TOO_FAST = "too many connections in a second"
    HUNG_UP = "it hung up before it said who it is"
    NO_TLS = "it does not speak TLS 1.3"
    DISTRUST = "it does not accept our certificate"
    NO_CERTIFICATE = "it has no certificate"
    FOREIGN_CERTIFICATE = "its certificate is of another authority"
    EXPIRED_CERTIFICATE = "its certificate has expired, or one of the clocks is wrong"
    BAD_CERTIFICATE = "its certificate is not good for this"
    DENIED = "its certificate is on the deny list"
    SLOW_HANDSHAKE = "it has not said in time who it is"
    BAD_GREETING = "it does not greet as we do"
    NOT_A_NODE = "only nodes may speak as nodes"
    FORGED_SENDER = "it speaks in another node's name"
    NO_MESSAGE = "it sent something that is no message"
    TOO_LONG = "it announced more than is allowed"
    SLOW_FRAME = "it takes too long to send a message"
    NO_MEMORY = "too much has arrived in part"
    UNREAD_ANSWERS = "it does not read its answers"
    ROLE = "its role does not allow it"
    TOO_MANY_REQUESTS = "too many requests at once"
    TOO_OFTEN = "it says the same kind of thing too often"
    UNKNOWN_REQUEST = "there is no such request"
    UNTRUSTED_FLOW = "it brought a flow that nobody has signed who may submit"
    UNUSABLE = "it sent what cannot be true, or more than there is room for"
    REPLACED = "the same node came from another address; has its certificate been copied?"
    NOT_LOOPBACK = "it is not on this machine, and this node is insecure"


class Refusals:
    """Counts refusals, and logs a few of them per time window."""

    def __init__(self, logged_max: int, clock: Callable[[], float]) -> None:
        self.counts: Counter[Reason] = Counter()
        self._logged_max = logged_max
        self._clock = clock
        self._window_began = clock()
        self._logged = self._unlogged = 0

    def note(self, reason: Reason, who: str, detail: str = "") -> None:
        """Count a refusal, and log it within the limit; texts of peers are shortened and made printable."""
        self.counts[reason] += 1
        self._next_window()
        if self._logged >= self._logged_max:
            self._unlogged += 1
            return
        self._logged += 1
        said = f" ({printable(detail)})" if detail else ""
        log.warning("refused %s: %s%s", printable(who), reason.value, said)

    def _next_window(self) -> None:
        now = self._clock()
        if now - self._window_began < WINDOW_S:
            return
        if self._unlogged:
            log.warning("refused %d more in the %d s before; they are counted by reason", self._unlogged, WINDOW_S)
        self._window_began, self._logged, self._unlogged = now, 0, 0
