"""Being let in by a broker that speaks TLS."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.model.errors import ConnectorError
from tests.connectors.authority import Authority
from tests.connectors.brokers import Broker, eventually
from tests.connectors.mqtt_flows import Drive, sent
from tests.connectors.polls import batch_of


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The one that the broker's certificate is from."""
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Broker]:
    """A broker that speaks TLS and wants a certificate of ours."""
    cert, key = authority.issue("broker")
    lines = (f"cafile {authority.ca}", f"certfile {cert}", f"keyfile {key}", "require_certificate true")
    broker = Broker(tmp_path_factory.mktemp("tls"), listener=lines)
    broker.start()
    yield broker
    broker.kill()


def test_tls_with_certificates_of_an_authority_of_ones_own(
    tls_broker: Broker, authority: Authority, topic: str
) -> None:
    """More than one TLS record at a time, so that some of it waits inside the library and not in the socket."""
    cert, key = authority.issue("client")
    url = f"mqtts://127.0.0.1:{tls_broker.port}/{topic}"
    how: dict[str, Any] = {"tls_ca": authority.ca, "tls_cert": cert, "tls_key": key}
    drive = Drive(hw.read.mqtt(url, **how))
    drive.step()
    eventually(lambda: tls_broker.logged("Sending SUBACK to", drive.client_id))
    sent(hw.to.mqtt(url, **how), batch_of(n=range(500)))
    assert drive.until_rows(500) == list(range(500))
    drive.close()


@pytest.mark.parametrize(
    ("makes", "told"),
    [
        (lambda ours, other: {"tls_ca": other.ca}, "certificate is not trusted"),
        (lambda ours, other: {}, "certificate is not trusted"),
        (lambda ours, other: {"tls_ca": ours.ca}, "[Cc]ertificate required|CERTIFICATE_REQUIRED"),
        (lambda ours, other: {"tls_ca": ours.ca, **_pair(other.issue("stranger"))}, "unknown ca|UNKNOWN_CA|DECRYPT"),
    ],
)
def test_a_certificate_that_is_not_trusted_stops_with_a_sentence(
    tls_broker: Broker, authority: Authority, tmp_path: Path, makes: Callable[..., dict[str, Any]], told: str
) -> None:
    how = makes(authority, Authority(tmp_path, "other"))
    with pytest.raises(
        ConnectorError, match=rf"^mqtts://127.0.0.1:\d+: no secure connection: .*({told}).*check tls_ca="
    ):
        sent(hw.to.mqtt(f"mqtts://127.0.0.1:{tls_broker.port}/t", **how), batch_of(n=[1]))


def _pair(files: tuple[Path, Path]) -> dict[str, Path]:
    return {"tls_cert": files[0], "tls_key": files[1]}


@pytest.mark.parametrize(("scheme", "hint"), [("mqtts", "does this port speak TLS"), ("mqtt", "a port for mqtts://")])
def test_a_port_of_the_other_kind_is_hinted_at(
    shared_broker: Broker, tls_broker: Broker, caplog: pytest.LogCaptureFixture, scheme: str, hint: str
) -> None:
    """A broker just hangs up, as one that is starting may: it is tried again."""
    port = (shared_broker if scheme == "mqtts" else tls_broker).port
    writer = hw.to.mqtt(f"{scheme}://127.0.0.1:{port}/t").open(None)
    eventually(lambda: hint in caplog.text)
    writer.close()


def test_certificates_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("no certificate")
    with pytest.raises(ConnectorError, match=r"tls_ca='.*empty' cannot be read as certificates"):
        hw.to.mqtt("mqtts://host/t", tls_ca=tmp_path / "empty").open(None)
    with pytest.raises(ConnectorError, match=r"tls_cert=.*missing cannot be read in PEM form"):
        hw.to.mqtt("mqtts://host/t", tls_cert=tmp_path / "missing").open(None)
