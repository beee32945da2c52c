"""Writing to a broker: a write ends when the broker has every row, and waits for as long as that takes."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.connectors.mqtt.sink import MqttSink, MqttWriter
from headwater.dataflow.connectors import Position
from headwater.model.errors import ConnectorError, FlowError, SchemaMismatch
from tests.connectors.brokers import PATIENCE_S, Broker, Visitor, eventually
from tests.connectors.mqtt_flows import sent
from tests.connectors.polls import batch_of

VERSIONS = ("5", "3.1.1")


def opened(sink: MqttSink, position: Position | None = None) -> MqttWriter:
    """Return a writer."""
    writer = sink.open(position)
    assert isinstance(writer, MqttWriter)
    return writer


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_rows_become_messages_in_their_order(shared_broker: Broker, topic: str, qos: int, version: Any) -> None:
    """More of them than may be under way."""
    with Visitor(shared_broker, topic) as visitor:
        sink = hw.to.mqtt(f"{shared_broker.url}/{topic}", qos=qos, version=version, inflight=30)
        position = sent(sink, batch_of(n=range(100)), batch_of(n=range(100, 130)))
        assert visitor.take(130) == [b'{"n":%d}' % n for n in range(130)]
        assert position["rows"] == 130


@pytest.mark.parametrize("qos", [1, 2])
def test_a_write_returns_when_the_broker_has_answered_for_every_row(
    shared_broker: Broker, topic: str, qos: int
) -> None:
    sent(hw.to.mqtt(f"{shared_broker.url}/{topic}", qos=qos, client_id=f"w-{qos}"), batch_of(n=range(25)))
    assert shared_broker.logged("Sending PUBACK" if qos == 1 else "Sending PUBCOMP", f"to w-{qos}") == 25


def test_each_row_goes_to_the_topic_that_its_columns_name(shared_broker: Broker, topic: str) -> None:
    with Visitor(shared_broker, f"{topic}/#") as visitor:
        sink = hw.to.mqtt(shared_broker.url, f"{topic}/{{city}}/{{n}}")
        sent(sink, batch_of(city=["geneva", "rio"], n=[1, 2]))
        came = [visitor.next() for _ in range(2)]
        assert [one.topic for one in came] == [f"{topic}/geneva/1", f"{topic}/rio/2"]
        assert came[1].payload == b'{"city":"rio","n":2}'


def test_a_template_may_stand_in_the_url(shared_broker: Broker, topic: str) -> None:
    with Visitor(shared_broker, f"{topic}/#") as visitor:
        sent(hw.to.mqtt(f"{shared_broker.url}/{topic}/%7Bcity%7D"), batch_of(city=["rio"]))
        assert visitor.next().topic == f"{topic}/rio"


@pytest.mark.parametrize(
    ("how", "columns", "payloads"),
    [
        ({"format": "text"}, {"line": ["a,b", None, "two\nlines"]}, [b"a,b", b"", b"two\nlines"]),
        ({"format": "text", "column": "said"}, {"said": ["hi"], "n": [1]}, [b"hi"]),
        ({"format": "bytes"}, {"payload": [b"\x00\xff", None]}, [b"\x00\xff", b""]),
        ({"format": "bytes", "column": "raw"}, {"raw": [b"x"]}, [b"x"]),
        (
            {"format": "senml"},
            {"name": ["a"], "time": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], "value": [1.5]},
            [b'[{"n":"a","t":1767225600.0,"v":1.5}]'],
        ),
    ],
)
def test_payloads_are_written_as_the_format_says(
    shared_broker: Broker, topic: str, how: dict[str, Any], columns: dict[str, Any], payloads: list[bytes]
) -> None:
    with Visitor(shared_broker, topic) as visitor:
        sent(hw.to.mqtt(f"{shared_broker.url}/{topic}", **how), batch_of(**columns))
        assert visitor.take(len(payloads)) == payloads


def test_a_retained_message_is_there_for_whoever_comes_later(shared_broker: Broker, topic: str) -> None:
    sent(hw.to.mqtt(f"{shared_broker.url}/{topic}", retain=True), batch_of(n=[1, 2]))
    with Visitor(shared_broker, topic) as visitor:
        late = visitor.next()
        assert (late.payload, late.retain) == (b'{"n":2}', True)


def test_a_broker_that_is_down_at_the_start_delays_a_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(tmp_path)
    writer = opened(hw.to.mqtt(f"{broker.url}/t", retain=True))
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(writer.write, [batch_of(n=[7])])
        eventually(lambda: "cannot be reached" in caplog.text)
        assert not writing.done()
        broker.start()
        assert writing.result(PATIENCE_S)["rows"] == 1
    writer.close()
    with Visitor(broker, "t") as visitor:
        assert visitor.take(1) == [b'{"n":7}']
    broker.kill()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_restarts_in_the_middle_loses_no_row(broker: Broker, qos: int, version: Any) -> None:
    """A subscriber with a session sees every row; a row again only where its answer was cut off."""
    Visitor(broker, "t", client_id="witness", qos=qos).leave()
    writer = opened(hw.to.mqtt(f"{broker.url}/t", qos=qos, version=version, inflight=10))
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(writer.write, [batch_of(n=range(600))])
        eventually(lambda: broker.logged("Received PUBLISH") > 50)
        broker.stop()
        broker.start()
        assert writing.result(PATIENCE_S)["rows"] == 600
    writer.close()
    with Visitor(broker, client_id="witness") as witness:
        seen: list[int] = []
        while len(set(seen)) < 600:
            seen.append(int(witness.next().payload[5:-1]))
        assert sorted(set(seen)) == list(range(600))
        assert len(seen) <= 600 + 10


def test_a_write_that_waits_for_a_broker_can_be_interrupted(tmp_path: Path) -> None:
    writer = opened(hw.to.mqtt(f"{Broker(tmp_path).url}/t"))
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(writer.write, [batch_of(n=[1])])
        writer.interrupt()
        with pytest.raises(ConnectorError, match="closed before the broker had all rows"):
            writing.result(PATIENCE_S)
    writer.close()


def test_a_goodbye_keeps_the_last_will_unsaid_and_a_lost_connection_does_not(shared_broker: Broker, topic: str) -> None:
    will = hw.to.will(f"{topic}/will", "gone", retain=False)
    with Visitor(shared_broker, f"{topic}/will", f"{topic}/after") as visitor:
        for name in ("polite", "rude"):
            writer = opened(hw.to.mqtt(f"{shared_broker.url}/{topic}", will=will, client_id=f"{name}-{topic}"))
            writer.write([batch_of(n=[1])])
            if name == "rude":
                with Visitor(shared_broker, client_id=f"rude-{topic}"):  # takes the connection over, which ends it
                    assert visitor.take(1) == [b"gone"]
            writer.close()
            if name == "polite":
                shared_broker.publish(f"{topic}/after", [b"nothing came before this"])
                assert visitor.take(1) == [b"nothing came before this"]


def test_a_restart_goes_on_with_the_same_client_and_count(shared_broker: Broker, topic: str) -> None:
    sink = hw.to.mqtt(f"{shared_broker.url}/{topic}")
    before = sent(sink, batch_of(n=[1, 2]))
    writer = opened(sink, before)
    assert writer.write([batch_of(n=[3])]) == {"client": before["client"], "rows": 3}
    writer.close()


def test_rows_that_a_broker_must_not_take_are_told(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic write allowed/#\n")
    broker = Broker(tmp_path, "allow_anonymous true", f"acl_file {tmp_path}/acl").start()
    for qos in (1, 2):
        with pytest.raises(ConnectorError, match="topic 'forbidden': we are not allowed to send to it"):
            sent(hw.to.mqtt(f"{broker.url}/forbidden", qos=qos), batch_of(n=[1]))
        sent(hw.to.mqtt(f"{broker.url}/allowed/x", qos=qos), batch_of(n=[1]))
    broker.kill()


def test_a_row_larger_than_the_broker_takes_is_told(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "allow_anonymous true", "max_packet_size 1000").start()
    with pytest.raises(ConnectorError, match=r"takes packets of 1000 bytes, but a row for topic 't' is 2\d\d\d"):
        sent(hw.to.mqtt(f"{broker.url}/t"), batch_of(text=["x" * 2_000]))
    broker.kill()


@pytest.mark.parametrize(
    ("how", "columns", "told"),
    [
        ({"topic": "a/{city}"}, {"n": [1]}, "names column 'city', but rows have only: n"),
        ({"topic": "a/{city}"}, {"city": ["x", None]}, "column 'city' is null in a row"),
        ({"topic": "a/{city}"}, {"city": ["x+y"]}, "makes a topic that MQTT does not allow"),
        ({"topic": "a", "format": "text"}, {"n": [1]}, "there is no column 'line', only: n"),
        ({"topic": "a", "format": "text", "column": "n"}, {"n": [1]}, "'n' is int64, not text"),
        ({"topic": "a", "format": "bytes"}, {"n": [1]}, "there is no column 'payload', only: n"),
        ({"topic": "a", "format": "bytes", "column": "n"}, {"n": [1]}, "'n' is int64, not binary"),
        ({"topic": "a", "format": "senml"}, {"n": [1]}, "no column 'name' to write as SenML"),
    ],
)
def test_rows_that_cannot_be_messages_are_told(
    shared_broker: Broker, how: dict[str, Any], columns: dict[str, Any], told: str
) -> None:
    with pytest.raises((ConnectorError, SchemaMismatch), match=told):
        sent(hw.to.mqtt(shared_broker.url, **how), batch_of(**columns))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({}, "give one topic to send to"),
        ({"topic": "a/#"}, "without \\+ and #"),
        ({"topic": "a/{}"}, "name a column between the braces"),
        ({"topic": "a/{city"}, "write a column as {name}"),
        ({"topic": "a/{city:>5}"}, "only plain {city} is known"),
        ({"topic": "a", "qos": 3}, "qos=3 is not a quality of service"),
        ({"topic": "a", "format": "xml"}, "format='xml' is not known"),
        ({"topic": "a", "column": "x"}, "column= is the one that format='text'"),
        ({"topic": "a", "version": "4"}, "version='4' of MQTT is not known"),
        ({"topic": "a", "inflight": 0}, "inflight=0 is not possible"),
        ({"topic": "a", "keepalive": "0 s"}, "keepalive=0 s is not possible"),
    ],
)
def test_a_sink_that_cannot_be_meant_is_refused(how: dict[str, Any], told: str) -> None:
    with pytest.raises(FlowError, match=told):
        hw.to.mqtt("mqtt://host", **how)


def test_a_will_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(FlowError, match="without"):
        hw.to.will("a/+", "gone")
    with pytest.raises(FlowError, match="qos=5"):
        hw.to.will("a", "gone", qos=5)


def test_a_sink_says_what_it_promises() -> None:
    for qos, guarantee in ((0, "at-most-once"), (1, "at-least-once"), (2, "at-least-once")):
        assert hw.to.mqtt("mqtt://host/t", qos=qos).guarantee == guarantee


def test_binary_columns_of_json_are_base64(shared_broker: Broker, topic: str) -> None:
    with Visitor(shared_broker, topic) as visitor:
        sent(hw.to.mqtt(f"{shared_broker.url}/{topic}"), batch_of(raw=pa.array([b"hi"], pa.binary())))
        assert visitor.take(1) == [b'{"raw":"aGk="}']
