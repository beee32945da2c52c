"""paho's MQTT client, but what lets a broker forget a message is sent only when we say so.

At QoS 1 that is PUBACK, and paho's manual acknowledgements would be all it takes. At QoS 2 it is PUBREC. paho sends it
as soon as a message is there, keeps the message in memory and shows it when the broker's PUBREL comes: killed in
between, it would have lost the message for good. So a message of QoS 2 is shown here when it comes, PUBREC follows when
it is stored, and PUBREL is told of, so that PUBCOMP can wait until the packet id is forgotten. A broker may refuse a
message in PUBREC, which paho does not look at; that is told of as well. Messages are decoded here, without MQTT 5's
properties, which nobody asks for and which take paho most of its time.

This overrides what paho calls private, the same in its versions 2.1 and 2.2. The tests watch it on the wire.
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
    """What the broker sends for us if we vanish without saying goodbye."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSession:
    """How a client introduces itself."""

    client_id: str
    version: Version
    keepalive_s: int
    kept: Kept  # whether the broker keeps the session for our next connection, or even our next run
    expiry_s: int  # for how long; MQTT 3.1.1 leaves that to the broker
    inflight: int  # messages that may be under way to us without an acknowledgement
    will: Will | None = None

    def __post_init__(self) -> None:
        """Refuse what no broker would understand."""
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
        """What MQTT 5 is told: whether to begin anew always, with the first connection of this client, or never."""
        return MQTT_CLEAN_START_FIRST_ONLY if self.kept == "while running" else self.kept == "never"

    def properties(self) -> Properties | None:
        """Return what MQTT 5 lets a client say at the start."""
        if self.version != "5":
            return None
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = self.expiry_s
        properties.ReceiveMaximum = self.inflight
        return properties


def whole_seconds(given: str | timedelta, what: str) -> int:
    """Return a duration as MQTT writes it."""
    seconds = duration_us(given) // SECOND
    if seconds >= NEVER_EXPIRES:
        raise FlowError(f"{what}={quoted(given)} is too long; MQTT counts up to {NEVER_EXPIRES} seconds")
    return seconds


def new_client_id() -> str:
    """Make an id that nobody else has; every broker takes 23 letters and digits."""
    return f"headwater{secrets.token_hex(7)}"


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message as it came."""

    topic: bytes
    payload: bytes
    qos: int
    packet_id: int  # 0 at QoS 0
    is_again: bool
    is_retained: bool


def decoded_publish(first: int, packet: bytes, *, has_properties: bool) -> IncomingMessage | None:
    """Return the message of a PUBLISH packet, of which `first` is the first byte; None if it is broken."""
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
    """Return a number in MQTT's form of seven bits a byte, and of how many bytes it is; of none if it does not end."""
    value = 0
    for digits, byte in enumerate(encoded, 1):
        value |= (byte & 0x7F) << 7 * (digits - 1)
        if byte < 0x80:
            return value, digits
    return 0, 0


class LateClient(Client):
    """A client that acknowledges nothing by itself."""

    def __init__(self, session: ClientSession, context: ssl.SSLContext | None) -> None:
        """Prepare a client; nothing is connected."""
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
        self.shown = 0  # messages that have come
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
        """Tell the broker that a message of QoS 2 is ours now: PUBREC."""
        self._send_pubrec(packet_id)

    def ping(self) -> int:
        """Ask for a sign that the broker has dealt with everything we sent before; `on_pong` is told this number."""
        self._send_pingreq()
        return self._pings

    def reconnect(self) -> MQTTErrorCode:
        """Connect anew; nobody answers the pings of the connection before."""
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
        if level == LogLevel.MQTT_LOG_ERR:  # the rest is one line for every packet, which costs as much as reading it
            self.on_trouble(fmt % args)


def _send_at_once(client: Client, userdata: Any, connection: Any) -> None:
    """Let small packets leave at once, not gathered until the broker has answered the ones before."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _nobody_waits(client: Client, userdata: Any, connection: Any) -> None:
    """Keep paho from writing as soon as there is something: the link's loop looks for itself."""
