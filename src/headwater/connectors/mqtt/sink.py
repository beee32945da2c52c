"""Writes to an MQTT broker: a row is a message, and a write ends when the broker has acknowledged every row.

Up to `inflight` messages are unacknowledged at a time. While the broker is away the write waits without limit; only
closing the sink ends it. A node killed between the acknowledgement and its own commit sends those rows again, so after
a restart delivery is at least once, whatever the quality of service.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa
from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from headwater.connectors import senml
from headwater.connectors.files.encoding import JsonLines, NotFinite, Nulled, TextLines, checked_not_finite, joined
from headwater.connectors.mqtt.address import Address
from headwater.connectors.mqtt.client import ClientSession, LateClient, Version, Will, new_client_id
from headwater.connectors.mqtt.link import BrokerLink
from headwater.connectors.mqtt.messages import FORMATS, MessageFormat
from headwater.connectors.mqtt.topics import TopicTemplate
from headwater.connectors.senml_packs import SenmlError
from headwater.dataflow.connectors import Position, Resource, SinkWriter
from headwater.model.errors import ConnectorError, FlowError, SchemaMismatch
from headwater.model.quoting import listed, quoted

INFLIGHT: Final = 256  # enough to keep a broker busy that answers after some milliseconds
# MQTT 3.1.1 cannot tell how many a broker accepts at QoS 2, and mosquitto answers no more than these at a time.
INFLIGHT_UNTOLD: Final = 20
SESSION_S: Final = 3_600  # for which a broker remembers its messages of QoS 2, while it or the network is down
PACKET_BYTES: Final = 16  # of a packet besides topic and payload, at most
_NOT_FOUND: Final = 0x92  # the answer to a second PUBREL: the broker is done with the message
_REFUSED_FROM: Final = 0x80

_Message = tuple[str, bytes]


@dataclass(frozen=True, kw_only=True)
class MqttSink:
    """A topic, or one for each row."""

    kind: ClassVar[str] = "mqtt"
    blocking: ClassVar[bool] = True

    address: Address
    topic: TopicTemplate
    format: MessageFormat = "json"
    column: str | None = None
    qos: int = 1
    retain: bool = False
    version: Version = "5"
    client_id: str | None = None
    keepalive_s: int = 30
    inflight: int = INFLIGHT
    will: Will | None = None
    not_finite: NotFinite = "null"

    def __post_init__(self) -> None:
        if self.qos not in (0, 1, 2):
            raise FlowError(f"qos={quoted(self.qos)} is not a quality of service; give 0, 1 or 2")
        if self.format not in FORMATS:
            raise FlowError(f"format={quoted(self.format)} is not known; give one of {listed(FORMATS)}")
        if self.column is not None and self.format not in ("text", "bytes"):
            raise FlowError("column= is the one that format='text' or 'bytes' sends; leave it out, or pass one of them")
        checked_not_finite(self.not_finite)
        self.session("unnamed" if self.client_id is None else self.client_id)

    @property
    def guarantee(self) -> str:
        """At most once at QoS 0, which has no acknowledgements; else at least once."""
        return "at-least-once" if self.qos else "at-most-once"

    def resources(self, position: Position | None) -> tuple[Resource, ...]:
        """The client id, even a random one: the store may have been copied."""
        client_id = self.client_id or (None if position is None else position["client"])
        return () if client_id is None else (self.address.client(client_id),)

    def open(self, position: Position | None) -> SinkWriter:
        """Connect; rows written after the position will come again."""
        client_id = self.client_id or (new_client_id() if position is None else position["client"])
        return MqttWriter(self, client_id, {"rows": 0} if position is None else position)

    def session(self, client_id: str) -> ClientSession:
        """Return the parameters of the session."""
        return ClientSession(
            client_id=client_id,
            version=self.version,
            keepalive_s=self.keepalive_s,
            kept="while running",
            expiry_s=SESSION_S if self.qos == 2 else 0,
            inflight=self.inflight,
            will=self.will,
        )

    def encoder(self) -> Callable[[pa.RecordBatch], Sequence[bytes]]:
        """Return the function that makes the payloads of rows."""
        match self.format:
            case "json":
                return lambda batch: JsonLines().lines(batch).splitlines()
            case "text":
                return lambda batch: _texts(batch, self.column or "line")
            case "bytes":
                return lambda batch: _bytes(batch, self.column or "payload")
            case "senml":
                return _packs


class MqttWriter:
    """An open sink; the pump's thread writes rows, the link's thread sends them."""

    def __init__(self, sink: MqttSink, client_id: str, position: Position) -> None:
        """Begin to connect."""
        self._sink, self._client_id, self._rows = sink, client_id, int(position["rows"])
        self._json = JsonLines(sink.not_finite) if sink.format == "json" else None
        self._nulled = Nulled(str(sink.address), position.get("nulled", 0))
        self._encode = sink.encoder()
        self._changed = threading.Condition()
        self._waiting: deque[_Message] = deque()
        self._under_way: dict[int, str] = {}  # topics by packet id, unacknowledged
        self._window_max = sink.inflight if sink.version == "5" or sink.qos < 2 else min(sink.inflight, INFLIGHT_UNTOLD)
        self._window = self._window_max
        self._packet_bytes_max: int | None = None  # None if the broker does not say
        self._is_up = self._is_impatient = False
        self._failure: ConnectorError | None = None
        # With QoS the client keeps a message that it could not send, and sends it over the next connection.
        no_connection = () if sink.qos else (MQTTErrorCode.MQTT_ERR_NO_CONN,)
        self._not_taken = (MQTTErrorCode.MQTT_ERR_QUEUE_SIZE, *no_connection)
        self._link = BrokerLink(sink.address, sink.session(client_id), self, self._prepare)
        self._link.start()

    def write(self, batches: list[pa.RecordBatch]) -> Position:
        """Send the rows, and wait until the broker has them."""
        messages = [message for batch in joined(batches) for message in self._messages(batch)]
        if messages:
            with self._changed:
                self._waiting.extend(messages)
                self._link.wake()
                self._changed.wait_for(self._is_over)
                self._raise_failure()
        self._rows += len(messages)
        self._nulled.add(0 if self._json is None else sum(map(self._json.nulled, batches)))
        return {"client": self._client_id, "rows": self._rows, **self._nulled.remembered()}

    def interrupt(self) -> None:
        """Wait no longer for a broker that is away; one that is there may finish."""
        with self._changed:
            self._is_impatient = True
            self._changed.notify_all()

    def told(self) -> str:
        """Say where we are connected."""
        return "; ".join(one for one in (self._link.told(), self._nulled.told()) if one)

    def close(self) -> None:
        """Disconnect in order, so that the broker does not publish our last will."""
        self.failed(_given_up())
        self._link.close()

    def connected(self, client: LateClient, kept: bool, limits: Properties) -> None:
        """Adapt to the broker's limits; paho retransmits unacknowledged messages."""
        self._is_up = True
        self._window = min(self._window_max, getattr(limits, "ReceiveMaximum", self._window_max))
        qos_max = getattr(limits, "MaximumQoS", 2)
        if qos_max < self._sink.qos:
            self._refuse(f"takes only QoS {qos_max}; pass qos={qos_max}")
        if self._sink.retain and not getattr(limits, "RetainAvailable", 1):
            self._refuse("keeps no retained messages; leave out retain=")
        self._packet_bytes_max = getattr(limits, "MaximumPacketSize", None)

    def has_room(self) -> bool:
        """Return True: only short answers are received."""
        return True

    def send(self, client: LateClient) -> None:
        """Send as many messages as may be under way."""
        with self._changed:
            while self._waiting and len(self._under_way) < self._window and self._failure is None:
                topic, payload = self._waiting[0]
                if self._packet_bytes_max is not None and _packet_bytes(topic, payload) > self._packet_bytes_max:
                    self._refuse(
                        f"takes packets of {self._packet_bytes_max} bytes, but a row for topic {quoted(topic)} "
                        f"is {len(payload)}; send less in a row, or raise its limit"
                    )
                    return
                sent = client.publish(topic, payload, self._sink.qos, self._sink.retain)
                if sent.rc in self._not_taken:
                    return
                self._waiting.popleft()
                self._under_way[sent.mid] = topic

    def lost(self) -> None:
        """Wait for the next connection, over which paho retransmits; at QoS 0 nothing is retransmitted."""
        with self._changed:
            self._is_up = False
            if self._sink.qos == 0:
                self._under_way.clear()
            self._changed.notify_all()

    def failed(self, failure: ConnectorError) -> None:
        """Raise the failure in the present write, or the next."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _prepare(self, client: LateClient) -> None:
        client.max_inflight_messages_set(self._sink.inflight)
        client.on_publish = self._on_publish
        client.on_refused = self._on_refused

    def _messages(self, batch: pa.RecordBatch) -> list[_Message]:
        if self._json is not None:
            self._json.columns(batch, None, "to.mqtt")
        return list(zip(self._sink.topic.topics(batch), self._encode(batch), strict=True))

    def _is_done(self) -> bool:
        return not self._waiting and not self._under_way

    def _is_over(self) -> bool:
        return self._failure is not None or self._is_done() or (self._is_impatient and not self._is_up)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._is_done():
            raise _given_up()

    def _on_publish(
        self, client: Client, userdata: Any, packet_id: int, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.value >= _REFUSED_FROM and reason.value != _NOT_FOUND:
            self._on_refused(packet_id, reason.value)
        with self._changed:
            self._under_way.pop(packet_id, None)
            if self._is_done():
                self._changed.notify_all()

    def _on_refused(self, packet_id: int, reason: int) -> None:
        topic = self._under_way.get(packet_id)
        what = _REFUSALS.get(reason, f"reason code 0x{reason:02x}")
        self._refuse(f"does not take a message for topic {quoted(topic)}: {what}")

    def _refuse(self, what: str) -> None:
        self._link.refuse(ConnectorError(f"{self._sink.address} {what}"))


_REFUSALS: Final = {
    0x83: "it cannot process it",
    0x87: "we are not allowed to send to it; check what the broker allows this user",
    0x90: "it does not accept this topic",
    0x97: "a quota is used up",
    0x99: "the payload is not what it says it is",
}


def _given_up() -> ConnectorError:
    return ConnectorError("it was closed before the broker had all rows; they are sent again next time")


def _packet_bytes(topic: str, payload: bytes) -> int:
    return PACKET_BYTES + len(topic.encode()) + len(payload)


def _texts(batch: pa.RecordBatch, column: str) -> list[bytes]:
    TextLines(column).columns(batch, None, "to.mqtt")
    return [b"" if text is None else text for text in batch.column(column).cast(pa.binary()).to_pylist()]


def _bytes(batch: pa.RecordBatch, column: str) -> list[bytes]:
    names = batch.schema.names
    if column not in names:
        raise SchemaMismatch(f"to.mqtt: there is no column {quoted(column)}, only: {listed(names)}; name another one")
    kind = batch.schema.field(column).type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise SchemaMismatch(f"to.mqtt: column {quoted(column)} is {kind}, not binary; pass format='text' for a text")
    return [b"" if value is None else value for value in batch.column(column).to_pylist()]


def _packs(batch: pa.RecordBatch) -> list[bytes]:
    try:
        return senml.encode_rows(batch)
    except SenmlError as failure:
        raise SchemaMismatch(f"to.mqtt: rows cannot be written as SenML: {failure}") from failure
