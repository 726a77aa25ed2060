"""A program that appends through `Table.append`, for tests with several writers.

    python -m tests.support.appender '{"catalog": {…}, "table": "db.t", "writer": 3, "appends": 50}'

Each append is one row (writer, number). Prints the snapshot ids that were acknowledged, one a line.
"""

import json
import sys

import pyarrow as pa

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table


def main(text: str) -> None:
    """Append as many rows as asked, one commit each."""
    job = json.loads(text)
    table = Table.load(load_catalog(job["catalog"]["name"], **job["catalog"]["properties"]), job["table"])
    for number in range(job["appends"]):
        rows = pa.table({"writer": pa.array([job["writer"]], pa.int32()), "number": pa.array([number], pa.int32())})
        result = table.append(rows)
        print(result.snapshot_id, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
