"""Emulated links: what arrives when, by arithmetic; and in order, over real sockets."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.links.emulation import (
    RETRANSMISSION_MIN,
    EmulatedLink,
    LinkQuality,
    LinkTable,
    read_links,
)
from headwater.links.outgoing import Drop
from headwater.model.errors import ConfigError
from headwater.model.time import MILLISECOND, SECOND, Duration, Instant, milliseconds
from headwater.overlay.messages import Routed
from tests.links.wires import Cluster, station, told, until

QUALITIES = st.builds(
    LinkQuality,
    delay=st.integers(0, 200_000).map(Duration),
    jitter=st.integers(0, 50_000).map(Duration),
    bytes_per_s=st.sampled_from([0, 10_000, 1_250_000]),
    loss=st.sampled_from([0.0, 0.01, 0.3]),
)


@given(QUALITIES, st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 50_000))), st.integers())
def test_everything_arrives_in_order_and_not_before_its_time(
    quality: LinkQuality, sends: list[tuple[int, int]], seed: int
) -> None:
    link, again = (EmulatedLink(quality, Random(seed)) for _ in range(2))
    now, last, sent = Instant(0), Instant(0), 0
    for pause, size in sends:
        now, sent = Instant(now + pause), sent + size
        arrives = link.arrival(size, now)
        assert arrives >= max(last, now + quality.delay)
        if quality.bytes_per_s:
            assert arrives >= sent * SECOND // quality.bytes_per_s - len(sends)
        if not quality.loss and not quality.bytes_per_s:
            assert arrives <= max(last, now + quality.delay + quality.jitter)
        assert again.arrival(size, now) == arrives
        last = arrives


def test_bandwidth_spaces_what_is_sent_at_once() -> None:
    link = EmulatedLink(LinkQuality(delay=milliseconds(20), bytes_per_s=1_000_000), Random(1))
    arrivals = [link.arrival(10_000, Instant(0)) for _ in range(3)]
    assert arrivals == [30 * MILLISECOND, 40 * MILLISECOND, 50 * MILLISECOND]


def test_a_loss_is_the_time_of_a_retransmission_and_holds_up_what_follows() -> None:
    link = EmulatedLink(LinkQuality(delay=milliseconds(20), loss=0.2), Random(3))
    waits = [link.arrival(100, Instant(at)) - at for at in range(0, 60 * SECOND, SECOND)]
    plain, again = 20 * MILLISECOND, 20 * MILLISECOND + RETRANSMISSION_MIN
    assert {plain, again} <= set(waits)
    assert 0.05 < sum(wait > plain for wait in waits) / len(waits) < 0.4
    held_up = EmulatedLink(LinkQuality(delay=milliseconds(20), loss=0.999), Random(1))
    first = held_up.arrival(100, Instant(0))
    held_up.quality = LinkQuality(delay=milliseconds(20))
    assert held_up.arrival(100, Instant(1_000)) == first > SECOND


def test_a_new_connection_takes_two_round_trips() -> None:
    link = EmulatedLink(LinkQuality(delay=milliseconds(50)), Random(1))
    link.open(Instant(0))
    assert link.arrival(10, Instant(0)) == (2 * 100 + 50) * MILLISECOND


def test_links_are_known_by_the_zones_of_their_ends(tmp_path: Path) -> None:
    (tmp_path / "links.toml").write_text("""
seed = 7

[default]
delay = "100ms"

[within]
delay = "2ms"
jitter = "1ms"

[[between]]
zones = ["north", "south"]
delay = "40ms"
bytes_per_s = 1_250_000
loss = 0.01

[zones]
"10.0.0.2:7100" = "south"
""")
    links = read_links(tmp_path / "links.toml", "north")
    assert links.quality("10.0.0.2:7100") == LinkQuality(delay=milliseconds(40), bytes_per_s=1_250_000, loss=0.01)
    assert links.quality("10.0.0.3:7100").delay == milliseconds(100)
    assert links.learn("10.0.0.3:7100", "north")
    assert not links.learn("10.0.0.3:7100", "north")
    assert links.quality("10.0.0.3:7100") == LinkQuality(delay=milliseconds(2), jitter=milliseconds(1))
    assert links.seed == 7


@pytest.mark.parametrize(
    ("written", "told_of"),
    [
        ("[default]\ndelya = '1ms'", r"\[default\]: there is no 'delya'; there are: bytes_per_s, delay"),
        ("[default]\ndelay = 40", r"\[default\]: .*times are written like '40ms'"),
        ("[default]\nloss = 1.0", "cannot lose a share of 1.0"),
        ("[default]\nbytes_per_s = inf", r"\[default\]: cannot convert float infinity"),
        ("[default]\nis_cut = 'false'", "is_cut is true or false, not 'false'"),
        ("[[between]]\nzones = ['a']", r"\[\[between\]\] needs zones = "),
        ("links = 3", "there is no 'links'"),
        ("seed = ", "is not TOML"),
    ],
)
def test_a_file_of_links_that_cannot_be_understood_is_refused(tmp_path: Path, written: str, told_of: str) -> None:
    (tmp_path / "links.toml").write_text(written)
    with pytest.raises(ConfigError, match=told_of):
        read_links(tmp_path / "links.toml", "north")


def test_messages_over_an_emulated_link_arrive_in_order(cluster: Cluster) -> None:
    """Delay, jitter, bandwidth and loss at once, with bulky messages beside short ones."""

    async def story() -> None:
        quality = LinkQuality(delay=milliseconds(5), jitter=milliseconds(3), bytes_per_s=20_000_000, loss=0.01)
        links, bulky = LinkTable("zone", default=quality, seed=3), frozenset({Routed})
        async with (
            station(cluster.node_credentials()) as two,
            station(cluster.node_credentials(), links=links, bulky=bulky) as one,
        ):
            for number in range(200):
                one.ping(two, number)
                one.carry(two, bytes(2_000), number)
            await until(lambda: len(two.heard) == 400)
            assert two.pings() == list(range(200))
            assert [one.number for one in two.heard if isinstance(one, Routed)] == list(range(200))
            assert one.wire.status().queued_bytes == 0

    told(story())


def test_over_a_link_that_is_cut_nothing_arrives_until_it_is_mended(cluster: Cluster) -> None:
    async def story() -> None:
        links = LinkTable("zone")
        async with station(cluster.insecure()) as two, station(cluster.insecure(), links=links) as one:
            one.ping(two, 0)
            await until(lambda: two.pings() == [0])
            one.wire.emulate(default=LinkQuality(is_cut=True))
            one.ping(two, 1)
            assert one.wire.status().dropped == {Drop.LINK_CUT: 1}
            one.wire.emulate(default=LinkQuality())
            one.ping(two, 2)
            await until(lambda: two.pings() == [0, 2])

    told(story())


def test_the_zone_of_an_address_is_learned_from_what_it_says(cluster: Cluster) -> None:
    async def story() -> None:
        links = LinkTable("zone", default=LinkQuality(is_cut=True))  # within the zone it is perfect
        async with station(cluster.insecure()) as two, station(cluster.insecure(), links=links) as one:
            one.ping(two, 0)
            two.ping(one, 1)
            await until(lambda: one.pings() == [1])
            one.ping(two, 2)
            await until(lambda: two.pings() == [2])

    told(story())
