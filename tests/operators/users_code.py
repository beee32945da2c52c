"""Code as a user would have it, in a file of its own: its lines must show in errors."""

from typing import Any

import pyarrow as pa


def inverse(row: dict[str, Any]) -> dict[str, Any]:
    """Raise on zero, one call deep."""
    return {"x": _divided(row["x"])}


def _divided(x: int) -> float:
    return 1 / x


def first_column(batch: pa.RecordBatch) -> Any:
    """Raise inside Arrow."""
    return {"x": batch.column("nope")}
