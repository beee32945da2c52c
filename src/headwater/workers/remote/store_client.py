"""The node's store for a worker on another machine: the same snapshots and transactions, over the network.

The node keeps our snapshots open. A transaction uses optimistic concurrency control: it reads from a snapshot and
buffers its writes; at its end it sends the node what it read and what it wants to write. The node checks in one short
transaction of its own that all that was read is unchanged, and only then writes. Otherwise `Conflict` is raised, and
the transaction may be run again. After a few conflicts in a row the node holds its write lock for the next transaction,
so that a worker with a slow network does not starve.

Every question costs a round trip. So the rows of a turn come with it (prefetch), unless they are too many, and a key
can have companions, which are read together with it: the worker knows at the beginning of a turn what its commit will
check. A turn whose state is cached then needs two round trips, one to read and one to commit.
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Final, Protocol, TypeVar

from headwater.engine.plans import ChainPlan
from headwater.model.errors import Conflict, StoreError, StoreFull
from headwater.model.frames import BrokenFrame
from headwater.model.ids import InstanceId
from headwater.model.store_layout import TERM_KEY, counts_key, queue_key, shapes_key, times_key
from headwater.workers.remote.store_wire import (
    ANSWER_BYTES,
    KEYS_MAX,
    Answer,
    CloseSnapshot,
    Commit,
    CommitsHeld,
    Committed,
    Conflicted,
    Fetch,
    HoldCommits,
    OpenSnapshot,
    Page,
    Reading,
    Release,
    Released,
    StoreRefused,
    Values,
    Walk,
    Walked,
    Writing,
    digest,
    digest_all,
)

CONFLICTS_MAX: Final = 2  # in a row; then the node holds its write lock for us
FIRST_PAGE_BYTES: Final = 32 << 10  # most scans end soon; the pages of a longer one grow

Companions = Mapping[bytes, Sequence[bytes]]


class StoreLine(Protocol):
    """The way to the node: questions are answered in order."""

    along: Mapping[bytes, bytes | None]  # keys and values that came with the turn

    def tell(self, message: OpenSnapshot | CloseSnapshot, *, now: bool = False) -> None:
        """Send a message that is not answered, now or at the latest with the next question."""
        ...

    def untell(self, message: OpenSnapshot) -> bool:
        """Take a message back that has not been sent; False if it has."""
        ...

    def ask(self, question: Reading | Writing) -> Answer:
        """Send a question and wait for its answer."""
        ...


class RemoteStore:
    """The store of a node elsewhere. For one thread."""

    def __init__(self, line: StoreLine) -> None:
        self.companions: Companions = {}
        self._line = line
        self._numbers = itertools.count(1)
        self._conflicts = 0  # in a row

    @contextmanager
    def read(self) -> Iterator["RemoteSnapshot"]:
        """Open a snapshot; it includes what came with the turn, as long as this worker has changed nothing."""
        snapshot = RemoteSnapshot(self._line, next(self._numbers), self.companions)
        try:
            yield snapshot
        finally:
            snapshot.close()

    @contextmanager
    def write(self) -> Iterator["RemoteTransaction"]:
        """Open a transaction; raises `Conflict` at its end if another commit came between."""
        holding = self._conflicts >= CONFLICTS_MAX
        if holding:
            _expect(CommitsHeld, self._line.ask(HoldCommits()))
        self._line.along = {}
        txn = RemoteTransaction(self._line, next(self._numbers), self.companions)
        try:
            yield txn
            if txn.changes_something:
                holding = False
                self._commit(txn.as_commit())
        finally:
            txn.close()
            if holding:
                _expect(Released, self._line.ask(Release()))

    def _commit(self, commit: Commit) -> None:
        answer = self._line.ask(commit)
        if isinstance(answer, Conflicted):
            self._conflicts += 1
            raise Conflict("what a transaction read was changed by another before it could be committed")
        self._conflicts = 0
        _expect(Committed, answer)


class RemoteSnapshot:
    """A snapshot that the node keeps open for us."""

    def __init__(self, line: StoreLine, number: int, companions: Companions) -> None:
        """Open the snapshot; the node hears of it with the first question."""
        self._line, self._number, self._companions = line, number, companions
        self._along = line.along
        self._ahead: dict[bytes, bytes | None] = {}  # values read, and those of their companions
        line.tell(OpenSnapshot(number))

    def close(self) -> None:
        """Close it at once: what follows may compute for long, and old readers keep pages from being reused."""
        self._close(now=True)

    def _close(self, *, now: bool) -> None:
        if not self._line.untell(OpenSnapshot(self._number)):  # if nothing was asked, the node has not heard of it
            self._line.tell(CloseSnapshot(self._number), now=now)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        if key in self._along:
            return self._along[key]
        if key not in self._ahead:
            wanted = (key, *self._companions.get(key, ()))
            self._ahead.update(zip(wanted, self._fetch(wanted), strict=True))
        return self._ahead[key]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these keys."""
        if not self._along:
            return self._fetch(keys)
        missing = [key for key in keys if key not in self._along]
        found = dict(zip(missing, self._fetch(missing), strict=True))
        return [found[key] if key in found else self._along[key] for key in keys]

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with this prefix and their values in order, from `start` on if given."""
        for _, page in self._pages(prefix, start):
            yield from page.entries

    def _fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = []
        while len(values) < len(keys):
            question = Fetch(self._number, keys[len(values) : len(values) + KEYS_MAX])
            values += _expect(Values, self._line.ask(question)).values
        return values

    def _pages(self, prefix: bytes, start: bytes | None) -> Iterator[tuple[bytes, Page]]:
        """Yield the start of each page, and the page."""
        begin = prefix if start is None else start
        bytes_max = FIRST_PAGE_BYTES
        while True:
            page = _expect(Page, self._line.ask(Walk(self._number, prefix, begin, bytes_max)))
            yield begin, page
            if not page.more:
                return
            begin = page.entries[-1][0] + b"\x00"  # the key that follows the last one
            bytes_max = min(ANSWER_BYTES, 4 * bytes_max)


class RemoteTransaction(RemoteSnapshot):
    """Buffered writes over a snapshot, and a record of all reads."""

    def __init__(self, line: StoreLine, number: int, companions: Companions) -> None:
        super().__init__(line, number, companions)
        self._read: dict[bytes, bytes | None] = {}
        self._walked: list[Walked] = []
        self._writes: dict[bytes, bytes | None] = {}

    def close(self) -> None:
        """Close the snapshot with the next message: the report of the turn follows at once."""
        self._close(now=False)

    @property
    def changes_something(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._writes)

    def as_commit(self) -> Commit:
        """Return the reads and writes for the node to commit."""
        reads = [(key, None if value is None else digest(value)) for key, value in self._read.items()]
        return Commit(reads, self._walked, list(self._writes.items()))

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, including this transaction's writes."""
        if key in self._writes:
            return self._writes[key]
        value = self._read[key] = super().get(key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these keys, including this transaction's writes."""
        missing = [key for key in keys if key not in self._writes and key not in self._ahead]
        self._ahead.update(zip(missing, self._fetch(missing), strict=True))
        return [self.get(key) for key in keys]

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with this prefix and their values in order, including the transaction's writes before the call."""
        begin = prefix if start is None else start
        own = dict(sorted((k, v) for k, v in self._writes.items() if k >= begin and k.startswith(prefix)))
        theirs = (entry for entry in self._walk(prefix, start) if entry[0] not in own)
        changed = ((key, value) for key, value in own.items() if value is not None)
        return heapq.merge(theirs, changed, key=itemgetter(0))

    def _walk(self, prefix: bytes, start: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        for begin, page in self._pages(prefix, start):
            last = page.entries[-1][0] if page.more else None
            self._walked.append(Walked(prefix, begin, last, digest_all(page.entries)))
            yield from page.entries

    def put(self, key: bytes, value: bytes) -> None:
        self._writes[key] = value

    def put_many(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._writes.update(pairs)

    def delete(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        self._writes[key] = None


_Wanted = TypeVar("_Wanted", Values, Page, CommitsHeld, Released, Committed)


def _expect(kind: type[_Wanted], answer: Answer) -> _Wanted:
    """Return the answer if it is of this kind; raise the store's refusal if it is one."""
    if isinstance(answer, StoreRefused):
        raise StoreFull(answer.message) if answer.full else StoreError(answer.message)
    if not isinstance(answer, kind):
        raise BrokenFrame(f"the node answered {type(answer).__name__} where {kind.__name__} was due")
    return answer


def companions_of(plans: Mapping[InstanceId, ChainPlan]) -> Companions:
    """Return what a turn of these instances reads together: what goes with a queue, with the term what commits need."""
    companions: dict[bytes, Sequence[bytes]] = {}
    at_commit: dict[bytes, None] = {}
    for instance, plan in plans.items():
        with_queue = [times_key(instance)] if plan.timed else []
        with_queue += [shapes_key(instance)] if plan.unions else []
        if with_queue:
            companions[queue_key(instance)] = tuple(with_queue)
        at_commit |= dict.fromkeys((queue_key(instance), counts_key(instance)))
        targets = (target for port in plan.outlets for outlet in port for target in outlet.targets)
        at_commit |= dict.fromkeys(queue_key(InstanceId(instance.app, target)) for target in targets)
    companions[TERM_KEY] = tuple(at_commit)
    return companions
