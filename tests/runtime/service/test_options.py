"""What an application was told stays unless it is said anew, and is shown without what is secret."""

import pytest

from headwater.client.app_options import options_in_common, with_kept
from headwater.client.flow_text import EndsText, FlowText


def told(ends: EndsText, *settings: str) -> FlowText:
    """A version that was told this."""
    return FlowText("words", "", "storm.word_count", settings=settings, ends=ends)


def test_what_is_said_goes_before_what_was() -> None:
    running = told(EndsText(rate=5.0, rows=7, loop=True), "seed=1", "words=2")
    ends, settings = with_kept(running, EndsText(rate=6.0, sink="out.csv"), ["seed=3"])
    assert ends == EndsText(rate=6.0, rows=7, loop=True, sink="out.csv")
    assert settings == ("words=2", "seed=3")


def test_what_both_versions_were_told_is_told_as_people_write_it() -> None:
    before = told(EndsText(rate=0.5, rows=7, loop=True, data="here"), "seed=1", "words=2")
    after = told(EndsText(rate=0.5, rows=8, loop=True, data="here"), "seed=3", "words=2")
    assert options_in_common(before, after) == ("--rate 0.5", "--data here", "--loop", "--set words=2")


def test_whether_both_versions_are_without_chains_is_told() -> None:
    chained, loose = (FlowText("words", "", "storm.word_count", chaining=chaining) for chaining in (True, False))
    assert (options_in_common(chained, loose), options_in_common(loose, loose)) == ((), ("--no-chaining",))


@pytest.mark.parametrize("address", ["mqtts://ann:s3cret@broker:8883/a/+", "mqtts://broker:8883/a/+?client_id=s3cret"])
def test_passwords_and_options_of_addresses_are_not_shown(address: str) -> None:
    version = told(EndsText(source=address, sink="out.csv"), f"broker={address}")
    shown = options_in_common(version, version)
    assert shown == ("--source mqtts://broker:8883/a/+", "--sink out.csv", "--set broker=mqtts://broker:8883/a/+")
