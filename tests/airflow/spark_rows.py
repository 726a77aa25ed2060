"""What the DAG of a user brings along: a function that gets the SparkSession and returns a DataFrame."""

from typing import Any


def numbers(spark: Any, first: int, count: int) -> Any:
    return spark.range(first, first + count)


def fatal(spark: Any) -> Any:
    """Die without a word."""
    import os

    os._exit(9)


def touch(spark: Any, path: str) -> Any:
    """Leave a trace, as the code of somebody else would."""
    open(path, "w").close()
    return spark.range(1)
