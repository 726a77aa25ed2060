"""The form that all documents of a job share: JSON with a version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.json_fields import Fields

VERSION = 1


def _to_bytes(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def _document(data: bytes | str, what: str, path: str | None) -> Fields:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise FormatError(f"{what} is not JSON: {error}", path=path) from error
    if not isinstance(document, dict):
        raise FormatError(f"{what} is not a JSON object", path=path)
    fields = Fields(document, "", path)
    version = fields.int("version")
    if version > VERSION:
        raise UnsupportedError(
            f"{what} has version {version}, this airflow_iceberg knows up to {VERSION}; "
            f"use the same version of airflow_iceberg in Airflow and on the cluster"
        )
    if version < 1:
        raise FormatError(f"{what} has version {version}, expected {VERSION}", path=path)
    return fields


def _mappings(items: Sequence[Any], where: str, path: str | None) -> Sequence[Mapping[str, Any]]:
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            message = f"unexpected type {type(item).__name__} (expected object) in '{where}[{index}]'"
            raise FormatError(message, path=path)
    return items
