"""What makes the ids of sessions on a Spark Connect server secret: whoever knows one can join the session.

The next try of a task has to find the id of an earlier one, on another machine. So it is made of what all workers know
and no other user of the server: the secrets of the catalog's connection, who knows which reads the same files, and the
key by which Airflow encrypts connections.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

from airflow_iceberg.redaction import secrets_of

# A shorter one could be guessed.
_SHORTEST = 8
_FERNET_KEY_BYTES = 32


def session_secret(properties: Mapping[str, str]) -> bytes | None:
    """Return the secret of this installation's sessions; None if nothing here is one.

    Args:
        properties: those of the catalog's connection.
    """
    found = sorted(secret for secret in secrets_of(properties) if len(secret) >= _SHORTEST)
    found += _fernet_keys()[-1:]
    digests = b"".join(hashlib.sha256(secret.encode()).digest() for secret in found)
    return hashlib.sha256(b"airflow_iceberg session\n" + digests).digest() if found else None


def _fernet_keys() -> list[str]:
    """Return the keys of `[core] fernet_key`, the newest first; without those that are none.

    Where no worker has one, Airflow's SDK gives the name of a placeholder.
    """
    from airflow.providers.common.compat.sdk import conf

    return [key for key in str(conf.get("core", "fernet_key", fallback="") or "").split(",") if _is_key(key)]


def _is_key(text: str) -> bool:
    try:
        return len(base64.urlsafe_b64decode(text)) == _FERNET_KEY_BYTES
    except ValueError:
        return False
