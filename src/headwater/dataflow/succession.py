"""Whether a version of a flow can go on where another one stood, and with what.

State and positions are found again by name, so a name is a promise. An operator goes on with the state under its name
if it is of the same kind, has the same key and number of instances, and the settings under which that state was made;
a source or a sink goes on at the position under its name if that is still a position in the same place. Whatever is
kept and would not be found again, or found by the wrong one, is refused with the reason, unless the user gives it up.

The variables of a processor's state have schemas, which versions may change as long as all that was ever kept can be
read (`operators/processors/schema_evolution.py`). Every schema that there was stays known.

Names that nobody gave are made of the kind and a number, and so move when one is added. Where there are more, or fewer,
of these than before, nobody can tell which is which.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from headwater.dataflow.graph import Graph
from headwater.dataflow.manifest import Kept, Manifest
from headwater.model.errors import FlowError
from headwater.operators.processors.processor_schemas import EVOLUTIONS_MAX, Declared, why_unreadable


class UpgradeRefused(FlowError):
    """A version cannot take the place of another: says all that stands against it."""

    def __init__(self, flow: str, reasons: list[str]) -> None:
        """Keep the reasons apart."""
        self.flow, self.reasons = flow, reasons
        super().__init__(f"flow {flow!r} cannot take the place of its version before: " + "; ".join(reasons))


@dataclass(frozen=True, slots=True)
class Succession:
    """What a version goes on with of the one before."""

    before: Manifest
    after: Manifest
    kept: tuple[str, ...]  # vertices that go on with what they have
    begun: tuple[str, ...]  # vertices that have something to keep, and begin with nothing
    given_up: tuple[str, ...]  # vertices of which what was kept is lost, as the user wished

    @property
    def numbers(self) -> Iterator[tuple[Kept, int, int]]:
        """What goes on, each with its number before and after."""
        for name in self.kept:
            kept = self.after.find(name)
            assert kept is not None, name
            yield kept, self.before.number_of(name), self.after.number_of(name)


def succession(flow: str, before: Manifest, after: Manifest, given_up: Iterable[str] = ()) -> Succession:
    """Return what the version after goes on with; raises UpgradeRefused if it cannot."""
    wanted = tuple(dict.fromkeys(given_up))
    reasons = [_unknown(name, before) for name in wanted if before.find(name) is None]
    unclear = _unclear_kinds(before, after)
    kept = []
    for one in before.kept:
        if one.name not in wanted:
            why = _why_not(one, after, unclear)
            if why is None:
                kept.append(one.name)
            else:
                reasons.append(f"{why} (or give up its {one.what}: --discard {one.name})")
    if reasons:
        raise UpgradeRefused(flow, reasons)
    begun = tuple(one.name for one in after.kept if one.name not in kept)
    return Succession(before, _with_history(before, after, kept), tuple(kept), begun, wanted)


def _with_history(before: Manifest, after: Manifest, going_on: Iterable[str]) -> Manifest:
    """Return the version after with all the schemas that its state variables have had."""
    histories = {name: one.variables for name in going_on if (one := before.find(name)) is not None}
    kept = (
        msgspec.structs.replace(one, variables=_history(histories[one.name], one)) if one.name in histories else one
        for one in after.kept
    )
    return msgspec.structs.replace(after, kept=tuple(kept))


def _history(before: Mapping[str, tuple[Declared, ...]], after: Kept) -> dict[str, tuple[Declared, ...]]:
    known = {name: schemas for name, schemas in before.items() if name not in after.forgotten}
    for name, schemas in after.variables.items():
        older = known.get(name, ())
        known[name] = (*(one for one in older if one not in schemas), *schemas)
    return known


def takes_rows_of(fingerprint: str, after: Graph, kept: Succession) -> bool:
    """Whether a version can take the rows that wait for the one before, as they lie: all but the sinks is the same.

    A row that waits for a sink is the same row for any other of that name.
    """
    sinks = {one.name: one.kind for one in kept.before.kept if one.role == "sink"}
    is_built_alike = after.fingerprint_with(sinks) == fingerprint
    return is_built_alike and _inner(kept.before) == _inner(kept.after) and sinks.keys() >= set(kept.given_up)


def _inner(manifest: Manifest) -> list[Kept]:
    """Return what is kept of all but the sinks."""
    return [one for one in manifest.form.kept if one.role != "sink"]


def _unknown(name: str, before: Manifest) -> str:
    known = ", ".join(one.name for one in before.kept) or "nothing"
    return f"there is no {name!r} to give up; what is kept is of: {known}"


def _unclear_kinds(before: Manifest, after: Manifest) -> set[str]:
    """Return the kinds of which several have no name of their own, and not as many as before."""
    counts = [Counter(one.kind for one in manifest.kept if _is_made_up(one)) for manifest in (before, after)]
    kinds = set(counts[0]) | set(counts[1])
    return {kind for kind in kinds if counts[0][kind] != counts[1][kind] and counts[0][kind] and counts[1][kind]}


def _is_made_up(kept: Kept) -> bool:
    name, _, number = kept.name.rpartition("-")
    return kept.name == kept.kind or (name == kept.kind and number.isdigit())


def _why_not(before: Kept, manifest: Manifest, unclear: set[str]) -> str | None:
    """Return why nothing in the version after can go on with what is kept of a vertex; None if something can."""
    called = f"{before.kind} {before.name!r}"
    if before.kind in unclear and _is_made_up(before):
        return f"there are not as many unnamed {before.kind} as before, so {called} may be any: give the new ones names"
    after = manifest.find(before.name)
    if after is None:
        lost = "keeps nothing any more" if before.name in manifest.names else "is not there any more"
        return f"{called} {lost}: keep its name and kind"
    if (before.role, before.kind) != (after.role, after.kind):
        return f"{called} has become a {after.kind}: give the new one another name"
    if before.key != after.key:
        return f"{called} has its state by {_columns(before.key)}, and would look for it by {_columns(after.key)}"
    if before.parallelism != after.parallelism:
        now = after.parallelism
        return f"{called} has its state divided among {before.parallelism}, and would run {now} times: keep parallelism"
    if before.key_types and after.key_types and before.key_types != after.key_types:
        types, found = ", ".join(before.key_types), ", ".join(after.key_types)
        return f"{called} has its state by {_columns(before.key)} as {types}, and would look for it as {found}"
    if before.columns and after.columns and before.columns != after.columns:
        columns, found = ", ".join(before.columns), ", ".join(after.columns)
        return f"{called} has rows of the columns {columns}, and would get {found}: give it a new name and a new place"
    return _other_settings(called, before, after) or _unreadable_variables(called, before, after)


def _unreadable_variables(called: str, before: Kept, after: Kept) -> str | None:
    """Return which state variable of an operator has had a schema of which it could not read the rows any more."""
    for name, history in _history(before.variables, after).items():
        newest = history[-1]
        if name not in after.variables:
            continue
        why = next(filter(None, (why_unreadable(name, older, newest) for older in history[:-1])), None)
        if why is not None:
            return f"{called}: {why}"
        if len(history) > EVOLUTIONS_MAX + 1:
            return (
                f"{called}: [STATE_STORE_VALUE_SCHEMA_EVOLUTION_THRESHOLD_EXCEEDED] state {name!r} has had "
                f"{len(history) - 1} other schemas, and {EVOLUTIONS_MAX} are allowed: give the new one another name"
            )
    return None


def _other_settings(called: str, before: Kept, after: Kept) -> str | None:
    for setting in (*before.settings, *(name for name in after.settings if name not in before.settings)):
        was, is_now = before.settings.get(setting, "nothing"), after.settings.get(setting, "nothing")
        if was != is_now:
            return f"{called} has its {before.what} with {setting}={was}, which does not fit {setting}={is_now}"
    return None


def _columns(key: tuple[str, ...]) -> str:
    return f"key ({', '.join(key)})" if key else "no key"
