"""The places of rows rise with micro-batch, partition and row, and no two rows share one."""

from itertools import chain, product

import pyarrow as pa
import pytest

from headwater.model.errors import EngineError
from headwater.twin.places import MICRO_BATCHES_MAX, PARTITIONS_MAX, ROWS_MAX, numbered


def places(micro_batch: int, partition: int, *counts: int) -> list[int]:
    """Return the places of batches of so many rows."""
    batches = iter([pa.record_batch({"c0": pa.nulls(count)}) for count in counts])
    return list(chain.from_iterable(one["c1"].to_pylist() for one in numbered(batches, micro_batch, partition)))


def test_places_rise_with_micro_batch_partition_and_row() -> None:
    """Up to the last of each, which Spark's 64 bits hold."""
    micro_batches = (0, 1, (1 << 23) - 1, 1 << 23, MICRO_BATCHES_MAX - 1)
    found = [places(*one, 2, 0, 1) for one in product(micro_batches, (0, 1, PARTITIONS_MAX - 1))]
    in_order = list(chain.from_iterable(found))
    assert in_order == sorted(set(in_order))
    assert len(in_order) == 5 * 3 * 3
    assert in_order[-1] < 1 << 63


@pytest.mark.parametrize(
    ("micro_batch", "partition", "counts", "told"),
    [
        (MICRO_BATCHES_MAX, 0, (1,), "micro-batches; start it afresh"),
        (0, PARTITIONS_MAX, (1,), "partitions; set spark.sql.shuffle.partitions to fewer"),
        (0, 0, (ROWS_MAX, 1), "rows in one partition of a micro-batch"),
    ],
)
def test_a_row_without_a_place_of_its_own_ends_the_query(
    micro_batch: int, partition: int, counts: tuple[int, ...], told: str
) -> None:
    """It would come before others, or among those of another partition."""
    with pytest.raises(EngineError, match=f"the order of rows cannot be kept .* beyond .* {told}"):
        places(micro_batch, partition, *counts)
