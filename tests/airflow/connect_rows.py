"""What the DAG of a user brings along: a function that the task calls, and one that the workers call."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def triple(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": [3 * value for value in batch["id"].to_pylist()]})


def tripled(spark: Any, count: int) -> Any:
    """Return rows that a function of this module makes on the workers, which must have it."""
    from pyspark.sql import functions

    return spark.range(count).select(functions.col("id")).mapInArrow(triple, "id long")


def sleep(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        time.sleep(3600)
        yield batch


def sleeping(spark: Any) -> Any:
    """Return rows that a function of Python keeps for an hour."""
    return spark.range(2).mapInArrow(sleep, "id long")


def endless_until(spark: Any, path: str, count: int) -> Any:
    """Return rows; if a file does not exist, after an endless search on one core."""
    Path(f"{path}.begun").touch()
    if Path(path).exists():
        return spark.range(count)
    return spark.range(0, 1 << 60, 1, 1).where("id % 2 = 3")


def of_view(spark: Any, query: str) -> Any:
    """Return the rows of a view, some time after it was created."""
    spark.sql(query)
    time.sleep(1)
    return spark.table("mine")
