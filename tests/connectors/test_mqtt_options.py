"""What stands behind the `?` of a broker's address is what the arguments of the same names say."""

from typing import Any

import pytest

import headwater as hw
from headwater.connectors.mqtt.options import READING, WRITING, joined, split
from headwater.connectors.mqtt.source import MqttSource
from headwater.model.errors import FlowError
from tests.connectors.polls import spec_of

SECRET = "s3cr3t-Pa55"

OF_BOTH: list[tuple[str, dict[str, Any]]] = [
    ("qos=2", {"qos": 2}),
    ("version=3.1.1", {"version": "3.1.1"}),
    ("client_id=gate%201", {"client_id": "gate 1"}),
    ("username=gauge&password_file=/etc/gauge", {"username": "gauge", "password_file": "/etc/gauge"}),
    (
        "tls_ca=/a+b.pem&tls_cert=c.pem&tls_key=k.pem",
        {"tls_ca": "/a+b.pem", "tls_cert": "c.pem", "tls_key": "k.pem"},
    ),
    ("keepalive=10 s&inflight=9", {"keepalive": "10 s", "inflight": 9}),
    ("will=status/x&will_payload=gone", {"will": hw.to.will("status/x", "gone")}),
    (
        "will=s&will_payload=gone&will_qos=0&will_retain=false",
        {"will": hw.to.will("s", "gone", qos=0, retain=False)},
    ),
]
OF_SOURCES: list[tuple[str, dict[str, Any]]] = [
    ("shared=plant&session_expiry=1 hour", {"shared": "plant", "session_expiry": "1 hour"}),
    ("bad_messages=skip&payload_bytes_max=10", {"bad_messages": "skip", "payload_bytes_max": 10}),
]


@pytest.mark.parametrize(("written", "arguments"), [*OF_BOTH, *OF_SOURCES])
def test_a_source_takes_them(written: str, arguments: dict[str, Any]) -> None:
    said = spec_of(hw.read.mqtt(f"mqtts://host/city/#?{written}"))
    assert said == spec_of(hw.read.mqtt("mqtts://host/city/#", **arguments))
    assert said != spec_of(hw.read.mqtt("mqtts://host/city/#"))


@pytest.mark.parametrize(("written", "arguments"), [*OF_BOTH, ("retain=true", {"retain": True})])
def test_a_sink_takes_them(written: str, arguments: dict[str, Any]) -> None:
    said = hw.to.mqtt(f"mqtts://host/city?{written}")
    assert said == hw.to.mqtt("mqtts://host/city", **arguments)
    assert said != hw.to.mqtt("mqtts://host/city")


def test_every_option_is_tried_above() -> None:
    def tried(cases: list[tuple[str, dict[str, Any]]]) -> set[str]:
        return {option.partition("=")[0] for written, _ in cases for option in written.split("&")}

    assert tried([*OF_BOTH, *OF_SOURCES]) == READING.keys()
    assert tried(OF_BOTH) | {"retain"} == WRITING.keys()


def test_what_the_address_says_goes_before_what_the_code_says() -> None:
    spec = spec_of(hw.read.mqtt("mqtt://host/t?qos=0", qos=2, version="3.1.1"))
    assert isinstance(spec, MqttSource)
    assert (spec.qos, spec.version) == (0, "3.1.1")


def test_a_question_mark_of_a_topic_is_written_with_a_percent_sign() -> None:
    spec = spec_of(hw.read.mqtt("mqtt://host/a%3Fb?qos=0"))
    assert isinstance(spec, MqttSource)
    assert (spec.topics, spec.qos) == (("a?b",), 0)


@pytest.mark.parametrize("address", ["mqtts://host", "mqtts://host:8884", "mqtts://u:p@host", "mqtts://u:p%3Fw@host:1"])
def test_options_need_no_topic_before_them(address: str) -> None:
    """Where the code names the topics; a slash in an option begins none."""
    assert split(f"{address}?tls_ca=/ca.pem&qos=2") == (address, {"tls_ca": "/ca.pem", "qos": "2"})
    said: dict[str, Any] = {"tls_ca": "/ca.pem", "qos": 2}
    written = f"{address}?tls_ca=/ca.pem&qos=2"
    assert spec_of(hw.read.mqtt(written, ["a"])) == spec_of(hw.read.mqtt(address, ["a"], **said))
    assert hw.to.mqtt(f"{written}&retain=true", "a") == hw.to.mqtt(address, "a", retain=True, **said)


def test_an_address_can_be_taken_apart_and_put_together() -> None:
    address, said = split("mqtt://u@host/a/#?client_id=a%26b&will=%2Fs")
    assert (address, said) == ("mqtt://u@host/a/#", {"client_id": "a&b", "will": "/s"})
    assert split(joined(address, said)) == (address, said)
    assert joined("mqtt://host/t", {}) == "mqtt://host/t"
    assert split("mqtt://host") == ("mqtt://host", {})


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mqtt://host/t?qos=high", "qos=high of the address is not a whole number"),
        ("mqtt://host/t?qos=3", "qos=3 is not a quality of service"),
        ("mqtt://host/t?qos", "qos= of the address is not a whole number"),
        ("mqtt://host/t?client_id=", "client_id= of the address is empty"),
        ("mqtt://host/t?version=4", "version='4' of MQTT is not known"),
        ("mqtt://host/t?qos=1&qos=2", "an option twice"),
        ("mqtt://host/t?quality=1", "an option quality, which is not known here; known are qos, "),
        ("mqtt://host/t?tls_ca=x", "write mqtts://"),
        ("mqtt://host/t?will=status", "give will=TOPIC and will_payload=TEXT"),
        ("mqtt://host/t?will_payload=gone", "give will=TOPIC and will_payload=TEXT"),
        ("mqtt://host/t?will=a/%2B&will_payload=gone", "without"),
        ("mqtt://host/t?will=s&will_payload=gone&will_retain=yes", "will_retain=yes of the address is neither true"),
        (f"mqtt://u@host/t?password={SECRET}", "give password_file=, or HEADWATER_MQTT_PASSWORD"),
        (f"mqtt://u:a?{SECRET}@host/t", "is not host or host:port"),
        (f"mqtt://host/t?{SECRET}@b", "an option with a strange name"),
        (f"mqtt://u:{SECRET}?a@host", "is not host or host:port"),
        (f"mqtt://u:a?{SECRET}&b/c@host/t", "is not host or host:port"),
        ("mqtt://host?qos=1", "topic"),
        ("mqtt://?qos=1", "names no host"),
    ],
)
def test_what_is_wrong_is_named_and_no_password_shown(url: str, told: str) -> None:
    for connect in (hw.read.mqtt, hw.to.mqtt):
        with pytest.raises(FlowError, match=told.replace("?", r"\?")) as refused:
            connect(url)
        assert SECRET not in str(refused.value)


def test_what_only_one_end_knows_is_refused_by_the_other() -> None:
    with pytest.raises(FlowError, match="an option retain, which is not known here"):
        hw.read.mqtt("mqtt://host/t?retain=true")
    with pytest.raises(FlowError, match="an option shared, which is not known here"):
        hw.to.mqtt("mqtt://host/t?shared=plant")
