"""Functions on their way to Spark's workers, encrypted: they hold properties of stores, and addresses with signatures.

Spark writes functions down. Classic Spark puts those of more than a megabyte into files below `spark.local.dir`, which
stay after the session's end and after a kill; it may put smaller ones there when its memory is short. A Connect server
writes requests into its log; for example those that are not finished when their session ends. So what is sent is
encrypted as a whole, and the key takes another way: neither alone shows anything. Nobody can change a function on this
way who could not send another one, so that it is not signed; and the workers need no library of ciphers.

The key is for one session. On classic Spark it is a variable of the workers' environment, which Spark sends with each
task, and writes nowhere. On Spark Connect it is a file of the session, which the server's user alone can read and which
goes with the session.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from airflow_iceberg.jobs.spark.package import is_connect

if TYPE_CHECKING:
    import pyarrow as pa

MapFunction = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

KEY_VARIABLE = "AIRFLOW_ICEBERG_FUNCTION_KEY"
_KEY_BYTES = 32
_lock = threading.Lock()
_of_sessions: WeakKeyDictionary[Any, _Key] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class _Key:
    """A key, and the name of the session's file that brings it to the workers; none for their variable."""

    key: bytes = field(repr=False)
    file: str | None = None


class Encrypted:
    """A function that is encrypted when it is pickled, and plain where it is unpickled: on a worker."""

    def __init__(self, function: MapFunction, key: _Key) -> None:
        self._function, self._key = function, key

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self._function(batches)

    def __reduce__(self) -> Any:
        from pyspark import cloudpickle

        nonce = secrets.token_bytes(16)
        return decrypted, (self._key.file, nonce, _combined(cloudpickle.dumps(self._function), self._key.key, nonce))


def encrypted(spark: Any, function: MapFunction) -> MapFunction:
    """Return a function for `mapInArrow` whose pickled form shows nothing of another one; the session gets the key."""
    hidden = Encrypted(function, _key_of(spark))

    # pyspark asks a function for its signature and its name.
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return hidden(batches)

    return run


def decrypted(file: str | None, nonce: bytes, text: bytes) -> MapFunction:
    """Return the function, on a worker of the session that has the key."""
    if file is None:
        key = bytes.fromhex(os.environ[KEY_VARIABLE])
    else:
        from pyspark import SparkFiles

        key = Path(SparkFiles.get(file)).read_bytes()
    # What this job's own driver has sent: anybody who can change it could send a function of his own.
    function: MapFunction = pickle.loads(_combined(text, key, nonce))  # noqa: S301
    return function


def _key_of(spark: Any) -> _Key:
    with _lock:
        if not is_connect(spark):
            # One for the whole application: workers with other variables are other processes.
            variables = spark.sparkContext.environment
            return _Key(bytes.fromhex(variables.setdefault(KEY_VARIABLE, secrets.token_hex(_KEY_BYTES))))
        if spark not in _of_sessions:
            _of_sessions[spark] = _send_key(spark)
        return _of_sessions[spark]


def _send_key(spark: Any) -> _Key:
    key = secrets.token_bytes(_KEY_BYTES)
    with tempfile.TemporaryDirectory(prefix="airflow-iceberg-") as folder:
        file = Path(folder) / f"airflow_iceberg-{secrets.token_hex(8)}.key"
        file.write_bytes(key)
        spark.addArtifacts(str(file), file=True)
    return _Key(key, file.name)


def _combined(text: bytes, key: bytes, nonce: bytes) -> bytes:
    """Encrypt or decrypt: exclusive or with a stream that only the key gives, and for no other text."""
    stream = hashlib.shake_256(key + nonce).digest(len(text))
    number = int.from_bytes(text, "little") ^ int.from_bytes(stream, "little")
    return number.to_bytes(len(text), "little")
