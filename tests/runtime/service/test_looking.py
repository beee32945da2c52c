"""How an app is, as it is put together from what its nodes tell while some are silent."""

import asyncio

import msgspec
import pytest

from headwater.client.questions import NodeRoom
from headwater.client.requests import InstanceLine, PartLine, SourceLine, StatusTold
from headwater.control.messages.app_messages import AppSpec, ChainSpec, Placed, Whence
from headwater.engine.cuts import InstanceCut
from headwater.engine.ledger import Ledger
from headwater.model.peers import NodeId, Peer
from headwater.model.time import SECOND
from headwater.runtime.service.app_status import settled, status_told, unopened_line
from headwater.runtime.service.records import OwnedRecord

SINCE = 1_767_312_000 * SECOND
OWNER, HOST, EARLIER = (Peer(NodeId(bytes([n]) * 16), f"10.0.0.{n}:7100", "here") for n in (1, 2, 3))


def owned() -> OwnedRecord:
    """An app with its source and sink at one node and all else at another, where it was not always."""
    chains = (ChainSpec("count", 1, 0, (0,), keeps=True), ChainSpec("out", 0, 1, (0,), keeps=True))
    spec = AppSpec("sums@1", OWNER.id, (OWNER,), chains)
    placed = (Placed(0, HOST, OWNER), Placed(1, OWNER, OWNER))
    return OwnedRecord(spec, "sums", "ann", ("made",), placed, has_run=True, nodes=(OWNER, HOST, EARLIER))


def part(node: Peer, ledger: Ledger) -> PartLine:
    """What a node tells that is at rest."""
    return msgspec.structs.replace(unopened_line(node, node.address, []), ledger=ledger, is_idle=True)


def running(node: Peer, *instances: int) -> PartLine:
    """What a node tells that reads, if it is the owner, and runs these."""
    sources = [SourceLine("made", "generator", "exactly-once", 0, 0.0, "reading")] if node is OWNER else []
    lines = [InstanceLine(number, "count", 0, 0, 0, 0.0) for number in instances]
    return msgspec.structs.replace(unopened_line(node, node.address, []), sources=sources, instances=lines)


@pytest.mark.parametrize("dropped", [0, 30])
def test_a_silent_node_that_has_nothing_to_run_any_more_matters_if_its_account_is_lacking(dropped: int) -> None:
    """If every row that it took came out of it again, the books balance without it."""
    kept = 100 - dropped
    source = part(OWNER, Ledger(100, kept, 0, 0, 0, arrived=kept, departed=100))
    host = part(HOST, Ledger(0, 0, 0, 0, 0, arrived=kept, departed=kept))
    status = status_told(owned(), OWNER.address, [source, host], {EARLIER.address: SINCE})
    assert (status.silent, status.unaccounted) == ([], [EARLIER.address] if dropped else [])
    assert (status.waiting, status.is_balanced) == (0, not dropped)


def test_rows_that_wait_where_somebody_answers_are_counted_whoever_is_silent() -> None:
    """More has arrived here than those who answer have sent; that is nothing to set off against what lies here."""
    here = msgspec.structs.replace(running(OWNER, 1), ledger=Ledger(0, 60, 7, 0, 0, arrived=67))
    status = status_told(owned(), OWNER.address, [here], {HOST.address: SINCE})
    assert (status.waiting, status.ledger.waiting) == (7, 7)
    assert status.missing[-1] == (
        "instance 0 (count) on 10.0.0.2:7100, which has been silent since 2026-01-02 00:00:00 UTC: its state is there, "
        "so its rows wait for that node"
    )
    assert status.state == "nodes away"


def test_an_app_is_being_deployed_until_all_that_is_placed_has_been_started() -> None:
    """Its next version has places at once, and may yet fail to start at one of them."""
    status = status_told(owned(), OWNER.address, [running(OWNER), running(HOST, 0)], {})
    assert (status.state, status.missing) == ("deploying", ["sink out on 10.0.0.1:7100"])
    status = status_told(owned(), OWNER.address, [running(OWNER, 1), running(HOST, 0)], {})
    assert (status.state, status.missing) == ("running", [])


def test_who_has_no_room_for_what_is_placed_there_is_told_with_what_to_do() -> None:
    """Else nobody knows why an app is being deployed for ever."""
    parts = [running(OWNER, 1), running(HOST)]
    full = status_told(owned(), OWNER.address, parts, {}, {HOST.address: NodeRoom(8, 8)})
    assert full.missing == [
        "instance 0 (count) on 10.0.0.2:7100, which has no room for its 1 operators (8 of 8 run there): stop an app, "
        "start another node, or give one more --capacity"
    ]
    idle = status_told(owned(), OWNER.address, parts, {}, {HOST.address: NodeRoom(7, 8)})
    assert idle.missing == ["instance 0 (count) on 10.0.0.2:7100"]


def test_an_app_runs_while_an_instance_is_on_its_way_to_another_node() -> None:
    app = owned()
    whence = Whence(EARLIER, (0, 0))
    app.placed = tuple(msgspec.structs.replace(one, whence=whence) if one.host is HOST else one for one in app.placed)
    assert status_told(app, OWNER.address, [running(OWNER, 1), running(HOST)], {}).state == "running"


def test_an_app_of_which_something_has_no_place_yet_is_being_deployed() -> None:
    """A version that goes on where another stood is read at once; it was told as finished before its sink was there."""
    app = owned()
    app.placed = tuple(one for one in app.placed if one.host is HOST)
    told = status_told(app, OWNER.address, [running(OWNER), running(HOST, 0)], {})
    assert (told.state, told.missing) == ("deploying", ["sink out, which has no place yet"])


LEFT = Ledger(10, 0, 0, 0, 0, departed=10)
NOT_HERE_YET = Ledger(0, 0, 0, 0, 0)
ARRIVED = Ledger(0, 10, 0, 0, 0, arrived=10)


@pytest.mark.parametrize(
    ("silent", "looks", "is_balanced"), [({}, 2, True), ({HOST.address: 0}, 1, False)], ids=["all answer", "one silent"]
)
def test_an_app_is_looked_at_again_if_rows_moved_meanwhile_but_not_if_somebody_is_silent(
    silent: dict[str, int], looks: int, is_balanced: bool
) -> None:
    """One node has told that it has nothing yet, and the other, a moment later, that it has sent everything."""
    seen = [[part(OWNER, LEFT), part(HOST, NOT_HERE_YET)], [part(OWNER, LEFT), part(HOST, ARRIVED)]]
    left = iter(seen)

    async def look() -> StatusTold:
        return status_told(owned(), OWNER.address, next(left), silent)

    told = asyncio.run(settled(look))
    assert (told.is_balanced, len(seen) - len(list(left))) == (is_balanced, looks)


def test_a_ledger_that_never_balances_is_told_after_a_few_looks() -> None:
    """It is an error of ours, and has to be seen."""
    looked = []

    async def look() -> StatusTold:
        looked.append(status_told(owned(), OWNER.address, [part(OWNER, Ledger(10, 9, 0, 0, 0))], {}))
        return looked[-1]

    assert not asyncio.run(settled(look)).is_balanced
    assert len(looked) == 3


def test_rows_that_a_lost_node_has_of_a_chain_that_went_on_elsewhere_are_told_with_its_name() -> None:
    """The app goes on, and is not said to have ended while nobody knows what lies there."""
    app = owned()
    anew = msgspec.structs.replace(app.placed[0], host=OWNER, cuts=(InstanceCut((2, 1), HOST),))
    app.placed = (anew, app.placed[1])
    source = part(OWNER, Ledger(100, 60, 0, 0, 0, departed=40))
    status = status_told(app, OWNER.address, [source], {HOST.address: SINCE})
    assert status.unaccounted == [HOST.address]
    assert status.state != "finished"
    assert status.notes == [
        "rows of instance 0 (count) that lie on 10.0.0.2:7100, or were under way there, wait for that node, which has "
        "been silent since 2026-01-02 00:00:00 UTC"
    ]
