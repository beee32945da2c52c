"""The connection to a broker, maintained by a thread of its own.

An unreachable broker is retried without limit. What waiting cannot cure is an error at once: a wrong password, a
certificate that does not verify, a topic that is not allowed. Only if the broker has accepted us before with the same
settings is even a refusal treated as an outage, since brokers come back before the database with their passwords does.

paho runs on this thread alone: others queue what they want to send, and wake the link.
"""

import logging
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from paho.mqtt import MQTTException
from paho.mqtt.client import Client as PahoClient
from paho.mqtt.client import ConnectFlags, DisconnectFlags
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from headwater.connectors.mqtt.address import Address
from headwater.connectors.mqtt.client import ClientSession, LateClient
from headwater.connectors.mqtt.outages import Outage
from headwater.model.errors import ConnectorError

log = logging.getLogger(__name__)

ANSWER_S: Final = 10.0  # for the CONNACK of a broker that has accepted the connection
ROUND_S: Final = 1.0  # between paho's checks whether a ping is due
CLOSE_S: Final = 2.0  # for the goodbye
PACKETS_PER_ROUND: Final = 256  # read before waiting messages are sent

# Temporary refusals: server unavailable, server busy, quota exceeded, connection rate exceeded.
_PASSING: Final = frozenset({0x88, 0x89, 0x97, 0x9F})
_PASSWORD: Final = "check user name and password (username=, password_file=) and what the broker allows them"
_ADVICE: Final = {
    0x84: "it does not speak this version; give version='3.1.1' or '5'",
    0x85: "it does not take this client id; give client_id= another",
    0x86: _PASSWORD,
    0x87: _PASSWORD,
}
# Reasons of a MQTT 5 broker for a disconnect that would end the next connection too.
_FINAL: Final = {
    0x8E: "another client connected with our client id; give each flow its own client_id=, or none",
    0x95: "a message was larger than the broker takes; send less in one, or raise its limit",
    0x9A: "the broker keeps no retained messages; leave out retain=",
    0x9B: "the broker does not know this quality of service; give a lower qos=",
    0x9E: "the broker has no shared subscriptions; leave out shared=",
}
_ALERT: Final = "_ALERT_"  # part of OpenSSL's error when the broker rejects our certificate
_RESET: Final = "Connection reset"
_NONSENSE: Final = (MQTTException, struct.error, ValueError, IndexError, KeyError)  # what paho raises for bad packets


class BrokerLinkListener(Protocol):
    """The user of a link. Every method is called on the link's thread."""

    def connected(self, client: LateClient, kept: bool, limits: Properties) -> None:
        """Handle a new connection; `kept` says whether the broker still has our session."""
        ...

    def has_room(self) -> bool:
        """Whether more may be read from the broker; if not, the listener wakes the link when that changes."""
        ...

    def send(self, client: LateClient) -> None:
        """Send what waits."""
        ...

    def lost(self) -> None:
        """Handle the loss of the connection; the link makes another."""
        ...

    def failed(self, failure: ConnectorError) -> None:
        """Handle the final failure of the link."""
        ...


class BrokerLink:
    """One connection after another, until it is closed or refused for good."""

    def __init__(
        self,
        address: Address,
        session: ClientSession,
        listener: BrokerLinkListener,
        prepare: Callable[[LateClient], None],
    ) -> None:
        """Prepare; `prepare` sets the client's callbacks. Certificates are read here; nothing is connected yet."""
        self.address, self._session, self._listener = address, session, listener
        self._client = LateClient(session, None if address.tls is None else address.tls.context())
        prepare(self._client)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_trouble = self._on_trouble
        self._ears, self._mouth = socket.socketpair()
        for end in (self._ears, self._mouth):
            end.setblocking(False)
        self._closing = threading.Event()
        self._outage = Outage(address, session.client_id)
        self._is_up = False
        self._was_up = False
        self._has_warned = False
        self._refusal: ConnectorError | None = None  # final
        self._reason = ""  # why the present connection ended, if known
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{session.client_id}", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def wake(self) -> None:
        """Wake the link, as there is something to send."""
        try:
            self._mouth.send(b"!")
        except OSError:  # full, so it will wake anyway; or closed
            return

    def told(self) -> str:
        """Say where we are connected and as whom, or what keeps us from it."""
        where = f"{self.address} as {self._session.client_id}"
        if self._is_up:
            return f"connected to {where}"
        if self._thread.ident is None or self._closing.is_set():
            return ""
        return f"connecting to {where}{self._outage.told()}"

    def close(self) -> None:
        """Disconnect, with a goodbye if the broker is connected."""
        self._closing.set()
        if self._thread.ident is None:
            self._let_go()
            return
        self.wake()
        self._thread.join(CLOSE_S)

    def refuse(self, failure: ConnectorError) -> None:
        """Give up, for a reason that another connection would not mend. Called on the link's thread."""
        self._refusal = failure
        self.wake()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._connect_once()
                if self._refusal is not None:
                    self._listener.failed(self._refusal)
                    break
                self._closing.wait(self._outage.rest_s())
        except Exception as failure:  # ours: it must be reported where rows are waited for
            log.exception("the link to %s broke", self.address)
            self._listener.failed(
                ConnectorError(f"{self.address}: internal error: {type(failure).__name__}: {failure}")
            )
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._client.disconnect()
        self._client.loop_write()
        self._ears.close()
        self._mouth.close()

    def _connect_once(self) -> None:
        """Connect, and serve the connection to its end."""
        self._is_up, self._reason = False, ""
        try:
            self._connect()
            self._serve()
        except ssl.SSLError as failure:
            self._on_tls_failure(failure)
        except UnicodeError as failure:
            self._refusal = ConnectorError(f"{self.address} is not the name of a host: {failure}; correct the URL")
        except ConnectorError as failure:  # our credentials cannot be read, perhaps for now
            self._refuse_unless_known(failure)
        except (OSError, *_NONSENSE) as failure:
            self._reason = self._reason or str(failure) or type(failure).__name__
        if self._is_up:
            self._is_up = False
            self._listener.lost()
        if self.address.tls is not None and not self._was_up and _ALERT in self._reason:
            self._refuse_tls(self._reason)
        if self._refusal is None and not self._closing.is_set():
            self._outage.begin(self._explained())

    def _connect(self) -> None:
        client, session = self._client, self._session
        username, password = self.address.credentials()
        client.username_pw_set(username, password)
        if password is not None and self.address.is_exposed and not self._has_warned:
            self._has_warned = True
            log.warning("the password for %s travels unencrypted; write mqtts:// if it can", self.address)
        how: dict[str, Any] = {"clean_start": session.clean_start} if session.version == "5" else {}
        client.connect(
            self.address.host, self.address.port, session.keepalive_s, properties=session.properties(), **how
        )

    def _explained(self) -> str:
        """Return why the connection ended, or a hint if it was never accepted."""
        hung_up = not self._reason or _RESET in self._reason
        if self._was_up or not hung_up:
            return self._reason or "the connection was lost"
        hint = "is this a port for mqtts://?" if self.address.tls is None else "does this port speak TLS?"
        return f"it hung up without an answer ({hint})"

    def _serve(self) -> None:
        client = self._client
        answer_by = time.monotonic() + ANSWER_S
        poller = select.poll()
        poller.register(self._ears, select.POLLIN)
        while (connection := client.socket()) is not None and not self._closing.is_set() and self._refusal is None:
            if self._is_up:
                self._listener.send(client)
            elif time.monotonic() > answer_by:
                self._reason = f"it took the connection and said nothing for {ANSWER_S:.0f} s"
                return
            self._wait(poller, connection)
            client.loop_write()
            client.loop_misc()
        if self._is_up and self._closing.is_set():
            self._listener.send(client)  # a last acknowledgement keeps what is stored from being sent again

    def _wait(self, poller: select.poll, connection: Any) -> None:
        """Wait until there is something to read or to send, and read."""
        may_read, may_write = self._listener.has_room(), self._client.want_write()
        poller.register(connection, (select.POLLIN if may_read else 0) | (select.POLLOUT if may_write else 0))
        unread = may_read and isinstance(connection, ssl.SSLSocket) and connection.pending() > 0
        ready = dict(poller.poll(0 if unread else ROUND_S * 1_000))
        if self._ears.fileno() in ready:
            self._ears.recv(4_096)
        if unread or ready.get(connection.fileno(), 0) & ~select.POLLOUT:
            self._read()

    def _read(self) -> None:
        for _ in range(PACKETS_PER_ROUND):
            seen = self._client.shown
            self._client.loop_read()
            if self._client.shown == seen:  # paho does not say whether there was more
                return

    def _on_connect(
        self, client: PahoClient, userdata: Any, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if not reason.is_failure:
            self._is_up = self._was_up = True
            self._outage.end()
            assert isinstance(client, LateClient)
            assert properties is not None, "paho makes empty ones for MQTT 3.1.1"
            self._listener.connected(client, flags.session_present, properties)
        elif reason.value in _PASSING:
            self._reason = f"it refuses us: {reason}"
        else:
            advice = _ADVICE.get(reason.value, "the broker's log may tell more")
            self._refuse_unless_known(ConnectorError(f"{self.address} refuses the connection: {reason}; {advice}"))

    def _refuse_unless_known(self, failure: ConnectorError) -> None:
        """Give up, unless the broker has accepted us before."""
        if self._was_up:
            self._reason = str(failure)
        else:
            self._refusal = failure

    def _on_disconnect(
        self,
        client: PahoClient,
        userdata: Any,
        flags: DisconnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if not flags.is_disconnect_packet_from_server:
            return
        if reason.value in _FINAL:
            self._refusal = ConnectorError(f"{self.address} ended the connection: {_FINAL[reason.value]}")
        else:
            self._reason = f"it ended the connection: {reason}"

    def _on_trouble(self, told: str) -> None:
        self._reason = self._reason or told

    def _on_tls_failure(self, failure: ssl.SSLError) -> None:
        if self._was_up or isinstance(failure, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            self._reason = str(failure)
            return
        if isinstance(failure, ssl.SSLCertVerificationError):
            self._refuse_tls(f"its certificate is not trusted: {failure.verify_message}")
        else:
            self._refuse_tls(failure.reason or str(failure))

    def _refuse_tls(self, what: str) -> None:
        self._refusal = ConnectorError(
            f"{self.address}: no secure connection: {what}; "
            "check tls_ca=, tls_cert= and tls_key=, the host's name, and that the port speaks TLS"
        )
