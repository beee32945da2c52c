"""A real broker, mosquitto, that tests start, stop and kill, and clients of it that are not ours."""

import contextlib
import fcntl
import os
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PATIENCE_S = 60.0
LOOK_S = 0.005
INSTALLING = (["update"], ["install", "-y", "--no-install-recommends", "mosquitto"])
SECRET = "s3cr3t-Pa55"  # of the user `gauge`, where a broker wants to know


def eventually(holds: Callable[[], object], what: str = "") -> None:
    """Wait until something holds; fail if it never does."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / LOOK_S)):
        if holds():
            return
        pause.wait(LOOK_S)
    raise AssertionError(f"it never came to pass: {what or holds}")


def mosquitto() -> str:
    """Return where mosquitto is, installing Debian's package if that is missing and can be; else skip the test."""
    found = _found_or_installed()
    if found is None:
        pytest.skip("the broker mosquitto is not here and cannot be installed; install Debian's package `mosquitto`")
    return found


@cache  # also that it cannot be had: a machine without a network would wait for it in every test
def _found_or_installed() -> str | None:
    if _found() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with (Path(tempfile.gettempdir()) / "headwater-tests-apt.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes, and apt-get lets only one in
            for command in INSTALLING if _found() is None else ():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    subprocess.run(["apt-get", *command], capture_output=True, timeout=120, check=False)
    return _found()


def _found() -> str | None:
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def passwords(directory: Path) -> Path:
    """Write mosquitto's file of users, of whom there is one."""
    path = directory / "passwords"
    path.write_text(f"gauge:{SECRET}\n")
    path.chmod(0o600)
    mosquitto()  # skips where there is none
    subprocess.run(["mosquitto_passwd", "-U", str(path)], check=True, capture_output=True)
    return path


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Broker:
    """One mosquitto, with a directory of its own where it keeps sessions and messages."""

    def __init__(self, directory: Path, *settings: str, listener: Sequence[str] = ()) -> None:
        """Write its configuration; nothing runs. `settings` are lines of it, `listener` those of its port."""
        self.directory, self.port = directory, free_port()
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        lines = [
            *(["user root"] if os.geteuid() == 0 else []),
            "persistence true",
            f"persistence_location {directory}/",
            "autosave_interval 0",  # kept when it stops, or when a test asks
            "max_queued_messages 0",  # as many as there are
            "set_tcp_nodelay true",
            "log_dest stderr",
            "log_type all",
            *(settings or ["allow_anonymous true"]),
            f"listener {self.port} 127.0.0.1",
            *listener,
        ]
        (directory / "mosquitto.conf").write_text("\n".join([*lines, ""]))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> "Broker":
        """Start, or start again with what was kept."""
        command = [mosquitto(), "-c", str(self.directory / "mosquitto.conf")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, stdout=log)
        eventually(self._listens, "mosquitto listens")
        return self

    def stop(self) -> None:
        """End in order: it keeps sessions and messages."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End at once: it keeps what it kept before."""
        self._end(signal.SIGKILL)

    def keep(self) -> None:
        """Let it keep sessions and messages as they are now."""
        assert self._process is not None
        kept = self.directory / "mosquitto.db"
        kept.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        eventually(kept.exists, "mosquitto has kept its state")

    def log(self) -> list[str]:
        """Return what it has written of every packet, without the time."""
        return [line.partition(": ")[2] for line in self._log.read_text(errors="replace").splitlines()]

    def logged(self, *parts: str) -> int:
        """Return how many lines of the log have all these parts."""
        return sum(all(part in line for part in parts) for line in self.log())

    def publish(self, topic: str, payloads: Sequence[bytes | str], *, qos: int = 1, retain: bool = False) -> None:
        """Send messages by a client of its own, and wait until the broker has them."""
        with Visitor(self) as visitor:
            visitor.publish([(topic, payload) for payload in payloads], qos=qos, retain=retain)

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"mosquitto does not start: {self.log()[-5:]}"
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_S)


class Visitor:
    """A client that is not ours, to send messages and to see what others send."""

    def __init__(self, broker: Broker, *filters: str, client_id: str = "", qos: int = 2, **how: Any) -> None:
        """Connect and subscribe. With a client id it takes over that client's session, as it is."""
        self.came: queue.Queue[MQTTMessage] = queue.Queue()
        self._subscribed = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.on_message = lambda client, data, message: self.came.put(message)
        self._client.on_subscribe = lambda *told: self._subscribed.set()
        if "username" in how:
            self._client.username_pw_set(how["username"], how["password"])
        properties = None
        if client_id:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 3_600
        self._client.connect("127.0.0.1", broker.port, clean_start=not client_id, properties=properties)
        self._client.loop_start()
        if filters:
            eventually(self._client.is_connected, "the visitor is connected")
            self._client.subscribe([(one, qos) for one in filters])
            assert self._subscribed.wait(PATIENCE_S)

    def __enter__(self) -> "Visitor":
        """Stay."""
        return self

    def __exit__(self, *told: object) -> None:
        """Leave."""
        self.leave()

    def leave(self) -> None:
        """Disconnect in order."""
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, messages: Sequence[tuple[str, bytes | str]], *, qos: int = 1, retain: bool = False) -> None:
        """Send messages and wait until the broker has them."""
        sent: list[MQTTMessageInfo] = [self._client.publish(*one, qos=qos, retain=retain) for one in messages]
        for one in sent:
            one.wait_for_publish(PATIENCE_S)

    def next(self) -> MQTTMessage:
        """Return the next message that came, waiting for it."""
        return self.came.get(timeout=PATIENCE_S)

    def take(self, count: int) -> list[bytes]:
        """Return the payloads of the next messages."""
        return [bytes(self.next().payload) for _ in range(count)]
