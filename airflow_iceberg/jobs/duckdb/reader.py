"""The rows of a query of DuckDB, streamed in each of its versions, and ended when the task is.

Not here: what a query sees, and its errors (`jobs.duckdb_query`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from decimal import Decimal
from typing import Any, Self

import pyarrow as pa

from airflow_iceberg.jobs.duckdb.statement import one_query

_BATCH_ROWS = 65_536


class Reader:
    """The rows of a query, which a thread of its own waits for.

    DuckDB 2 looks at no signal while it works, and Python cannot: in the thread that is to handle them, a query would
    outlive the timeout of its task. Whatever ends this thread's waiting ends the query.

    Attributes:
        schema: the columns of the query; of one name may be several.
    """

    @classmethod
    def open(cls, duckdb: Any, connection: Any, text: str, args: Mapping[str, Any]) -> Self:
        """Run a query until its first rows are there.

        Raises:
            InvalidInputError: the text is not one query, or reads more than its inputs.
            duckdb.Error: DuckDB cannot run it.
        """
        query = one_query(connection, text)
        values = {name: [*map(_value, one)] if isinstance(one, list) else _value(one) for name, one in args.items()}
        # Measured with 10 million rows: DuckDB 2 collects what `execute` gives, and copies it (580 MB and three times
        # the time); 1.5 collects a relation with values (1,600 MB), and renames columns of one name.
        if int(duckdb.__version__.partition(".")[0]) >= 2:
            return cls(connection, lambda: connection.sql(query, params=values or None))
        return cls(connection, lambda: connection.execute(query, values or None))

    def __init__(self, connection: Any, run: Callable[[], Any]) -> None:
        self._connection, self._thread = connection, ThreadPoolExecutor(1, thread_name_prefix="duckdb")
        self._reader: pa.RecordBatchReader = self._wait_for(lambda: run().to_arrow_reader(_BATCH_ROWS))
        self.schema: pa.Schema = self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._wait_for(next, self._reader, None)) is not None:
            yield batch

    def _wait_for(self, call: Callable[..., Any], *args: Any) -> Any:
        future = self._thread.submit(call, *args)
        try:
            return future.result()
        finally:
            while not future.done():
                self._connection.interrupt()  # again, since a call that has not begun is not interrupted
                wait([future], timeout=0.05)


def _value(value: Any) -> Any:
    """Return the value of a placeholder as all versions take it: for 1.5 the decimal 1E+5 is 1.00000."""
    return Decimal(f"{value:f}") if isinstance(value, Decimal) else value
