"""An app's name is its own, through whichever nodes it is asked for, and as soon as somebody asks."""

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headwater.client.flow_text import EndsText, flow_texts
from headwater.client.questions import Publish, Whereabouts
from headwater.client.requests import Submit, Submitted
from headwater.client.signing import signed
from headwater.links.credentials import insecure_user
from headwater.links.requests import Caller
from headwater.model.errors import HeadwaterError
from headwater.runtime.service.directory import place_of
from headwater.runtime.service.service import NodeService
from headwater.security.identity import Role
from tests.runtime.service.few_nodes import FewNodes

ANN = Caller("ann", Role.OPERATE, "user ann")
FEW_ROWS = EndsText(rows=10)


@pytest.fixture
def few(tmp_path: Path) -> Iterator[FewNodes]:
    """Three nodes without certificates."""
    with FewNodes(tmp_path / "nodes") as few:
        for _ in range(3):
            few.add()
        yield few


def submitted_at_once(few: FewNodes, nodes: list[NodeService], name: str) -> tuple[list[Submitted], list[str]]:
    """Submit an app through all of these nodes at once; return what was taken, and why others were refused."""
    [text] = flow_texts("storm.word_count", FEW_ROWS, called=name)
    wanted = Submit(signed(text.encode(), insecure_user("ann"), 0))

    async def ask() -> list[Any]:
        return await asyncio.gather(*(node.desk.requested(ANN, wanted) for node in nodes), return_exceptions=True)

    told = few.do(ask())
    assert all(isinstance(one, Submitted | HeadwaterError) for one in told), told
    return (
        [one for one in told if isinstance(one, Submitted)],
        [str(one) for one in told if isinstance(one, HeadwaterError)],
    )


def kept_by(few: FewNodes, keeper: int) -> str:
    """Return a name that this node keeps, as all know."""
    place = few.nodes[keeper].own.id
    names = (f"words-{number}" for number in count())
    others = [node for node in few.nodes if node.own.id != place]
    return next(
        name
        for name in names
        if all((hop := node.machine.ring.next_hop(place_of(name))) is not None and hop.id == place for node in others)
    )


@pytest.mark.parametrize("through", [(0, 0), (0, 1), (1, 2, 0, 1)])
def test_of_those_who_want_a_name_at_once_one_gets_it(few: FewNodes, through: tuple[int, ...]) -> None:
    """Through one node or several: nobody has seen the others' when they look whether it is free."""
    for keeper in range(3):
        name = kept_by(few, keeper)
        taken, refused = submitted_at_once(few, [few.nodes[number] for number in through], name)
        assert (len(taken), len(refused)) == (1, len(through) - 1)
        assert all(f"there is an app {name!r} already" in why for why in refused)
        with few.client(0) as cluster:
            assert [app.id for app in cluster.apps().apps if app.name == name] == [taken[0].id]


def test_a_name_is_free_again_as_soon_as_its_app_has_ended(few: FewNodes) -> None:
    """Whoever keeps it does not hear of the end; it is claimed again, here and elsewhere, and once."""
    name = kept_by(few, 2)
    for number in (0, 0, 1, 2, 1):
        with few.client(number) as cluster:
            cluster.submit("storm.word_count", ends=FEW_ROWS, name=name)
            cluster.stop(name)
    taken, _ = submitted_at_once(few, few.nodes, name)
    assert len(taken) == 1


def test_a_version_that_takes_the_place_of_another_has_its_name(few: FewNodes) -> None:
    name = kept_by(few, 2)
    with few.client(0) as cluster:
        cluster.submit("storm.word_count", ends=FEW_ROWS, name=name)
        told = cluster.upgrade(name, "storm.word_count", ends=FEW_ROWS)
        cluster.upgraded(told)
        while few.do(few.nodes[1].directory.find(name)).id != told.successor:
            pass
    assert submitted_at_once(few, few.nodes, name)[0] == []


def test_an_app_that_says_where_it_is_does_not_take_anothers_name(few: FewNodes) -> None:
    """Two may have the same while nodes do not hear one another; the first one keeps it then."""
    name = kept_by(few, 2)
    first, second = (Whereabouts(name, f"{name}@{number}", few.nodes[number].own, "ann") for number in (0, 1))
    for node in few.nodes:
        assert few.do(node.directory.published(Publish(first))).app == first
        assert few.do(node.directory.published(Publish(second))).app == first
    assert few.do(few.nodes[0].directory.publish(second, instead_of=first.id)) == second


def test_while_nobody_is_there_to_keep_its_name_an_app_is_submitted_nevertheless(few: FewNodes) -> None:
    name = kept_by(few, 2)
    few.do(few.nodes[2].wire.close())
    taken, refused = submitted_at_once(few, few.nodes[:1], name)
    assert (len(taken), refused) == (1, [])
