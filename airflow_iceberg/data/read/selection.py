"""The selection of a reader: a snapshot and columns of a table, by the table's metadata."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata_columns import (
    CHANGELOG_COLUMNS,
    IS_DELETED,
    METADATA_COLUMNS,
    PARTITION_NAME,
    partition_column,
)
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot

log = logging.getLogger(__name__)


def project(metadata: TableMetadata, schema: Schema, selected_fields: tuple[str, ...], case_sensitive: bool) -> Schema:
    """Return the columns of a result: the table's in its order, then metadata columns in the order they are named."""
    columns = dict(METADATA_COLUMNS)
    if PARTITION_NAME in selected_fields:
        columns[PARTITION_NAME] = partition_column(metadata)
    extra = [name for name in selected_fields if name in columns and name not in schema.names]
    names = tuple(name for name in selected_fields if name not in extra)
    if "*" in names:
        kept = schema
    else:
        kept = schema.select(names, case_sensitive=case_sensitive) if names or not extra else Schema()
    if not extra:
        return kept
    return Schema((*kept.fields, *(columns[name] for name in dict.fromkeys(extra))), schema.schema_id)


def choose_snapshot(
    metadata: TableMetadata, *, snapshot_id: int | None, ref: str | None, as_of_ms: int | None
) -> tuple[Snapshot | None, Schema]:
    """Return the snapshot that at most one argument selects, the current one by default, and its schema.

    Raises:
        InvalidInputError: more than one is given.
        NotFoundError: the snapshot or reference does not exist.
    """
    named = {"snapshot_id": snapshot_id, "ref": ref, "as_of_ms": as_of_ms}
    given = [f"{name}={value}" for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise InvalidInputError(f"a scan reads one point of the table's history, got {' and '.join(given)}")
    if snapshot_id is not None:
        snapshot = metadata.snapshot(snapshot_id)
        if snapshot is None:
            raise NotFoundError(f"snapshot {snapshot_id} is not in {metadata.location}; it may have been expired")
        return snapshot, schema_of(metadata, snapshot)
    if as_of_ms is not None:
        snapshot = metadata.snapshot_as_of(as_of_ms)
        if snapshot is None and not metadata.snapshot_log and metadata.current_snapshot_id is not None:
            raise NotFoundError(
                f"table {metadata.location} has no snapshot log, so that it is not known what was current "
                f"{as_of_ms} ms since the epoch: its writer left it out; select the rows by snapshot_id or ref"
            )
        if snapshot is None:
            raise NotFoundError(f"table {metadata.location} has no snapshot as old as {as_of_ms} ms since the epoch")
        return snapshot, schema_of(metadata, snapshot)
    if ref is not None:
        snapshot = metadata.ref_snapshot(ref)
        # As in Iceberg Java: a tag is a point in the past, a branch is read in the table's current schema.
        is_tag = ref in metadata.refs and metadata.refs[ref].type == "tag"
        return snapshot, schema_of(metadata, snapshot) if is_tag and snapshot else metadata.schema()
    return metadata.current_snapshot(), metadata.schema()


def schema_of(metadata: TableMetadata, snapshot: Snapshot) -> Schema:
    """Return the schema that was current when the snapshot was committed; the current one if that is not known."""
    if snapshot.schema_id is None:
        return metadata.schema()
    try:
        return metadata.schema(snapshot.schema_id)
    except NotFoundError as error:
        # Another writer has removed it.
        message = "snapshot %d of %s is read with the current schema, since its own is gone: %s"
        log.warning(message, snapshot.snapshot_id, metadata.location, error)
        return metadata.schema()


def changelog_columns(
    metadata: TableMetadata, schema: Schema, selected_fields: tuple[str, ...], *, case_sensitive: bool = True
) -> Schema:
    """Return the columns of a changelog: those that are selected, and its own three.

    Raises:
        NotFoundError: no such column.
        InvalidInputError: a column of the table has the name of one of a changelog.
    """
    own = {column.name for column in CHANGELOG_COLUMNS}
    projection = project(
        metadata, schema, tuple(name for name in selected_fields if name not in own), case_sensitive=case_sensitive
    )
    if IS_DELETED.id in projection.fields_by_id:
        raise InvalidInputError(f"{IS_DELETED.name} cannot be selected of changes, whose rows have a _change_type")
    both = sorted(own & {column.name for column in projection.fields})
    if both:
        raise InvalidInputError(
            f"column '{both[0]}' of the table has the name of a column of its changelog; rename it, or select the "
            f"columns to read without it"
        )
    return Schema((*projection.fields, *CHANGELOG_COLUMNS), projection.schema_id)


def identifier_ids(
    metadata: TableMetadata, schema: Schema, *, compute_updates: bool, identifier_columns: Sequence[str]
) -> tuple[int, ...] | None:
    """Return the ids of the fields by which the old and the new version of a row are found; see
    `changelog.ChangelogReader`.

    Args:
        identifier_columns: names of columns, or of fields of structs, `"a.id"`.

    Raises:
        NotFoundError: no such column.
        InvalidInputError: the table does not tell what identifies a row; a field inside a list or a map.
    """
    if isinstance(identifier_columns, str):
        raise InvalidInputError(f"identifier_columns is the text {identifier_columns!r}, expected a list of columns")
    if identifier_columns:
        return tuple(_identifier(name, schema) for name in identifier_columns)
    if not compute_updates:
        return None
    if schema.identifier_field_ids:
        return schema.identifier_field_ids
    if metadata.format_version >= 3:
        return ()
    raise InvalidInputError(
        f"compute_updates needs identifier_columns: table {metadata.location} has no identifier fields, and its rows "
        f"have no _row_id before version 3"
    )


def _identifier(name: str, schema: Schema) -> int:
    try:
        return schema.find_key(name).id
    except NotFoundError:
        columns = ", ".join(sorted(column.name for column in schema.fields))
        raise NotFoundError(f"identifier_columns has {name!r}, which is no column; {columns} are") from None
