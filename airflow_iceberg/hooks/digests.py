"""Digests of a task's arguments, by which they are known again, and from which they cannot be read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def slow_digest(arguments: Mapping[str, Any], salt: str) -> str:
    """Return a digest of arguments in hexadecimal digits.

    It is slow on purpose: it lies where others can read it, and an argument may hold a short secret.

    Args:
        salt: a number in hexadecimal digits.
    """
    text = json.dumps(_plain(arguments), sort_keys=True, default=repr)
    return hashlib.scrypt(text.encode(), salt=bytes.fromhex(salt), n=1 << 14, r=8, p=1, dklen=32).hex()


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, {item.name: _plain(getattr(value, item.name)) for item in fields(value)}]
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
