"""The port: admits connections one by one, within limits, and knows the reason for each refusal.

Sockets are accepted here and not by asyncio's servers, which begin TLS before a connection can be counted, and do not
report why it failed.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from headwater.links.arrivals import Arrivals
from headwater.links.distrust import OTHER_AUTHORITY
from headwater.links.incoming import IncomingConnection
from headwater.links.refusals import Reason
from headwater.links.shared_budgets import House
from headwater.links.shares import network_of

log = logging.getLogger(__name__)

BACKLOG: Final = 256  # connections that the kernel queues for us
ACCEPT_PAUSE_S: Final = 0.2  # when the process has no file descriptors left
_HANDSHAKE_S: Final = 3_600.0  # asyncio's own limit; ours is the guest's deadline, by our clock

_EXPIRED: Final = frozenset({9, 10})  # OpenSSL's codes, as in `links/distrust.py`

# Alerts by which the other end rejects our certificate.
_ALERTS: Final = frozenset(
    {"TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN"}
    | {"SSLV3_ALERT_CERTIFICATE_EXPIRED", "SSLV3_ALERT_CERTIFICATE_REVOKED", "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE"}
)


class Listener:
    """Accepts connections on one socket."""

    def __init__(self, house: House, bound: socket.socket, context: Callable[[], ssl.SSLContext | None]) -> None:
        """Begin to listen; no connection is accepted before `accept` runs."""
        self._house = house
        self._socket = bound
        self._context = context
        self._arrivals = Arrivals(house.limits.arrivals_per_s, house.clock())
        bound.setblocking(False)
        bound.listen(BACKLOG)

    async def accept(self) -> None:
        """Accept connections until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._socket)
            except OSError as failure:  # a resource is exhausted, most likely file descriptors
                log.warning("no connection can be accepted: %s", failure.strerror)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            self._meet(accepted, str(address[0]), int(address[1]))
            await asyncio.sleep(0)  # under a flood of connections other tasks must run too

    def _meet(self, accepted: socket.socket, host: str, port: int) -> None:
        if not self._arrivals.admit(network_of(host), self._house.clock()):
            self._house.refusals.note(Reason.TOO_FAST, f"{host}:{port}")
            accepted.close()
            return
        guest = IncomingConnection(self._house, host, port)
        guest.handshake = asyncio.get_running_loop().create_task(self._shake_hands(guest, accepted))
        self._house.met(guest)

    async def _shake_hands(self, guest: IncomingConnection, accepted: socket.socket) -> None:
        context = self._context()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: guest,
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else _HANDSHAKE_S,
            )
        except ssl.SSLError as failure:
            guest.fail(reason_of(failure), failure.reason or "")
        except OSError as failure:
            guest.fail(Reason.HUNG_UP, failure.strerror or type(failure).__name__)
        except asyncio.CancelledError:
            accepted.close()
            guest.forget()
            raise
        finally:
            guest.handshake = None

    def sweep(self) -> None:
        """End connections whose deadline has passed."""
        for guest in list(self._house.guests):
            guest.sweep()
        self._house.sweep()

    def close(self) -> None:
        """Stop listening, and end all connections."""
        self._socket.close()
        for guest in list(self._house.guests):
            guest.abort()


def reason_of(failure: ssl.SSLError) -> Reason:
    """Return the reason for a failed handshake."""
    if isinstance(failure, ssl.SSLCertVerificationError):
        if failure.verify_code in _EXPIRED:
            return Reason.EXPIRED_CERTIFICATE
        return Reason.FOREIGN_CERTIFICATE if failure.verify_code in OTHER_AUTHORITY else Reason.BAD_CERTIFICATE
    if failure.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return Reason.NO_CERTIFICATE
    return Reason.DISTRUST if (failure.reason or "") in _ALERTS else Reason.NO_TLS
