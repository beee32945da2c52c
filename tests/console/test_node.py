"""`headwater node` with certificates, as processes: one is killed and started again, and one is attacked."""

import random
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from headwater.client.cluster import Cluster
from headwater.links.credentials import load_credentials
from headwater.links.limits import WireLimits
from headwater.links.refusals import Reason
from headwater.links.speech import packed
from headwater.model.frames import pieces_of
from headwater.security.identity import Role
from tests.console.daemons import Daemon
from tests.console.flows import Command
from tests.links.wires import Cluster as Authority
from tests.runtime.flows import by_sensor, expected_sums
from tests.runtime.service.few_nodes import PATIENCE_S, free_port, free_ports
from tests.runtime.service.sums import rows_of, write_sums

LIMITS: Final = WireLimits()


def test_a_machine_carries_several_peers_that_are_nodes_like_any_other(tmp_path: Path) -> None:
    """They make a ring by themselves, run an app together, and have the same ids after a restart."""
    first = free_ports(3)
    place = ("--listen", f"127.0.0.1:{first}", "--data", tmp_path / "data", "--capacity", 24, "--peers", "auto")
    words = ("node", *place, "--insecure", "--no-spark", "--log-file", tmp_path / "log")
    ids = []
    for _ in range(2):
        with Daemon(*words) as machine:
            for _ in range(3):
                machine.until("in the ring")
            ids.append(sorted(machine.all_that("listening", "id")))
            assert sorted(machine.all_that("listening", "address")) == [f"127.0.0.1:{first + n}" for n in range(3)]
            with Cluster(f"127.0.0.1:{first + 2}", insecure=True) as user:
                assert len(user.nodes().nodes) == 3
            code, told = machine.stop()
            assert (code, told) == (0, "")
    assert len(set(ids[0])) == 3
    assert ids[0] == ids[1]


@dataclass(slots=True)
class Ring:
    """Nodes with certificates, each a process of its own."""

    directory: Path
    authority: Authority
    stack: ExitStack
    words: list[Sequence[object]] = field(default_factory=list)
    daemons: list[Daemon] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    _users: dict[Role, Path] = field(default_factory=dict)

    def add(self) -> None:
        """Start one more, and wait until it is in the ring."""
        number, address = len(self.words), f"127.0.0.1:{free_port()}"
        join = ("--join", self.addresses[0]) if self.addresses else ()
        place = ("--listen", address, "--data", self.directory / f"n{number}", "--certs", self.authority.node())
        log = ("--log-file", self.directory / f"n{number}.log")
        self.words.append(("node", *place, *join, *log, "--no-spark", "--workers", 1))
        self.addresses.append(address)
        self.daemons.append(self._begun(number))

    def _begun(self, number: int) -> Daemon:
        daemon = self.stack.enter_context(Daemon(*self.words[number]))
        daemon.until("in the ring")
        return daemon

    def kill_and_restart(self, number: int) -> None:
        """End one with kill -9, and start it again as it was started before."""
        self.daemons[number].kill()
        self.daemons[number] = self._begun(number)

    def log_of(self, number: int) -> str:
        """Return what one has written to its log."""
        return (self.directory / f"n{number}.log").read_text()

    def user(self, role: Role) -> Path:
        """Return the certificate of somebody with this role."""
        if role not in self._users:
            self._users[role] = self.authority.user(role)
        return self._users[role]

    def client(self, number: int) -> Cluster:
        """Ask one, as a user with a certificate."""
        return Cluster(self.addresses[number], certs=self.user(Role.OPERATE))


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    """A ring without nodes."""
    with ExitStack() as stack:
        yield Ring(tmp_path, Authority(tmp_path / "authority"), stack)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_node_that_is_killed_and_started_again_has_lost_and_doubled_nothing(
    ring: Ring, tmp_path: Path, which: int
) -> None:
    """With kill -9: the node with the sink, the one with the source, or a third."""
    out = tmp_path / "out.json"
    for _ in range(3):
        ring.add()
    with ring.client(0) as client:
        client.submit(write_sums(tmp_path, "sums", out, 6_000, rate=1_500), at={"made": ring.addresses[1]})
        while client.status("sums").rows_out < 1_000:
            pass
    ring.kill_and_restart(which)
    with ring.client((which + 1) % 3) as client:
        status = client.wait("sums", PATIENCE_S)
    assert by_sensor(rows_of(out)) == expected_sums(6_000)
    assert (status.is_balanced, status.rows_in) == (True, 6_000)
    for daemon in ring.daemons:
        assert daemon.stop() == (0, "")


# --- under attack -----------------------------------------------------------------------------------------------------


def _dialled(address: str, context: ssl.SSLContext | None = None) -> socket.socket:
    host, _, port = address.rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    return plain if context is None else context.wrap_socket(plain, server_hostname=host)


def _rest(connection: socket.socket) -> bytes:
    """Return what a node says until it hangs up."""
    said = b""
    with suppress(ConnectionError, ssl.SSLError):  # a reset is an end too
        while some := connection.recv(1 << 16):
            said += some
    return said


def _send(connection: socket.socket, data: bytes) -> None:
    with suppress(ConnectionError, ssl.SSLError):  # it may hang up in the middle of it
        connection.sendall(data)


def _attack_as_strangers(address: str, rng: random.Random) -> None:
    """Noise, HTTP, cut handshakes, and TLS without a certificate."""
    nobody = ssl.create_default_context()
    nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    for data in (rng.randbytes(5_000), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", hello, hello + rng.randbytes(507), b""):
        with _dialled(address) as stranger:
            _send(stranger, data)
            stranger.shutdown(socket.SHUT_WR)
            _rest(stranger)
    with _dialled(address, nobody) as stranger:
        _send(stranger, b"anything")
        assert _rest(stranger) == b""  # TLS says what it misses; we say nothing


def _attack_as_a_user(ring: Ring, address: str, rng: random.Random) -> None:
    """Somebody with a certificate who greets, and goes on with noise, with too much, and with half a request."""
    theirs = load_credentials(ring.user(Role.SEE))
    greeting = b"".join(pieces_of(packed(theirs.greeting("user"), None), 1 << 20))
    noise = rng.randbytes(1_000)
    no_message = len(noise).to_bytes(4, "little") + noise
    too_long = (1 << 29).to_bytes(4, "little")
    for data in (rng.randbytes(100_000), no_message, too_long, b"\x40\x00\x00\x00half of it"):
        with _dialled(address, theirs.dialling()) as user:
            _send(user, greeting + data)
            user.shutdown(socket.SHUT_RDWR) if data.endswith(b"it") else _rest(user)


def test_a_node_under_attack_goes_on_working_and_says_what_it_refused(
    ring: Ring, headwater: Command, tmp_path: Path
) -> None:
    """Garbage, cut messages, a flood and clients that say nothing, while an app runs over the node."""
    out, rng = tmp_path / "out.json", random.Random(7)
    ring.add()
    ring.add()
    victim = ring.addresses[1]
    with ring.client(0) as client, ExitStack() as flood:
        client.submit(write_sums(tmp_path, "sums", out, 4_000, rate=1_000), at={"made": victim})
        _attack_as_strangers(victim, rng)
        _attack_as_a_user(ring, victim, rng)
        idle = [flood.enter_context(_dialled(victim)) for _ in range(2 * LIMITS.strangers)]
        assert len(idle) > LIMITS.strangers
        status = client.wait("sums", PATIENCE_S)  # nodes that know one another are not kept out by a flood
        refused = {node.address: node.refused for node in client.nodes().nodes}
    assert by_sensor(rows_of(out)) == expected_sums(4_000)
    assert status.is_balanced
    reasons = {Reason.NO_TLS, Reason.HUNG_UP, Reason.NO_CERTIFICATE, Reason.NO_MESSAGE, Reason.TOO_LONG}
    assert reasons <= set(refused[victim]), refused
    assert refused[victim].get(Reason.TOO_MANY_STRANGERS, 0) > 0
    assert refused[ring.addresses[0]] == {}
    assert Reason.NO_TLS.value in ring.log_of(1)
    told = headwater("nodes", "--to", ring.addresses[0], "--certs", ring.user(Role.SEE))
    assert "refused: " in told.stdout
    for daemon in ring.daemons:
        assert daemon.stop() == (0, "")
