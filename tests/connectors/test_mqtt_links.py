"""Being let in by a broker, and waiting for one: passwords and outages."""

import logging
import socket
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.connectors.mqtt import link as mqtt_link
from headwater.connectors.mqtt import outages as mqtt_outages
from headwater.model.errors import ConnectorError
from tests.connectors.brokers import SECRET, Broker, eventually, free_port, passwords
from tests.connectors.mqtt_flows import Drive, numbers, reading, sent
from tests.connectors.polls import batch_of


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A broker that wants a user name and a password, and lets the user read and write below `mine/` only."""
    directory = tmp_path_factory.mktemp("guarded")
    (directory / "acl").write_text("user gauge\ntopic readwrite mine/#\n")
    settings = (f"password_file {passwords(directory)}", f"acl_file {directory}/acl", "allow_anonymous false")
    broker = Broker(directory, *settings).start()
    yield broker
    broker.kill()


def refusal(stream: hw.Stream) -> str:
    """Return with which sentence a source stops."""
    drive = Drive(stream)
    drive.step()
    with pytest.raises(ConnectorError) as told:
        drive.until(lambda drive: False)
    drive.close()
    return str(told.value)


def with_password(broker: Broker, secret: str = SECRET) -> str:
    """Return the broker's URL with user and password."""
    return broker.url.replace("//", f"//gauge:{secret}@")


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_the_right_password_is_let_in(guarded: Broker, topic: str, version: Any) -> None:
    sent(hw.to.mqtt(f"{with_password(guarded)}/mine/{topic}", version=version, retain=True), batch_of(n=[1]))
    drive = Drive(hw.read.mqtt(f"{with_password(guarded)}/mine/{topic}", version=version))
    assert drive.until_rows(1) == [1]
    drive.close()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("secret", ["wrong", None])
def test_a_wrong_password_stops_with_a_sentence_that_does_not_show_it(
    guarded: Broker, version: Any, secret: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = guarded.url if secret is None else with_password(guarded, secret)
    told = refusal(hw.read.mqtt(f"{url}/mine/x", version=version))
    assert told.startswith(f"{guarded.url} refuses the connection: ")
    assert "password_file=" in told
    with pytest.raises(ConnectorError, match="refuses the connection") as sunk:
        sent(hw.to.mqtt(f"{url}/mine/x", version=version), batch_of(n=[1]))
    assert "wrong" not in told + str(sunk.value) + caplog.text


def test_a_password_may_be_in_a_file_or_in_the_environment(
    guarded: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text(f"{SECRET}\n")
    url = f"{guarded.url}/mine/{topic}"
    sent(hw.to.mqtt(url, username="gauge", password_file=tmp_path / "password", retain=True), batch_of(n=[1]))
    monkeypatch.setenv("HEADWATER_MQTT_USERNAME", "gauge")
    monkeypatch.setenv("HEADWATER_MQTT_PASSWORD", SECRET)
    drive = Drive(hw.read.mqtt(url))
    assert drive.until_rows(1) == [1]
    drive.close()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_topic_that_is_not_allowed_stops_with_a_sentence(tmp_path: Path, version: Any) -> None:
    """By mosquitto's plugin, since its files of rules say nothing of subscriptions."""
    plugin = next(Path("/usr/lib").rglob("mosquitto_dynamic_security.so"), None)
    if plugin is None:
        pytest.skip("this mosquitto comes without its plugin for dynamic security")
    (tmp_path / "rules.json").write_text('{"defaultACLAccess": {"subscribe": false}}')
    rules = (f"plugin {plugin}", f"plugin_opt_config_file {tmp_path}/rules.json", "allow_anonymous true")
    broker = Broker(tmp_path, *rules).start()
    assert "does not let us subscribe to 't'" in refusal(hw.read.mqtt(f"{broker.url}/t", version=version))
    broker.kill()


def test_a_broker_that_grants_less_than_was_asked_for_stops_with_a_sentence(tmp_path: Path) -> None:
    broker = Broker(tmp_path, listener=("max_qos 1",)).start()
    assert "grants only QoS 1 for 't'; pass qos=1" in refusal(hw.read.mqtt(f"{broker.url}/t", qos=2))
    with pytest.raises(ConnectorError, match="takes only QoS 1; pass qos=1"):
        sent(hw.to.mqtt(f"{broker.url}/t", qos=2), batch_of(n=[1]))
    broker.kill()


def test_a_broker_that_is_down_at_the_start_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(tmp_path)
    drive = Drive(hw.read.mqtt(f"{broker.url}/t"))
    drive.step()
    eventually(lambda: "cannot be reached" in caplog.text)
    broker.start()
    eventually(lambda: broker.logged("Sending SUBACK"))
    broker.publish("t", numbers(0, 3))
    assert drive.until_rows(3) == [0, 1, 2]
    drive.close()
    broker.kill()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_broker_that_stops_in_the_middle_delivers_each_message_once(broker: Broker, qos: int, version: Any) -> None:
    """It keeps its state when it stops; each message that it sends again is recognised."""
    with reading(broker, "t", qos=qos, version=version) as drive:
        drive.close()
        broker.publish("t", numbers(0, 300), qos=2)
        drive.open()
        for stop_at in (50, 150, 250):
            while len(drive.rows) < stop_at:
                drive.step(rows_max=7)
            broker.stop()
            broker.start()
        assert drive.until_rows(300) == list(range(300))


@pytest.mark.parametrize("qos", [1, 2])
def test_a_broker_that_is_killed_delivers_once_what_it_has_kept(broker: Broker, qos: int) -> None:
    with reading(broker, "t", qos=qos) as drive:
        drive.close()
        broker.publish("t", numbers(0, 100), qos=2)
        broker.keep()
        broker.kill()
        broker.start()
        drive.open()
        assert drive.until_rows(100) == list(range(100))


def test_a_broker_that_is_killed_in_the_middle_makes_us_lose_nothing(broker: Broker) -> None:
    """It comes back with an older state, and sends as new what it had sent before: more than once, but never less."""
    with reading(broker, "t") as drive:
        drive.close()
        broker.publish("t", numbers(0, 100), qos=2)
        broker.keep()
        drive.open()
        while len(drive.rows) < 40:
            drive.step(rows_max=7)
        broker.kill()
        broker.start()
        drive.until(lambda drive: len(set(drive.numbers)) == 100)


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("stage", ["came", "stored", "released"])
def test_a_killed_broker_that_sends_again_what_was_not_completed_is_recognised(
    broker: Broker, stage: str, version: Any
) -> None:
    """It was killed before it saved that it had sent the messages, so they come without the mark of a duplicate."""
    with reading(broker, "t", qos=2, version=version) as drive:
        drive.close()
        broker.publish("t", numbers(0, 20), qos=2)
        broker.keep()
        drive.open()
        polled = [drive.poll(rows_max=1) for _ in range(20)]
        for rows in polled if stage != "came" else ():
            drive.commit(rows)
        if stage == "released":
            drive.reader.stored(rows.position)
            eventually(
                lambda: broker.logged("Sending PUBREL to", drive.client_id) == 20, "the broker has released them"
            )
        broker.kill()
        broker.start()
        eventually(lambda: broker.logged("Sending PUBLISH to", drive.client_id, "(d0, q2") >= 40, "it sends them again")
        for rows in polled if stage == "came" else ():
            drive.commit(rows)
        drive.reader.stored(polled[-1].position)
        broker.publish("t", numbers(20, 21), qos=2)
        assert drive.until_rows(21) == list(range(21))
        assert drive.refused == 20


def test_a_broker_that_lost_our_session_is_subscribed_to_again(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed without having kept anything. What had come stays, and packet ids that start over confuse nobody."""
    with reading(broker, "t", qos=2) as drive:
        broker.publish("t", numbers(0, 3), qos=2)
        assert drive.until_rows(3) == [0, 1, 2]
        broker.kill()
        broker.start()
        drive.until(lambda drive: broker.logged("Sending SUBACK") == 2)
        broker.publish("t", numbers(3, 6), qos=2)
        assert drive.until_rows(6) == [0, 1, 2, 3, 4, 5]
        assert "has lost our session" in caplog.text


def test_an_outage_is_told_once_when_it_begins_and_once_when_it_ends(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it was tried in between."""
    with reading(broker, "t"):
        broker.stop()
        with socket.create_server(("127.0.0.1", broker.port)) as deaf:
            for _ in range(3):
                deaf.accept()[0].close()
        broker.start()
        eventually(lambda: "is back after" in caplog.text)
    told = [record.getMessage() for record in caplog.records if record.name == mqtt_outages.__name__]
    assert [broker.url in one for one in told] == [True, True]
    assert "cannot be reached" in told[0]
    assert "is back after" in told[1]


def test_two_clients_of_one_name_are_told_of_one_another(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with reading(broker, "t", client_id="same"), reading(broker, "t", client_id="same"):
        eventually(lambda: "perhaps another client has our client id same" in caplog.text)


def test_a_port_where_nobody_speaks_mqtt_is_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_link, "ANSWER_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        drive = Drive(hw.read.mqtt(f"mqtt://127.0.0.1:{silent.getsockname()[1]}/t"))
        drive.step()
        eventually(lambda: "it took the connection and said nothing" in caplog.text)
        drive.close()


def test_nonsense_from_a_broker_is_a_lost_connection(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as babbler:
        drive = Drive(hw.read.mqtt(f"mqtt://127.0.0.1:{babbler.getsockname()[1]}/t"))
        drive.step()
        for nonsense in (b"\x20\xff\xff\xff\xff\xff", b"\x30\x02\x00\xff", b"HTTP/1.1 400 Bad Request\r\n\r\n"):
            connection, _ = babbler.accept()
            connection.sendall(nonsense)
            connection.close()
        eventually(lambda: "cannot be reached" in caplog.text)
        babbler.accept()[0].close()  # it comes back all the same
        drive.close()


def test_a_password_file_that_cannot_be_read_is_told(shared_broker: Broker, tmp_path: Path) -> None:
    url = f"{shared_broker.url}/t"
    with pytest.raises(ConnectorError, match=r"password_file='.*missing' cannot be read: No such file"):
        sent(hw.to.mqtt(url, username="u", password_file=tmp_path / "missing"), batch_of(n=[1]))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConnectorError, match=r"password_file='.*bytes' is not UTF-8"):
        sent(hw.to.mqtt(url, username="u", password_file=tmp_path / "bytes"), batch_of(n=[1]))


def test_nobody_listens_and_the_reader_still_closes() -> None:
    drive = Drive(hw.read.mqtt(f"mqtt://127.0.0.1:{free_port()}/t"))
    drive.step()
    drive.close()
    assert not drive.reader._link._thread.is_alive()
