"""An ORC file that is read below a limit of memory: a stripe at a time, or fewer rows if that would be too much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from airflow_iceberg.data.limits.memory import MemoryLimit
from airflow_iceberg.data.limits.orc.stripes import OrcLimit


class LimitedOrc:
    """An open file.

    Args:
        handle: an Arrow file, or one of fsspec.
    Attributes:
        orc: the file as pyarrow reads it; rows are read by `batches`.
    Raises:
        FormatError: its footer may become more than the limit.
    """

    def __init__(self, handle: Any, limit: MemoryLimit) -> None:
        self._handle = handle if isinstance(handle, pa.NativeFile) else pa.PythonFile(handle, mode="r")
        self._limit = OrcLimit(self._handle, limit)
        self.size_bytes = int(self._handle.size())
        from pyarrow import orc

        self.orc = orc.ORCFile(self._handle)

    def batches(self, names: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows: a stripe at a time, or fewer rows.

        Args:
            names: the top-level columns; all by default.
        Raises:
            FormatError: not even a row fits into the limit.
        """
        rows = self._limit.rows(names)
        if rows is None:
            for stripe in range(self.orc.nstripes):
                yield self.orc.read_stripe(stripe, columns=names)
            return
        from pyarrow import dataset

        fragment = dataset.OrcFileFormat().make_fragment(self._handle)
        columns = names if names is not None else self.orc.schema.names
        yield from fragment.to_batches(columns=columns, batch_size=rows, use_threads=False)
