"""Functions whose annotations are only text at run time, as with `from __future__ import annotations`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyarrow import RecordBatch


def by_row(row: dict[str, Any]) -> dict[str, Any]:
    """Take a row."""
    return {"x": row["x"] + 1}


def by_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Take a DataFrame."""
    return frame.assign(x=frame.x + 1)


def by_mapping(row: Mapping[str, Any]) -> dict[str, Any]:
    """Take a row by a name that exists for the type checker only."""
    return {"x": row["x"] + 1}


def by_batch(batch: RecordBatch) -> Any:
    """Take a batch by a name that exists for the type checker only."""
    return batch
