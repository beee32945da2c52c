"""An application between two topics of a broker, with everything said in addresses, and the page's own examples."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.connectors.mqtt.sink import MqttSink
from headwater.loading.catalogue import shipped_app
from headwater.loading.endpoints import Ends
from tests.connectors.authority import Authority
from tests.connectors.brokers import SECRET, Broker, Visitor, eventually, free_port, passwords
from tests.console.flows import Command, Start

DOCS = Path(__file__).resolve().parents[2] / "docs" / "mqtt.md"
EXAMPLES = re.findall(r"^headwater run (?:.*\\\n)*.*$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)


class Guarded(NamedTuple):
    """A broker, its address for TLS, and who signs certificates for it."""

    broker: Broker
    url: str
    authority: Authority


def words_of(example: str) -> list[str]:
    """Return the words of a command as a shell would."""
    return shlex.split(example.replace("\\\n", " "))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_page_is_understood(example: str) -> None:
    words = words_of(example)
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options.keys() <= {"--source", "--sink", "--store"}
    flow = Ends(source=options.get("--source"), sink=options.get("--sink"), is_kept="--store" in options).flow(
        shipped_app(words[2])()
    )
    assert flow.declarations


def test_the_page_has_examples_of_both_ends() -> None:
    together = " ".join(EXAMPLES)
    assert all(part in together for part in ("--source", "--sink", "tls_ca=", "shared=", "retain=", "will="))


def test_each_of_several_results_has_a_topic_and_a_client_of_its_own() -> None:
    flow = Ends(sink="mqtt://host/out?client_id=gate&qos=2").flow(shipped_app("storm.single_join")())
    sinks = [one.part for one in flow.declarations if isinstance(one.part, MqttSink)]
    assert [(one.topic.text, one.client_id, one.qos) for one in sinks] == [
        ("out/joined", "gate-joined", 2),
        ("out/expired", "gate-expired", 2),
    ]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker that wants a password, and on the port for TLS also a certificate."""
    directory = tmp_path_factory.mktemp("guarded")
    authority, port = Authority(directory, "ours"), free_port()
    cert, key = authority.issue("broker")
    tls = (f"listener {port} 127.0.0.1", f"cafile {authority.ca}", f"certfile {cert}", f"keyfile {key}")
    settings = (f"password_file {passwords(directory)}", "allow_anonymous false")
    broker = Broker(directory, *settings, listener=(*tls, "require_certificate true")).start()
    yield Guarded(broker, f"mqtts://gauge@127.0.0.1:{port}", authority)
    broker.kill()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_run_is_let_in_by_what_its_addresses_say_and_its_last_will_is_heard(
    guarded: Guarded, start: Start, tmp_path: Path, version: str
) -> None:
    """Certificates, password, QoS 2, a group, retained results, and both ends' wills when the process is killed."""
    (tmp_path / "password").write_text(f"{SECRET}\n")
    cert, key = guarded.authority.issue("client")
    let_in = f"password_file={tmp_path}/password&tls_ca={guarded.authority.ca}&tls_cert={cert}&tls_key={key}"
    both, at = f"{let_in}&qos=2&version={version}", f"v{version}"
    source = f"{guarded.url}/{at}/in/%23?{both}&shared=plant&client_id=reads-{at}&will={at}/gone/in&will_payload=in"
    sink = f"{guarded.url}/{at}/out?{both}&retain=true&client_id=writes-{at}&will={at}/gone/out&will_payload=out"
    with Visitor(guarded.broker, f"{at}/out", f"{at}/gone/#", username="gauge", password=SECRET) as visitor:
        run = start("run", "storm.exclamation", "--no-spark", "--source", source, "--sink", sink)
        eventually(lambda: guarded.broker.logged("Sending SUBACK to", f"reads-{at}"), "the run has subscribed")
        visitor.publish([(f"{at}/in/words", "how")], qos=2)
        assert visitor.take(1) == [b'{"line":"how!!!!!!"}']
        run.kill()
        assert set(visitor.take(2)) == {b"in", b"out"}
        said = "".join(run.communicate())
    assert SECRET not in said
    assert guarded.broker.logged(f"reads-{at}", f"$share/plant/{at}/in/#")
    with Visitor(guarded.broker, f"{at}/out", username="gauge", password=SECRET) as late:
        assert late.next().retain, "the result was retained"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("tls_ca=/nowhere.pem", "tls_ca='/nowhere.pem' cannot be read as certificates"),
        ("password_file=/nowhere", "password_file='/nowhere' cannot be read"),
        ("qos=7", "qos=7 is not a quality of service"),
        ("quality=2", "an option quality, which is not known here; known are qos"),
    ],
)
def test_a_run_that_is_not_let_in_says_why(guarded: Guarded, headwater: Command, options: str, told: str) -> None:
    ended = headwater("run", "storm.exclamation", "--no-spark", "--source", f"{guarded.url}/in?{options}")
    assert ended.exit_code != 0
    assert told in " ".join(ended.stderr.split())


def test_a_password_in_the_environment_is_taken_and_a_wrong_one_not_shown(
    guarded: Guarded, headwater: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_MQTT_PASSWORD", f"{SECRET}-wrong")
    url = guarded.broker.url.replace("//", "//gauge@")
    refused = headwater("run", "storm.exclamation", "--no-spark", "--rows", 5, "--sink", f"{url}/out", "--json")
    assert refused.exit_code != 0
    assert "check user name and password" in refused.output
    assert SECRET not in refused.output
    monkeypatch.setenv("HEADWATER_MQTT_PASSWORD", SECRET)
    ended = headwater("run", "storm.exclamation", "--no-spark", "--rows", 5, "--sink", f"{url}/out", "--json")
    assert ended.exit_code == 0, ended.output
