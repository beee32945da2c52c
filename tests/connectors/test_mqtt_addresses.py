"""Where a broker is, as users write it, and what is never shown of it."""

import pickle
from typing import Any

import pytest

import headwater as hw
from headwater.connectors.mqtt.address import Address, parsed_url
from headwater.connectors.mqtt.outages import REST_S_MAX, REST_S_MIN, Outage
from headwater.model.errors import FlowError
from tests.connectors.polls import spec_of

SECRET = "s3cr3t-Pa55"
NO_SECRETS: Any = dict.fromkeys(("username", "password", "password_file", "tls_ca", "tls_cert", "tls_key"))


def test_a_password_is_shown_nowhere() -> None:
    stream = hw.read.mqtt(f"mqtt://gauge:{SECRET}@host:1/t", name="in")
    sink = hw.to.mqtt("mqtt://host/t", username="gauge", password=SECRET)
    flow = hw.flow("f", stream.sink(sink))
    graph = hw.compile_flow(flow)
    shown = [repr(one) for one in (spec_of(stream), sink, flow, graph, graph.declarations)]
    shown += [str(spec_of(stream)), graph.fingerprint]
    assert all(SECRET not in one for one in shown)
    assert "'***'" in shown[0]
    assert pickle.loads(pickle.dumps(sink)) == sink


@pytest.mark.parametrize(
    ("url", "how", "told"),
    [
        ("http://host/t", {}, "a broker is written mqtt://host/topic"),
        ("host/t", {}, "a broker is written mqtt://host/topic"),
        ("mqtt:///t", {}, "names no host"),
        ("mqtt://host:no/t", {}, "is not host or host:port"),
        ("mqtt://host:99999/t", {}, "is not host or host:port"),
        ("mqtt://host", {}, "no topic to read from mqtt://host:1883"),
        (f"mqtt://u:{SECRET}@host/t", {"password": "x"}, "the password is in the URL and in password="),
        (f"mqtt://u:{SECRET}@host/t", {"username": "x"}, "the user name is in the URL and in username="),
        (f"mqtt://u:{SECRET}@host/t", {"password_file": "x"}, "a password and a password_file="),
        ("mqtt://host/t", {"password": SECRET}, "a password but no user name"),
        ("mqtt://host/t", {"tls_ca": "x"}, "write mqtts://"),
        ("mqtts://host/t", {"tls_key": "x"}, "give tls_cert= as well"),
        ("mqtt://host/a/#/b", {}, "# stands alone"),
        ("mqtt://host/a+/b", {}, r"\+ stands for a whole level"),
        ("mqtt://host/%00", {}, "null character"),
        ("mqtt://host/" + "x" * 70_000, {}, "too long"),
        ("mqtt://host/$share/g", {}, r"\$share/GROUP/TOPIC"),
        ("mqtt://host/t", {"shared": "a/b"}, "cannot name a group"),
        ("mqtt://host/$share/g/t", {"shared": "g"}, "shared already"),
        ("mqtt://host/t", {"qos": 3}, "qos=3 is not a quality of service"),
        ("mqtt://host/t", {"format": "xml"}, "format='xml' is not known"),
        ("mqtt://host/t", {"bad_messages": "drop"}, "bad_messages='drop' is not known"),
        ("mqtt://host/t", {"payload_bytes_max": 0}, "payload_bytes_max=0"),
        ("mqtt://host/t", {"client_id": ""}, "client_id='' cannot be one"),
        ("mqtt://host/t", {"session_expiry": "200 weeks 9999999999 s"}, "is too long"),
        ("mqtt://host/t", {"format": "text", "topic_column": "line"}, "two columns 'line'"),
        ("mqtt://host/t", {"topic_column": "a", "retained_column": "a", "format": "bytes"}, "two columns 'a'"),
    ],
)
def test_a_source_that_cannot_be_meant_is_refused_without_showing_a_password(
    url: str, how: dict[str, Any], told: str
) -> None:
    with pytest.raises(FlowError, match=told) as refused:
        hw.read.mqtt(url, **how)
    assert SECRET not in str(refused.value)


def test_an_address_may_be_an_ipv6_one_and_a_topic_may_begin_with_a_slash() -> None:
    address, topic = parsed_url("mqtts://[::1]//a%20b/%3Fc#", **NO_SECRETS)
    assert (str(address), topic) == ("mqtts://[::1]:8883", "/a b/?c#")


def test_rests_grow_to_a_limit_and_are_never_all_the_same() -> None:
    rests = []
    outage = Outage(Address(host="host", port=1883), "us")
    for _ in range(40):
        outage.begin("gone")
        rests.append(outage.rest_s())
    assert REST_S_MIN / 2 <= rests[0] <= REST_S_MIN
    assert all(rest <= REST_S_MAX for rest in rests)
    assert all(rest >= REST_S_MAX / 2 for rest in rests[10:])
    assert len(set(rests[10:])) > 20
