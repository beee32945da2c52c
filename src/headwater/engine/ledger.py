"""The ledger: it accounts for every row that came in.

    rows_in + made + copied + arrived
        = rows_out + waiting + merged + dropped (by reason) + duplicates refused + departed

`made` is what operators such as flat maps have made beyond what they took, `merged` what operators such as windows have
taken beyond what they made; neither is below zero. `copied` is what was put once more because a stream has several
readers; `arrived` came from other nodes, `departed` went to them. The sides come
from different places: counts that each turn commits, and the rows that really lie in the queues. So a row that is lost
or doubled anywhere shows. The ledgers of all nodes add up to the app's: what has arrived and has not departed yet lies
at both ends, until the receiver's word is heard. Rows in doubt (`engine/cuts.py`) have gone from one queue of a node to
another.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headwater.dataflow.graph import Graph
from headwater.engine.channels import all_received, rows_handed_on
from headwater.engine.cuts import doubts_of
from headwater.engine.queue_records import read_queue
from headwater.engine.reports import Counts, read_counts
from headwater.model.batch import entry_rows
from headwater.model.ids import AppId, CountByName, InstanceId, SaidAll, Signed
from headwater.model.store_contract import Snapshot
from headwater.model.store_layout import entries_prefix
from headwater.operators.base import Effect


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """What a source has brought so far."""

    stored: int = 0
    copied: int = 0
    unread: int = 0
    unparsable: int = 0
    refused: int = 0
    too_large: int = 0


@dataclass(frozen=True, slots=True)
class Ledger:
    """One app's account at one moment."""

    rows_in: Signed
    rows_out: Signed
    waiting: Signed
    made: Signed
    copied: Signed
    merged: Signed = 0
    dropped: CountByName = field(default_factory=dict)
    duplicates_refused: Signed = 0
    arrived: Signed = 0
    departed: Signed = 0
    broken: SaidAll = ()  # queues and chains whose own counts contradict one another

    @property
    def balanced(self) -> bool:
        """Whether every row is accounted for."""
        came = self.rows_in + self.made + self.copied + self.arrived
        went = self.rows_out + self.waiting + self.merged + sum(self.dropped.values())
        went += self.duplicates_refused + self.departed
        return came == went and not self.broken


def whole_ledger(parts: Iterable[Ledger]) -> Ledger:
    """Return an app's ledger over all its nodes, in which rows at both ends of a channel count once."""
    parts = list(parts)
    dropped: Counter[str] = Counter()
    for part in parts:
        dropped.update(part.dropped)
    doubled = sum(part.arrived for part in parts) - sum(part.departed for part in parts)
    broken = [problem for part in parts for problem in part.broken]
    if doubled < 0:
        broken.append(f"{-doubled} rows have left one node and not come to another")
    waiting = sum(part.waiting for part in parts) - doubled
    if waiting < 0:
        broken.append(f"{-waiting} rows have come to one node that no other had, or has told of")
    return Ledger(
        rows_in=sum(part.rows_in for part in parts),
        rows_out=sum(part.rows_out for part in parts),
        waiting=waiting,
        made=sum(part.made for part in parts),
        merged=sum(part.merged for part in parts),
        copied=sum(part.copied for part in parts),
        dropped=dict(dropped),
        duplicates_refused=sum(part.duplicates_refused for part in parts),
        broken=tuple(broken),
    )


def read_ledger(snapshot: Snapshot, app: AppId, graph: Graph, sources: Sequence[SourceCounts]) -> Ledger:
    """Add up an app's ledger from one snapshot of the store."""
    waiting, shed, arrived, departed, broken = 0, 0, 0, 0, []
    in_doubt = [instance for instance, _ in doubts_of(snapshot, app)]
    for instance in (*(InstanceId(app, number) for number in range(graph.instance_count)), *in_doubt):
        record = read_queue(snapshot, instance)
        lying = sum(entry_rows(encoded) for _, encoded in snapshot.scan(entries_prefix(instance))) - record.head_offset
        waiting += lying
        shed += record.shed_rows
        arrived += sum(channel.rows for channel in all_received(snapshot, instance).values())
        departed += rows_handed_on(snapshot, instance)
        if lying != record.waiting_rows:
            broken.append(f"queue {instance}: {lying} rows lie in it, {record.waiting_rows} should")
    chains = _ChainSums()
    for chain in graph.chains:
        effects = [type(graph.operator(name)).effect for name in chain.operators]
        for number in chain.instances:
            instance = InstanceId(app, number)
            counts = read_counts(snapshot, instance, len(effects))
            chains.add(chain.operators, effects, counts)
            taken = read_queue(snapshot, instance).taken_rows - rows_handed_on(snapshot, instance)
            if counts.operators[0][0] != taken:
                broken.append(f"instance {instance}: took {taken} rows, ran {counts.operators[0][0]}")
    rows_out = sum(_written(snapshot, InstanceId(app, sink.instance)) for sink in graph.sinks)
    unparsable = sum(source.unparsable for source in sources)
    refused = sum(source.refused for source in sources)
    too_large = sum(source.too_large for source in sources)
    dropped = {
        "filtered": chains.filtered,
        "unread": chains.unread + sum(source.unread for source in sources),
        "dead-letter": chains.unread_dead,
        "late": chains.unread_late,
        "shed": shed,
        "unparsable": unparsable,
        "too-large": too_large,
    }
    return Ledger(
        rows_in=sum(source.stored for source in sources) + unparsable + refused + too_large,
        rows_out=rows_out,
        waiting=waiting,
        made=sum(max(0, made) for made in chains.changed.values()),
        merged=sum(max(0, -made) for made in chains.changed.values()),
        copied=chains.copied + sum(source.copied for source in sources),
        dropped={reason: rows for reason, rows in dropped.items() if rows},
        duplicates_refused=refused,
        arrived=arrived,
        departed=departed,
        broken=tuple(broken),
    )


def _written(snapshot: Snapshot, sink: InstanceId) -> int:
    return read_queue(snapshot, sink).taken_rows - rows_handed_on(snapshot, sink)


@dataclass(slots=True)
class _ChainSums:
    """The counts of all chains, sorted by what became of the rows."""

    filtered: int = 0
    changed: Counter[str] = field(default_factory=Counter)  # by operator: what it made beyond what it took
    copied: int = 0
    unread: int = 0
    unread_dead: int = 0
    unread_late: int = 0

    def add(self, names: Sequence[str], effects: Sequence[Effect], counts: Counts) -> None:
        """Account for one instance; an operator that keeps rows but lost some leaves the ledger unbalanced."""
        for name, effect, (taken, made, dead) in zip(names, effects, counts.operators, strict=True):
            if effect is Effect.FILTERS:
                self.filtered += taken - dead - made
            elif effect is Effect.CHANGES:
                self.changed[name] += made - (taken - dead)
        self.copied += counts.copied
        self.unread += counts.unread - counts.unread_dead - counts.unread_late
        self.unread_dead += counts.unread_dead
        self.unread_late += counts.unread_late
