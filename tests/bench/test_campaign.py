"""The report of a campaign is the sum of its chunks, with every excuse, and says which of them were too many."""

import json
from pathlib import Path
from typing import Any

from bench.campaign import summed
from headwater.console.sim import Tally
from headwater.sim.story import StoryOutcome
from headwater.sim.troubled import Excuse


def chunk(directory: Path, number: int, apps: int, excused: dict[str, int], state: str = "now") -> None:
    """Write the report of a chunk with one story."""
    tally = Tally(faults="stormy", nodes=None)
    tally.add(
        StoryOutcome(
            seed=number,
            faults="stormy",
            nodes=3,
            apps=apps,
            events=10,
            virtual_s=60.0,
            happened={"crashes": 2},
            excused=excused,
            healed_in_s=5.0,
            digest="",
            failure=None,
        )
    )
    (directory / f"{number}.json").write_text(json.dumps({"state": state, **tally.report()}))


def test_what_is_excused_is_added_up_over_all_chunks_of_one_state_of_the_code(tmp_path: Path) -> None:
    chunk(tmp_path, 1, 400, {Excuse.ALL_WHO_KNEW: 3, Excuse.NO_SOURCE: 20})
    chunk(tmp_path, 2, 600, {Excuse.ALL_WHO_KNEW: 4})
    chunk(tmp_path, 3, 600, {Excuse.ALL_WHO_KNEW: 400}, state="before")
    report: dict[str, Any] = summed(tmp_path, "now")
    assert (report["apps"], report["excused"]) == (1_000, {Excuse.ALL_WHO_KNEW: 7, Excuse.NO_SOURCE: 20})
    assert report["beyond_limits"] == []


def test_more_of_an_excuse_than_may_be_is_told(tmp_path: Path) -> None:
    """Apps that are lost one after the other would else go by as bad luck."""
    for number in range(4):
        chunk(tmp_path, number, 500, {Excuse.NEVER_PASSED_ON: 30})
    [told] = summed(tmp_path, "now")["beyond_limits"]
    assert told.startswith("120 of 2,000 apps")
