"""Reading from a broker: acknowledged when committed, kept while we are away, taken once."""

from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.model.errors import ConnectorError
from tests.connectors.brokers import Broker, Visitor, eventually
from tests.connectors.mqtt_flows import Drive, numbers, reading
from tests.connectors.polls import spec_of

VERSIONS = ("5", "3.1.1")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_become_rows_in_their_order(shared_broker: Broker, topic: str, qos: int, version: Any) -> None:
    with reading(shared_broker, topic, qos=qos, version=version) as drive:
        shared_broker.publish(topic, numbers(0, 50), qos=qos)
        assert drive.until_rows(50) == list(range(50))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_is_polled_but_not_committed_is_still_the_brokers(
    shared_broker: Broker, topic: str, qos: int, version: Any
) -> None:
    """Another client that takes over our session is sent the message again, whole: it was not acknowledged."""
    with reading(shared_broker, topic, qos=qos, version=version) as drive:
        shared_broker.publish(topic, [b'{"n": 1}', b'{"n": 2}'], qos=qos)
        drive.step(rows_max=1)
        acknowledged = "PUBACK" if qos == 1 else "PUBREC"
        eventually(lambda: shared_broker.logged(f"Received {acknowledged} from {drive.client_id}") == 1)
        assert drive.poll(rows_max=1).batch.to_pylist() == [{"n": 2}]
        with Visitor(shared_broker, client_id=drive.client_id) as heir:
            again = heir.next()
            assert (again.payload, again.dup) == (b'{"n": 2}', True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_sent_while_we_are_away_waits_for_us(shared_broker: Broker, topic: str, qos: int, version: Any) -> None:
    with reading(shared_broker, topic, qos=qos, version=version) as drive:
        drive.close()
        shared_broker.publish(topic, numbers(0, 5), qos=qos)
        drive.open()
        assert drive.until_rows(5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_is_committed_and_was_not_acknowledged_is_refused_when_it_comes_again(
    shared_broker: Broker, topic: str, qos: int, version: Any
) -> None:
    """Killed between the commit and the acknowledgement."""
    with reading(shared_broker, topic, qos=qos, version=version) as drive:
        shared_broker.publish(topic, numbers(0, 3), qos=qos)
        while len(drive.rows) < 3:
            drive.commit(drive.poll())
        drive.reopen()
        drive.until(lambda drive: drive.refused == 3)
        shared_broker.publish(topic, numbers(3, 4), qos=qos)
        assert drive.until_rows(4) == [0, 1, 2, 3]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_position_remembers_only_what_the_broker_has_not_confirmed(
    shared_broker: Broker, topic: str, qos: int
) -> None:
    """Its answer to a ping says that it has heard what was sent before."""
    with reading(shared_broker, topic, qos=qos) as drive:
        shared_broker.publish(topic, numbers(0, 200), qos=qos)
        drive.until_rows(200)
        last = "PUBACK" if qos == 1 else "PUBCOMP"
        drive.until(lambda drive: shared_broker.logged(f"Received {last} from", drive.client_id) == 200)
        drive.until(lambda drive: not drive.reader._receipts._done)
        shared_broker.publish(topic, numbers(200, 201), qos=qos)
        drive.until_rows(201)
        assert drive.position is not None
        assert len(drive.position["done"]) + len(drive.position["received"]) == 6


def test_an_equal_message_behind_a_committed_one_is_another_message(shared_broker: Broker, topic: str) -> None:
    with reading(shared_broker, topic) as drive:
        for _ in range(3):
            shared_broker.publish(topic, numbers(7, 8))
        assert drive.until_rows(3) == [7, 7, 7]
        assert drive.refused == 0


def test_the_broker_hears_of_a_client_id_only_when_it_is_committed(shared_broker: Broker, topic: str) -> None:
    """Else a session that nobody remembers would gather messages that nobody reads."""
    drive = Drive(hw.read.mqtt(f"{shared_broker.url}/{topic}"))
    first = drive.poll()
    assert first.batch.num_rows == 0
    assert isinstance(first.position["client"], str)
    assert shared_broker.logged(first.position["client"]) == 0
    drive.commit(first)
    drive.reader.stored(first.position)
    eventually(lambda: shared_broker.logged("New client connected", drive.client_id))
    drive.close()


def test_a_client_id_of_the_users_own_is_used(shared_broker: Broker, topic: str) -> None:
    with reading(shared_broker, topic, client_id="weather-station") as drive:
        assert drive.client_id == "weather-station"


def test_the_same_position_is_read_by_the_same_client(shared_broker: Broker, topic: str) -> None:
    with reading(shared_broker, topic) as drive:
        before = drive.client_id
        drive.reopen()
        shared_broker.publish(topic, numbers(0, 1))
        drive.until_rows(1)
        assert drive.client_id == before


def test_wildcards_and_several_topics_are_read_with_the_topic_of_each_row(shared_broker: Broker, topic: str) -> None:
    filters = [f"{topic}/+/dust", f"{topic}/street/#"]
    with reading(shared_broker, f"{topic}/one%2Ftwo", topics=filters, topic_column="where") as drive:
        for at in ("park/dust", "park/noise", "street/a/b", "one/two"):
            shared_broker.publish(f"{topic}/{at}", numbers(0, 1))
        drive.until_rows(3)
        found = [row["where"].removeprefix(f"{topic}/") for row in drive.rows]
        assert found == ["park/dust", "street/a/b", "one/two"]


def test_a_hash_in_the_url_is_a_wildcard(shared_broker: Broker, topic: str) -> None:
    with reading(shared_broker, f"{topic}/#") as drive:
        shared_broker.publish(f"{topic}/a/b/c", numbers(0, 1))
        assert drive.until_rows(1) == [0]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_divides_the_messages_among_its_readers(shared_broker: Broker, topic: str, version: Any) -> None:
    with (
        reading(shared_broker, topic, shared="group", version=version) as one,
        reading(shared_broker, topic, shared="group", version=version) as other,
    ):
        shared_broker.publish(topic, numbers(0, 40))
        while len(one.rows) + len(other.rows) < 40:
            one.turn()
            other.turn()
        assert one.rows
        assert other.rows
        assert sorted(one.numbers + other.numbers) == list(range(40))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_retained_message_comes_first_with_its_mark(shared_broker: Broker, topic: str, version: Any) -> None:
    shared_broker.publish(topic, numbers(0, 1), retain=True)
    with reading(shared_broker, topic, version=version, retained_column="old") as drive:
        drive.until_rows(1)
        shared_broker.publish(topic, numbers(1, 2))
        drive.until_rows(2)
        assert drive.rows == [{"n": 0, "old": True}, {"n": 1, "old": False}]


def test_a_retained_message_does_not_come_again_after_a_restart(shared_broker: Broker, topic: str) -> None:
    """Since MQTT 5; before, a broker sends it whenever a run begins."""
    shared_broker.publish(topic, numbers(0, 1), retain=True)
    with reading(shared_broker, topic) as drive:
        drive.until_rows(1)
        drive.reopen()
        shared_broker.publish(topic, numbers(1, 2))
        assert drive.until_rows(2) == [0, 1]


@pytest.mark.parametrize("version", VERSIONS)
def test_other_topics_are_read_by_the_same_session_when_the_flow_names_others(
    shared_broker: Broker, topic: str, version: Any
) -> None:
    with reading(shared_broker, f"{topic}/old", version=version, client_id=f"moved {topic}") as before:
        shared_broker.publish(f"{topic}/old", numbers(0, 1))
        before.until_rows(1)
        before.close()
        after = Drive(hw.read.mqtt(f"{shared_broker.url}/{topic}/new", version=version, client_id=f"moved {topic}"))
        after.position = before.position
        after.reopen()
        eventually(lambda: shared_broker.logged("Sending UNSUBACK to", f"moved {topic}"))
        eventually(lambda: shared_broker.logged("Sending SUBACK to", f"moved {topic}") == 2)
        shared_broker.publish(f"{topic}/old", numbers(1, 2))
        shared_broker.publish(f"{topic}/new", numbers(2, 3))
        assert after.until_rows(1) == [2]
        after.close()


@pytest.mark.parametrize(("inflight", "sent"), [(3, 3), (50, 10)])
def test_no_more_messages_are_under_way_than_inflight_allows(
    shared_broker: Broker, topic: str, inflight: int, sent: int
) -> None:
    """A reader that commits nothing has the broker wait, and what waits is at the broker."""
    with reading(shared_broker, topic, inflight=inflight) as drive:
        shared_broker.publish(topic, numbers(0, 10))
        eventually(lambda: shared_broker.logged(f"Sending PUBLISH to {drive.client_id}") == sent)
        assert drive.until_rows(10) == list(range(10))


def test_a_bad_message_stops_the_source_behind_the_good_ones_before_it(shared_broker: Broker, topic: str) -> None:
    with reading(shared_broker, topic) as drive:
        shared_broker.publish(topic, [*numbers(0, 2), b"no json", *numbers(2, 3)])
        assert drive.until_rows(2) == [0, 1]
        with pytest.raises(ConnectorError, match=rf"topic '{topic}' is not JSON: .*bad_messages='skip'"):
            drive.poll()


def test_bad_messages_are_left_out_counted_and_acknowledged(shared_broker: Broker, topic: str) -> None:
    with reading(shared_broker, topic, bad_messages="skip", schema=pa.schema([("n", pa.int64())])) as drive:
        shared_broker.publish(topic, [b"[]", *numbers(0, 2), b"", b'{"n": "many"}', b"\xff", *numbers(2, 3)])
        assert drive.until(lambda drive: drive.unparsable == 4).until_rows(3) == [0, 1, 2]
        eventually(lambda: shared_broker.logged("Received PUBACK from", drive.client_id) == 7)


def test_a_payload_beyond_the_limit_is_a_bad_message(shared_broker: Broker, topic: str) -> None:
    with reading(shared_broker, topic, format="bytes", payload_bytes_max=1_000, bad_messages="skip") as drive:
        shared_broker.publish(topic, [b"x" * 1_000, b"y" * 1_001, b"z"])
        drive.until(lambda drive: drive.unparsable == 1 and len(drive.rows) == 2)
        assert [len(row["payload"]) for row in drive.rows] == [1_000, 1]
    with reading(shared_broker, topic, format="bytes", payload_bytes_max=10) as drive:
        shared_broker.publish(topic, [b"x" * 11])
        with pytest.raises(ConnectorError, match="has 11 bytes, more than payload_bytes_max=10"):
            drive.poll()


def test_a_large_payload_comes_whole(shared_broker: Broker, topic: str) -> None:
    payload = bytes(range(256)) * 4_000
    with reading(shared_broker, topic, format="bytes") as drive:
        shared_broker.publish(topic, [payload], qos=2)
        drive.until(lambda drive: bool(drive.rows))
        assert drive.rows[0]["payload"] == payload


def test_what_was_learnt_of_the_columns_outlives_a_restart(shared_broker: Broker, topic: str) -> None:
    with reading(shared_broker, topic) as drive:
        shared_broker.publish(topic, [b'{"n": 1, "x": 0.5}'])
        drive.until_rows(1)
        drive.reopen()
        shared_broker.publish(topic, [b'{"n": 2}'])
        drive.until_rows(2)
        assert drive.rows[1] == {"n": 2, "x": None}


@pytest.mark.parametrize(
    ("qos", "guarantee", "can_wait"),
    [(0, "at-most-once", False), (1, "at-least-once", True), (2, "exactly-once", True)],
)
def test_a_source_says_what_it_promises(qos: int, guarantee: str, can_wait: bool) -> None:
    spec = spec_of(hw.read.mqtt("mqtt://host/topic", qos=qos))
    assert (spec.kind, spec.blocking, spec.guarantee, spec.can_wait) == ("mqtt", True, guarantee, can_wait)
