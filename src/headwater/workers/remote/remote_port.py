"""The node's port for workers on other machines: TLS, a token, and access to the store.

The connections live on the scheduler's event loop, as those of other workers do. Reads are answered there at once: tens
of microseconds from the memory map, at most a megabyte. Commits run on one thread of their own, since they wait for
other writers and, with `power_safe`, for the disk; one is enough, as LMDB has one writer at a time.

Before it is authenticated a connection may send one short message: the token of this run. Anything that is not a valid
message ends the connection.
"""

import asyncio
import hmac
import logging
import os
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import StoreError
from headwater.model.frames import BrokenFrame, Inbox
from headwater.model.ids import WorkerId
from headwater.spark.address import Door
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.local.dispatcher import Connection, Dispatcher
from headwater.workers.local.wire import Done, Hello, Turn
from headwater.workers.remote.certificate import make_certificate
from headwater.workers.remote.store_server import StoreServer, commit, make, refused
from headwater.workers.remote.store_wire import (
    KNOCK_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    Answer,
    Commit,
    CommitsHeld,
    FromRemote,
    HoldCommits,
    Knock,
    Release,
    Released,
    StoreRefused,
    ToRemote,
    framed,
    from_remote,
)
from headwater.workers.sockets import bound_socket, notice_lost_machine

log = logging.getLogger(__name__)

KNOCK_S: Final = 10.0  # from the handshake to the token
STRANGERS_MAX: Final = 64  # connections that have not shown the token
HOLD_S: Final = 0.25  # the longest that one worker's commit keeps all other writers waiting

T = TypeVar("T")
Handed = queue.SimpleQueue[Commit | Release]  # from the loop to the thread that holds others back


class RemotePort:
    """Listens for workers on other machines."""

    def __init__(
        self, store: LmdbStore, directory: Path, host: str, *, on_mistake: Callable[[BaseException], None]
    ) -> None:
        """Take a port of this host; nobody is let in before `listen`."""
        self.store = store
        self.hold_s = HOLD_S
        self._on_mistake = on_mistake
        self._context, certificate = make_certificate(directory)
        self._socket = bound_socket(host, 0, "workers on other machines")
        self.door = Door(host, self._socket.getsockname()[1], certificate, os.urandom(32))
        self.strangers: set[RemoteConnection] = set()
        self._commits = ThreadPoolExecutor(1, thread_name_prefix="remote-commits")
        self._server: asyncio.Server | None = None

    async def listen(self, dispatcher: Dispatcher) -> None:
        """Accept workers, on the running loop."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: RemoteConnection(self, dispatcher, dispatcher.next_worker()),
            sock=self._socket,
            ssl=self._context,
            ssl_handshake_timeout=KNOCK_S,
        )

    def queue_commit(self, job: Callable[[], T], then: Callable[[T | StoreRefused], None]) -> None:
        """Run a job after the commits in progress, then pass its result to `then` on the running loop."""
        loop = asyncio.get_running_loop()
        self._commits.submit(lambda: _call(loop, then, self._unless_refused(job)))

    def _unless_refused(self, job: Callable[[], T]) -> T | StoreRefused:
        try:
            return job()
        except StoreError as refusal:
            return refused(refusal)
        except Exception as mistake:  # ours; the worker must not wait for its answer for ever
            self._on_mistake(mistake)
            return StoreRefused(full=False, message=f"internal error: {type(mistake).__name__}: {mistake}")

    def close(self) -> None:
        """Accept no more workers, and finish the commits in progress."""
        if self._server is not None:
            self._server.close()
        self._socket.close()
        self._commits.shutdown()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, *arguments)


class RemoteConnection(Connection):
    """The node's end of the connection of a worker elsewhere."""

    def __init__(self, port: RemotePort, dispatcher: Dispatcher, number: WorkerId) -> None:
        super().__init__(dispatcher, number)
        self._port = port
        self._desk = StoreServer(port.store)
        self._inbox = Inbox(KNOCK_BYTES_MAX)
        self._unanswered = False  # a commit is in progress
        self._holding: Handed | None = None  # the commit thread holds the write lock for this worker
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the token, at most `KNOCK_S`."""
        super().connection_made(transport)
        notice_lost_machine(transport.get_extra_info("socket"))
        self._port.strangers.add(self)
        if len(self._port.strangers) > STRANGERS_MAX:
            self._drop("too many others have not shown a token yet")
        asyncio.get_running_loop().call_later(KNOCK_S, self._leave_without_token)

    def data_received(self, data: bytes) -> None:
        """Assemble the messages and handle them."""
        try:
            for encoded in self._inbox.put(data):
                self._heard(from_remote.decode(encoded))
        except (BrokenFrame, *UNDECODABLE) as damage:
            self._drop(str(damage))

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the worker is lost, but only after the commit that it left behind is made or refused.

        The node then reads from the store what the worker has done, and would miss a later commit.
        """
        self._gone = True
        self._port.strangers.discard(self)
        self._desk.close()
        if self._holding is not None:
            self._holding.put(Release())
        elif not self._unanswered:
            self._dispatcher.hung_up(self)

    def send(self, message: ToRemote) -> None:
        """Send a message unless the connection is closed; a turn together with its rows."""
        if self._gone:
            return
        along = framed(self._desk.along(message.parts)) if isinstance(message, Turn) else b""
        self.transport.write(along + framed(message))

    def _heard(self, message: FromRemote) -> None:
        if self.transport.is_closing():
            return
        if self.hello is None:
            self._let_in(message)
        elif self._unanswered:
            raise BrokenFrame(f"{type(message).__name__} before the last question was answered")
        else:
            self._act_on(message)

    def _let_in(self, message: FromRemote) -> None:
        if not isinstance(message, Knock) or not hmac.compare_digest(message.token, self._port.door.token):
            raise BrokenFrame("it has not shown the token of this run")
        self._port.strangers.discard(self)
        self._inbox.bytes_max = MESSAGE_BYTES_MAX
        self._dispatcher.heard(self, Hello(message.pid, message.epoch, message.spare))

    def _act_on(self, message: FromRemote) -> None:
        match message:
            case Knock():
                raise BrokenFrame("a second knock")
            case Done():
                self._dispatcher.heard(self, message)
            case Commit() | Release():
                self._unanswered = True
                if self._holding is not None:
                    self._holding.put(message)
                else:
                    self._end(message)
            case HoldCommits():
                self._unanswered = True
                self._hold()
            case _:
                answer = self._desk.answer(message)
                if answer is not None:
                    self.send(answer)

    def _end(self, message: Commit | Release) -> None:
        """End a transaction without the write lock, perhaps since that was held for too long."""
        if isinstance(message, Release):
            self._answered(Released())
        else:
            self._port.queue_commit(lambda: commit(self._port.store, message), self._answered)

    def _answered(self, answer: Answer) -> None:
        self._unanswered = False
        if self._gone:
            self._dispatcher.hung_up(self)
        else:
            self.send(answer)

    def _hold(self) -> None:
        loop = asyncio.get_running_loop()
        handed: Handed = queue.SimpleQueue()
        self._holding = handed
        self._port.queue_commit(
            lambda: _hold_back(self._port.store, handed, lambda: _call(loop, self._held), self._port.hold_s),
            self._held_for_long_enough,
        )

    def _held(self) -> None:
        self._unanswered = False
        self.send(CommitsHeld())

    def _held_for_long_enough(self, answer: Answer | None) -> None:
        assert self._holding is not None
        too_late = None if self._holding.empty() else self._holding.get_nowait()
        self._holding = None
        if self._gone:
            self._dispatcher.hung_up(self)
        elif too_late is not None:
            self._end(too_late)
        elif self._unanswered:
            assert answer is not None
            self._answered(answer)

    def _leave_without_token(self) -> None:
        if self.hello is None and not self._gone:
            self._drop("it has not shown the token in time")

    def _drop(self, reason: str) -> None:
        log.warning("the connection from %s is dropped: %s", self.transport.get_extra_info("peername"), reason)
        self.transport.abort()


def _hold_back(store: LmdbStore, handed: Handed, on_held: Callable[[], None], hold_s: float) -> Answer | None:
    """Hold the write lock until the worker sends its commit; None if that takes longer than `hold_s`."""
    with store.write() as txn:
        on_held()
        try:
            message = handed.get(timeout=hold_s)
        except queue.Empty:
            return None
        return make(txn, message) if isinstance(message, Commit) else Released()
