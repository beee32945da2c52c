"""Where the real data is, for tests that read it; a machine without it skips them."""

import os
from pathlib import Path
from typing import Final

import pytest

BESIDE: Final = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def data() -> Path:
    """Return the directory of the real data: $HEADWATER_DATA, or `shared/data` beside the checkout."""
    place = Path(os.environ.get("HEADWATER_DATA") or BESIDE)
    if not place.is_dir():
        pytest.skip("there is no real data here: set HEADWATER_DATA to its directory (docs/data.md)")
    return place
