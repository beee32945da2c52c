"""Reads from an MQTT broker: it acknowledges what is committed, and nothing else.

A broker keeps messages of QoS 1 and 2 for a client that it knows by its id, even while the client is away. The id must
be the same after a crash, and in no other position; so it is drawn at random and committed before the broker is
connected to. The link's thread appends messages to a backlog; `poll` decodes the backlog at once. Acknowledgements
follow the commit, so a flow that is paused, slow or dead leaves its messages at the broker, which sends at most
`inflight` of them ahead.
"""

import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import pyarrow as pa
from paho.mqtt.client import Client
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from headwater.connectors.columns import KnownColumns
from headwater.connectors.mqtt.address import Address
from headwater.connectors.mqtt.client import ClientSession, IncomingMessage, LateClient, Version, Will, new_client_id
from headwater.connectors.mqtt.link import BrokerLink
from headwater.connectors.mqtt.messages import (
    FIXED_COLUMNS,
    FORMATS,
    MessageFormat,
    MessageReader,
    MqttMessage,
    ReadRows,
)
from headwater.connectors.mqtt.receipts import Receipt, Receipts, Reply, Verdict, first_reply
from headwater.dataflow.connectors import Idle, Poll, Position, Resource, Rows, SourceReader
from headwater.model.errors import ConnectorError, FlowError
from headwater.model.quoting import listed, quoted

log = logging.getLogger(__name__)

BadMessages = Literal["stop", "skip"]
PAYLOAD_BYTES_MAX: Final = 1 << 20
PAYLOAD_BYTES_LIMIT: Final = 268_435_455  # the limit of MQTT's length field
INFLIGHT: Final = 256  # if a commit and a round trip take 5 ms, that is 50,000 messages a second
BACKLOG_BYTES_MAX: Final = 64 << 20  # here, not yet polled; then nothing more is read from the broker
BACKLOG_MAX: Final = 10_000
WAIT_S: Final = 0.05  # how long a poll may wait for a message, so that a reader can still be closed
# The position has what the broker has not confirmed: a ping after so many replies, or so long after the last ping.
PING_REPLIES: Final = 128
PING_S: Final = 0.25
MESSAGE_BYTES: Final = 200  # of a message without its payload, about


@dataclass(frozen=True, kw_only=True)
class MqttSource:
    """Topics of a broker."""

    kind: ClassVar[str] = "mqtt"
    blocking: ClassVar[bool] = True

    address: Address
    topics: tuple[str, ...]
    format: MessageFormat = "json"
    declared: pa.Schema | None = None
    qos: int = 1
    version: Version = "5"
    client_id: str | None = None
    session_expiry_s: int
    keepalive_s: int = 30
    inflight: int = INFLIGHT
    bad_messages: BadMessages = "stop"
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    topic_column: str | None = None
    retained_column: str | None = None
    will: Will | None = None

    def __post_init__(self) -> None:
        if self.qos not in (0, 1, 2):
            raise FlowError(f"qos={quoted(self.qos)} is not a quality of service; give 0, 1 or 2")
        if self.format not in FORMATS:
            raise FlowError(f"format={quoted(self.format)} is not known; give one of {listed(FORMATS)}")
        if self.bad_messages not in ("stop", "skip"):
            raise FlowError(f"bad_messages={quoted(self.bad_messages)} is not known; give 'stop' or 'skip'")
        if not 1 <= self.payload_bytes_max <= PAYLOAD_BYTES_LIMIT:
            raise FlowError(f"payload_bytes_max={self.payload_bytes_max} is not within 1 and {PAYLOAD_BYTES_LIMIT}")
        self.session("unnamed" if self.client_id is None else self.client_id)
        self._refuse_columns()

    def _refuse_columns(self) -> None:
        fixed = FIXED_COLUMNS.get(self.format)
        if fixed is not None and self.declared is not None and not self.declared.equals(fixed):
            raise FlowError(
                f"format={quoted(self.format)} has columns of its own: {listed(fixed.names)}; leave out schema="
            )
        names = [name for name in (self.topic_column, self.retained_column) if name is not None]
        inside = [] if self.schema is None else self.schema.names
        taken = [name for name in names if inside.count(name) > 1]
        if taken:
            raise FlowError(
                f"there would be two columns {quoted(taken[0])}; give topic_column= or retained_column= another name"
            )

    @property
    def schema(self) -> pa.Schema | None:
        """The columns, unless they are inferred from the payloads."""
        return self._reader_of(KnownColumns(self.declared)).schema

    @property
    def can_wait(self) -> bool:
        """Whether the broker keeps messages for us; those of QoS 0 it drops if they are not read."""
        return self.qos > 0

    @property
    def guarantee(self) -> str:
        """The guarantee of the quality of service; at QoS 1 known duplicates are refused nevertheless."""
        return ("at-most-once", "at-least-once", "exactly-once")[self.qos]

    @property
    def position_settings(self) -> Mapping[str, object]:
        """The broker: a position belongs to a session with it."""
        return {"broker": f"{self.address.host}:{self.address.port}"}

    def resources(self, position: Position | None) -> tuple[Resource, ...]:
        """The client id, even a random one: the store may have been copied."""
        client_id = self.client_id or (None if position is None else position["client"])
        return () if client_id is None else (self.address.client(client_id),)

    def open(self, position: Position | None) -> SourceReader:
        """Continue the session of the position, or begin one."""
        messages = self._reader_of(KnownColumns(self.declared, None if position is None else position.get("schema")))
        return MqttReader(self, messages, position)

    def session(self, client_id: str) -> ClientSession:
        """Return the parameters of the session."""
        return ClientSession(
            client_id=client_id,
            version=self.version,
            keepalive_s=self.keepalive_s,
            kept="always" if self.qos else "never",
            expiry_s=self.session_expiry_s if self.qos else 0,
            inflight=self.inflight,
            will=self.will,
        )

    def _reader_of(self, known: KnownColumns) -> MessageReader:
        return MessageReader(self.format, known, topic_column=self.topic_column, retained_column=self.retained_column)


class MqttReader:
    """An open source; the link's thread brings messages, the pump's thread takes them."""

    def __init__(self, source: MqttSource, messages: MessageReader, position: Position | None) -> None:
        """Prepare to connect: at once with a known session, else once its id is stored."""
        self._source, self._messages = source, messages
        self._client_id = _client_id(source, position)
        if position is not None and position["client"] != self._client_id:
            position = None  # the user has named another session, to which the position does not belong
        self._receipts = Receipts(position)
        self._subscribed: list[str] = [] if position is None else position["topics"]
        self._has_subscribed = False  # in this run
        self._changed = threading.Condition()
        self._backlog: deque[MqttMessage] = deque()
        self._backlog_bytes = 0
        self._replies: deque[tuple[Reply, int]] = deque()
        self._refused = 0
        self._ping: int | None = None  # the number of the unanswered one
        self._pinged_s = 0.0
        self._failure: ConnectorError | None = None
        self._is_named = position is not None  # the store knows our client id
        self._link = BrokerLink(source.address, source.session(self._client_id), self, self._prepare)
        if self._is_named:
            self._link.start()

    def poll(self, rows_max: int, now_us: int) -> Poll:
        """Return what has come, waiting shortly; without rows if only the position has changed."""
        with self._changed:
            self._changed.wait_for(self._has_news, WAIT_S)
            if self._failure is not None:
                raise self._failure
            if not self._has_news():
                return Idle(now_us)
            taken = self._taken(self._messages.fitting(rows_max))
        rows = self._messages.read(taken, rows_max, now_us, skip_bad=self._source.bad_messages == "skip")
        with self._changed:
            self._put_back(taken[rows.messages :])
            return self._rows(taken[: rows.messages], rows)

    def stored(self, position: Position) -> None:
        """Acknowledge what is committed; after the first position, which only has our id, the link is started."""
        with self._changed:
            self._replies += self._receipts.committed()
        if not self._is_named:
            self._is_named = True
            self._link.start()
        self._link.wake()

    def told(self) -> str:
        """Say where we are connected, and to which topics."""
        told = self._link.told()
        return told and f"{told}, {listed(self._source.topics)}"

    def close(self) -> None:
        """Disconnect; the broker keeps what is unacknowledged."""
        self._link.close()

    def connected(self, client: LateClient, kept: bool, limits: Properties) -> None:
        """Subscribe, unless the session has just been continued; an earlier run may have subscribed to other topics."""
        with self._changed:
            self._replies.clear()
            self._ping = None
            self._receipts.connected(kept=kept)
        if self._subscribed and not kept and self._source.qos:
            log.warning(
                "%s has lost our session %s; what was sent while we were away is lost with it",
                self._source.address,
                self._client_id,
            )
        if not kept or not self._has_subscribed:
            self._subscribe(client, self._subscribed if kept else [])

    def has_room(self) -> bool:
        """Whether the backlog has room."""
        return len(self._backlog) < BACKLOG_MAX and self._backlog_bytes < BACKLOG_BYTES_MAX

    def send(self, client: LateClient) -> None:
        """Send the replies that are due, and at times a ping, whose answer confirms them."""
        with self._changed:
            replies, self._replies = self._replies, deque()
            self._receipts.told(replies)
        for reply, packet_id in replies:
            _reply(client, reply, packet_id)
        if self._should_ping(time.monotonic()):
            self._ping = client.ping()
            with self._changed:
                self._receipts.pinged()

    def lost(self) -> None:
        """Do nothing: messages that are here stay, and the link connects again."""

    def failed(self, failure: ConnectorError) -> None:
        """Raise the failure in the next poll."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def _prepare(self, client: LateClient) -> None:
        client.on_incoming = self._on_incoming
        client.on_released = self._on_released
        client.on_pong = self._on_pong
        client.on_subscribe = self._on_subscribe

    def _has_news(self) -> bool:
        if self._failure is not None or not self._is_named:
            return True
        return bool(self._backlog) or self._refused > 0 or self._receipts.needs_commit

    def _should_ping(self, now_s: float) -> bool:
        told = self._receipts.told_count
        if self._ping is not None or not told or (told < PING_REPLIES and now_s - self._pinged_s < PING_S):
            return False
        self._pinged_s = now_s
        return True

    def _on_pong(self, number: int) -> None:
        if self._ping is not None and number >= self._ping:
            self._ping = None
            with self._changed:
                self._receipts.answered()

    def _taken(self, count: int) -> list[MqttMessage]:
        had_room = self.has_room()
        taken = [self._backlog.popleft() for _ in range(min(count, len(self._backlog)))]
        self._backlog_bytes -= sum(map(_size, taken))
        if not had_room:
            self._link.wake()
        return taken

    def _put_back(self, messages: list[MqttMessage]) -> None:
        self._backlog.extendleft(reversed(messages))
        self._backlog_bytes += sum(map(_size, messages))

    def _rows(self, messages: list[MqttMessage], read: ReadRows) -> Rows:
        position = {
            "client": self._client_id,
            "topics": self._subscribed,
            **self._receipts.polled(one.receipt for one in messages if one.receipt is not None),
            **self._messages.remembered(),
        }
        refused, self._refused = self._refused, 0
        due_us = messages[0].arrived_us if messages else None
        return Rows(read.batch, position, due_us, refused, read.unparsable)

    def _subscribe(self, client: LateClient, before: list[str]) -> None:
        gone = [topic for topic in before if topic not in self._source.topics]
        if gone:
            client.unsubscribe(gone)
        if self._source.version == "5":
            # Retained messages come with a new subscription, but not again with one that the broker has already.
            options = SubscribeOptions(qos=self._source.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
            client.subscribe([(topic, options) for topic in self._source.topics])
        else:
            client.subscribe([(topic, self._source.qos) for topic in self._source.topics])

    def _on_subscribe(
        self, client: Client, userdata: Any, packet_id: int, reasons: list[ReasonCode], properties: Properties | None
    ) -> None:
        for topic, reason in zip(self._source.topics, reasons, strict=False):
            if reason.is_failure:
                self._refuse(f"does not let us subscribe to {quoted(topic)}: {reason}; check what it allows this user")
            elif reason.value < self._source.qos:
                self._refuse(f"grants only QoS {reason.value} for {quoted(topic)}; pass qos={reason.value}")
        self._subscribed = list(self._source.topics)
        self._has_subscribed = True

    def _refuse(self, what: str) -> None:
        self._link.refuse(ConnectorError(f"{self._source.address} {what}"))

    def _on_incoming(self, came: IncomingMessage) -> None:
        receipt = None
        with self._changed:
            if came.qos:
                check = zlib.crc32(came.payload, zlib.crc32(came.topic))
                verdict, receipt = self._receipts.arrived(came.packet_id, came.qos, check, again=came.is_again)
                if receipt is None:
                    self._refused += 1
                    if verdict is Verdict.STORED:
                        self._replies.append((first_reply(came.qos), came.packet_id))
                    self._changed.notify_all()
                    return
            message = self._message(came, receipt)
            self._backlog.append(message)
            self._backlog_bytes += _size(message)
            if len(self._backlog) == 1:
                self._changed.notify_all()

    def _message(self, came: IncomingMessage, receipt: Receipt | None) -> MqttMessage:
        problem, payload, size_max = None, came.payload, self._source.payload_bytes_max
        if len(payload) > size_max:
            problem, payload = f"has {len(payload)} bytes, more than payload_bytes_max={size_max}", b""
        try:
            topic = came.topic.decode()
        except UnicodeDecodeError:
            topic, problem = repr(came.topic), "has a topic that is not UTF-8 text"
        return MqttMessage(topic, payload, came.is_retained, time.time_ns() // 1_000, receipt, problem)

    def _on_released(self, packet_id: int) -> None:
        with self._changed:
            if self._receipts.released(packet_id):
                self._replies.append((Reply.COMPLETED, packet_id))
            else:
                self._changed.notify_all()


def _client_id(source: MqttSource, position: Position | None) -> str:
    """Return our client id: the user's, the one in the position, or a new one."""
    if source.client_id is not None:
        return source.client_id
    return new_client_id() if position is None else position["client"]


def _reply(client: LateClient, reply: Reply, packet_id: int) -> None:
    match reply:
        case Reply.ACKNOWLEDGED:
            client.ack(packet_id, 1)
        case Reply.RECEIVED:
            client.received(packet_id)
        case Reply.COMPLETED:
            client.ack(packet_id, 2)


def _size(message: MqttMessage) -> int:
    return MESSAGE_BYTES + len(message.payload)
