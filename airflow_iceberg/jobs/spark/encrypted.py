"""Properties that may hold secrets, on their way to the workers of Spark Connect.

A Connect server writes requests into its log, with the functions that they hold; for example those that are not
finished when their session ends. So the properties in a function are encrypted. The key is sent as a file of the
session, which the server's user alone can read and which goes with the session: neither alone shows anything. Nobody
can change them on this way who could not change the function, too, so that they are not signed; and the workers need no
library of ciphers.

Classic Spark sends functions in its task messages only, and shows them nowhere.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_iceberg.jobs.spark.package import is_connect


class EncryptedProperties(dict[str, str]):
    """Properties that are encrypted when they are pickled, and plain where they are unpickled: on a worker."""

    def __init__(self, properties: Mapping[str, str], *, key_file: str, key: bytes) -> None:
        super().__init__(properties)
        self._key_file, self._key = key_file, key

    def __repr__(self) -> str:
        return f"EncryptedProperties({', '.join(self)})"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        nonce = secrets.token_bytes(16)
        return decrypted, (self._key_file, nonce, _combined(json.dumps(dict(self)).encode(), self._key, nonce))


def encrypted(spark: Any, properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return properties that a function for the workers can hold; on Spark Connect the session gets their key."""
    if not properties or not is_connect(spark) or isinstance(properties, EncryptedProperties):
        return properties
    key = secrets.token_bytes(32)
    with tempfile.TemporaryDirectory(prefix="airflow-iceberg-") as folder:
        file = Path(folder) / f"airflow_iceberg-{secrets.token_hex(8)}.key"
        file.write_bytes(key)
        spark.addArtifacts(str(file), file=True)
    return EncryptedProperties(properties, key_file=file.name, key=key)


def decrypted(key_file: str, nonce: bytes, text: bytes) -> dict[str, str]:
    """Return the properties, on a worker of the session that has the key."""
    from pyspark import SparkFiles

    key = Path(SparkFiles.get(key_file)).read_bytes()
    return dict(json.loads(_combined(text, key, nonce)))


def _combined(text: bytes, key: bytes, nonce: bytes) -> bytes:
    """Encrypt or decrypt: exclusive or with a stream that only the key gives, and for no other text."""
    stream = hashlib.shake_256(key + nonce).digest(len(text))
    return bytes(one ^ other for one, other in zip(text, stream, strict=True))
