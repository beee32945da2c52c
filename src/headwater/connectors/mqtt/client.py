"""paho's MQTT client, but packets that let a broker forget a message are sent only on request.

At QoS 1 that is PUBACK, for which paho's manual acknowledgements would do. At QoS 2 it is PUBREC. paho sends it as soon
as a message arrives, keeps the message in memory and passes it on when the broker's PUBREL comes: killed in between, it
would lose the message. So here a message of QoS 2 is passed on when it arrives, PUBREC follows when it is stored, and
PUBREL is reported, so that PUBCOMP can wait until the packet id is forgotten. A broker may refuse a message in PUBREC,
which paho ignores; that is reported as well. Messages are decoded here, without MQTT 5's properties, which are not
needed and take paho most of its time.

This overrides what paho calls private, the same in its versions 2.1 and 2.2. The tests check it on the wire.
"""

import secrets
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY, Client
from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from headwater.model.errors import FlowError
from headwater.model.quoting import quoted
from headwater.model.time import SECOND, duration_us

Version = Literal["3.1.1", "5"]
Kept = Literal["never", "while running", "always"]
_PROTOCOLS: Final = {"3.1.1": MQTTProtocolVersion.MQTTv311, "5": MQTTProtocolVersion.MQTTv5}
NEVER_EXPIRES: Final = 0xFFFFFFFF
KEEPALIVE_S_MAX: Final = 65_535
INFLIGHT_MAX: Final = 65_535
CLIENT_ID_BYTES_MAX: Final = 1_024  # brokers take less than MQTT's 65,535, and some only 23
_REFUSED_FROM: Final = 0x80  # reason codes from here on are failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """The message that the broker publishes if this client is lost without a DISCONNECT."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSession:
    """The parameters of a client's session."""

    client_id: str
    version: Version
    keepalive_s: int
    kept: Kept  # whether the broker keeps the session for our next connection, or even our next run
    expiry_s: int  # how long it is kept; with MQTT 3.1.1 the broker decides
    inflight: int  # messages to us that may be unacknowledged
    will: Will | None = None

    def __post_init__(self) -> None:
        """Refuse what no broker accepts."""
        if self.version not in _PROTOCOLS:
            raise FlowError(f"version={quoted(self.version)} of MQTT is not known; give '3.1.1' or '5'")
        if not 1 <= self.keepalive_s <= KEEPALIVE_S_MAX:
            raise FlowError(f"keepalive={self.keepalive_s} s is not possible; give 1 to {KEEPALIVE_S_MAX} seconds")
        if not 1 <= self.inflight <= INFLIGHT_MAX:
            raise FlowError(f"inflight={self.inflight} is not possible; there are {INFLIGHT_MAX} packet ids")
        if not 1 <= len(self.client_id.encode()) <= CLIENT_ID_BYTES_MAX or "\0" in self.client_id:
            raise FlowError(f"client_id={quoted(self.client_id)} cannot be one; give 1 to {CLIENT_ID_BYTES_MAX} bytes")

    @property
    def clean_start(self) -> bool | Literal[3]:
        """MQTT 5's clean start: with every connection, with the first connection of this client, or never."""
        return MQTT_CLEAN_START_FIRST_ONLY if self.kept == "while running" else self.kept == "never"

    def properties(self) -> Properties | None:
        """Return the properties of MQTT 5's CONNECT."""
        if self.version != "5":
            return None
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = self.expiry_s
        properties.ReceiveMaximum = self.inflight
        return properties


def whole_seconds(given: str | timedelta, what: str) -> int:
    """Return a duration in MQTT's unit."""
    seconds = duration_us(given) // SECOND
    if seconds >= NEVER_EXPIRES:
        raise FlowError(f"{what}={quoted(given)} is too long; MQTT counts up to {NEVER_EXPIRES} seconds")
    return seconds


def new_client_id() -> str:
    """Make a unique id of 23 letters and digits, which every broker accepts."""
    return f"headwater{secrets.token_hex(7)}"


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message as it was received."""

    topic: bytes
    payload: bytes
    qos: int
    packet_id: int  # 0 at QoS 0
    is_again: bool
    is_retained: bool


def decoded_publish(first: int, packet: bytes, *, has_properties: bool) -> IncomingMessage | None:
    """Decode a PUBLISH packet, of which `first` is the first byte; None if it is invalid."""
    qos = first >> 1 & 3
    at = 2 + int.from_bytes(packet[:2], "big")
    topic = packet[2:at]
    packet_id = int.from_bytes(packet[at : at + 2], "big") if qos else 0
    at += 2 if qos else 0
    if has_properties:
        length, digits = _variable_length(packet[at : at + 4])
        at += digits + length
        if not digits:
            return None
    if qos == 3 or not topic or at > len(packet) or (qos and not packet_id):
        return None
    return IncomingMessage(topic, packet[at:], qos, packet_id, bool(first & 8), bool(first & 1))


def _variable_length(encoded: bytes) -> tuple[int, int]:
    """Decode a variable byte integer; return it and its number of bytes, which is 0 if it does not end."""
    value = 0
    for digits, byte in enumerate(encoded, 1):
        value |= (byte & 0x7F) << 7 * (digits - 1)
        if byte < 0x80:
            return value, digits
    return 0, 0


class LateClient(Client):
    """A client that acknowledges only on request."""

    def __init__(self, session: ClientSession, context: ssl.SSLContext | None) -> None:
        """Prepare a client; it does not connect yet."""
        cleans = None if session.version == "5" else session.kept != "always"
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id=session.client_id,
            protocol=_PROTOCOLS[session.version],
            reconnect_on_failure=False,
            manual_ack=True,
            clean_session=cleans,
        )
        self.on_incoming: Callable[[IncomingMessage], None] = lambda incoming: None
        self.on_released: Callable[[int], None] = lambda packet_id: None
        self.on_refused: Callable[[int, int], None] = lambda packet_id, reason: None
        self.on_pong: Callable[[int], None] = lambda number: None
        self.on_trouble: Callable[[str], None] = lambda told: None
        self.shown = 0  # messages passed on
        self._pings = self._pongs = 0
        self._has_properties = session.version == "5"
        self.on_socket_open = _send_at_once
        self.on_socket_register_write = _nobody_waits
        if context is not None:
            self.tls_set_context(context)
        if session.will is not None:
            will = session.will
            self.will_set(will.topic, will.payload, will.qos, will.retain)

    def received(self, packet_id: int) -> None:
        """Send PUBREC: a message of QoS 2 is stored here."""
        self._send_pubrec(packet_id)

    def ping(self) -> int:
        """Send a ping; its answer, with this number, says that the broker has processed all that we sent before."""
        self._send_pingreq()
        return self._pings

    def reconnect(self) -> MQTTErrorCode:
        """Connect anew; pings of the previous connection will not be answered."""
        self._pongs = self._pings
        return super().reconnect()

    def _send_pingreq(self) -> MQTTErrorCode:
        self._pings += 1  # paho sends some of its own
        return super()._send_pingreq()

    def _handle_pingresp(self) -> MQTTErrorCode:
        self._pongs += 1
        self.on_pong(self._pongs)
        return super()._handle_pingresp()

    def _handle_publish(self) -> MQTTErrorCode:
        packet = bytes(self._in_packet["packet"])
        incoming = decoded_publish(self._in_packet["command"], packet, has_properties=self._has_properties)
        if incoming is None:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        self.shown += 1
        self.on_incoming(incoming)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_pubrel(self) -> MQTTErrorCode:
        packet = self._in_packet["packet"]
        if len(packet) < 2:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        self.on_released(int.from_bytes(packet[:2], "big"))
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_pubrec(self) -> MQTTErrorCode:
        packet = self._in_packet["packet"]
        if len(packet) > 2 and packet[2] >= _REFUSED_FROM:
            self.on_refused(int.from_bytes(packet[:2], "big"), packet[2])
        return super()._handle_pubrec()

    def _easy_log(self, level: LogLevel, fmt: str, *args: Any) -> None:
        if level == LogLevel.MQTT_LOG_ERR:  # the rest is one line per packet, which takes as long as reading it
            self.on_trouble(fmt % args)


def _send_at_once(client: Client, userdata: Any, connection: Any) -> None:
    """Send small packets at once (TCP_NODELAY), not collected until the broker has acknowledged earlier ones."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _nobody_waits(client: Client, userdata: Any, connection: Any) -> None:
    """Keep paho from writing as soon as it can; the link's loop decides."""
