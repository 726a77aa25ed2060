"""DuckDB in a process of its own, since version 1.5 ends the whole process on some manifests.

    with DuckReader() as duck:
        duck.rows("file:///…/v3.metadata.json")      # an Arrow table

As a program (`python -m tests.support.duck_reader`) it is the other end: a location a line, an answer each.
"""

import os
import struct
import subprocess
import sys
from typing import Any, Self

import pyarrow as pa

from tests.support.processes import end_process

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class DuckReader:
    """Reads Iceberg tables; starts anew when it has broken down, as it does after an error, too."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            end_process(self._process)
            self._process = None

    def rows(self, metadata_location: str) -> pa.Table:
        """Return the rows of a table.

        Raises:
            RuntimeError: DuckDB's error, or that it has ended.
        """
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.duck_reader"],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        self._process.stdin.write(metadata_location.removeprefix("file://").encode() + b"\n")
        self._process.stdin.flush()
        head = self._process.stdout.read(9)
        if len(head) < 9:
            self.close()
            raise RuntimeError("the process has ended")
        is_error, size = struct.unpack(">?q", head)
        body = self._process.stdout.read(size)
        if is_error:
            self.close()
            raise RuntimeError(body.decode())
        return pa.ipc.open_stream(body).read_all()


def connect(**config: str) -> Any:
    import duckdb
    import duckdb_extensions

    connection = duckdb.connect(config=config)
    for name in ("avro", "iceberg"):
        duckdb_extensions.import_extension(name, con=connection)
        connection.execute(f"load {name}")
    connection.execute("set TimeZone='UTC'")
    return connection


def _read(connection: Any, path: str) -> bytes:
    table = connection.execute(f"select * from iceberg_scan('{path}')").to_arrow_table()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def main() -> None:
    """Answer until the input ends."""
    connection = connect(threads="1")
    for line in sys.stdin.buffer:
        try:
            is_error, body = False, _read(connection, line.decode().strip())
        except Exception as error:  # the other side decides what an error means
            is_error, body = True, f"{type(error).__name__}: {error}".encode()
        sys.stdout.buffer.write(struct.pack(">?q", is_error, len(body)) + body)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
