"""Checks before an action writes anything: the table can be written, and is the same.

Not here: whether files that were staged before still fit it (`attempts.staged`).
"""

from __future__ import annotations

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.metadata.requirements import AssertTableUUID, Requirement
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import AssignUUID, Change, Update
from airflow_iceberg.format.properties.table_properties import TableProperties

WRITABLE_VERSIONS = (1, 2, 3)


def of_this_table(
    metadata: TableMetadata, updates: tuple[Update, ...], requirements: tuple[Requirement, ...], *, new_uuid: str
) -> Change:
    """Return a change that only this table accepts, and no other table with its name.

    Tables of the first Iceberg versions have no uuid; the first commit assigns one.
    """
    if metadata.table_uuid is None:
        return Change(updates=(AssignUUID(uuid=new_uuid), *updates), requirements=requirements)
    return Change(updates=updates, requirements=(AssertTableUUID(uuid=metadata.table_uuid), *requirements))


def check_writable(metadata: TableMetadata, table: str) -> None:
    """Refuse tables that this version does not write.

    Raises:
        UnsupportedError: the format version, or encryption.
    """
    if metadata.format_version not in WRITABLE_VERSIONS:
        raise UnsupportedError(
            f"table {table} has format version {metadata.format_version}; this version of airflow-iceberg writes "
            f"format versions 1, 2 and 3, nothing was changed"
        )
    if TableProperties.of(metadata.properties).encryption_key_id is not None:
        raise UnsupportedError(
            f"table {table} requires encryption ({TableProperties.encryption_key_id}), which is not supported: its "
            f"rows would be stored unencrypted; nothing was changed"
        )


def check_branch(metadata: TableMetadata, name: str, table: str | None = None) -> None:
    """Check that a ref to which rows are written is a branch, if it exists.

    Raises:
        InvalidInputError: it is a tag.
    """
    ref = metadata.refs.get(name)
    if ref is not None and not ref.is_branch:
        where = table or metadata.location
        raise InvalidInputError(f"{name!r} is a tag of table {where}; rows are written to branches only")
