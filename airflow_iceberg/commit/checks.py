"""Checks before an action writes anything: the table can be written and is the same, and the files fit it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_iceberg.errors import InvalidInputError, StalePlanError, UnsupportedError
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestEntry
from airflow_iceberg.format.metadata.requirements import AssertTableUUID, Requirement
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import AssignUUID, Change, Update
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema

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


def check_files_fit(metadata: TableMetadata, files: Sequence[DataFile], *, written_schema: Schema) -> None:
    """Check that files that were written for an older state of the table still fit it.

    Raises:
        StalePlanError: the partition spec of a file was removed, a column became required, or the table needs another
            kind of delete files.
        InvalidInputError: delete files that the table's format version does not have.
    """
    specs = {spec.spec_id for spec in metadata.partition_specs}
    for spec_id in {file.spec_id for file in files} - specs:
        raise StalePlanError(f"partition spec {spec_id} was removed from the table while the rows were written")
    _check_deletes(metadata.format_version, files)
    if any(file.content is FileContent.DATA for file in files):
        _check_required(written_schema, metadata.schema())


def check_row_ids(
    planned: Iterable[DataFile], entries: Iterable[ManifestEntry], *, from_version: int | None, to_version: int
) -> None:
    """Check that rows that were rewritten had their row ids when they were read: they would get new ones.

    From version 3 on rows have ids, and a file with existing rows stores them. Rows of older files get theirs with the
    first commit after the upgrade.

    Args:
        planned: the data files as they were read.
        entries: the same files as they are now.
        from_version: the format version when they were read; None if that is not known.

    Raises:
        StalePlanError: the table was upgraded, or the rows got their ids, while they were rewritten.
    """
    if from_version is not None and from_version < 3 <= to_version:
        raise StalePlanError(
            f"the table was upgraded from format version {from_version} to {to_version} while its rows were rewritten: "
            f"the new files would give unchanged rows new row ids; nothing was committed, re-plan on the latest state"
        )
    without = _without_row_ids(planned)
    for entry in entries:
        if entry.data_file.first_row_id is not None and entry.data_file.file_path in without:
            raise _has_row_ids_now(entry.data_file.file_path)


def check_had_row_ids(planned: Iterable[DataFile], *, from_version: int | None, to_version: int) -> None:
    """As `check_row_ids`, of a table that has had another commit since the rows were read, which gives all rows ids.

    Here the files stay in the table, so that no entry of theirs is read.
    """
    check_row_ids(planned, (), from_version=from_version, to_version=to_version)
    if to_version >= 3:
        for path in sorted(_without_row_ids(planned)):
            raise _has_row_ids_now(path)


def _without_row_ids(planned: Iterable[DataFile]) -> set[str]:
    return {file.file_path for file in planned if file.content is FileContent.DATA and file.first_row_id is None}


def _has_row_ids_now(path: str) -> StalePlanError:
    return StalePlanError(
        f"the rows of data file {path} got their row ids after they were read: the new files would give them others; "
        f"nothing was committed, re-plan on the latest snapshot"
    )


def _check_deletes(version: int, files: Iterable[DataFile]) -> None:
    for file in files:
        if file.content is FileContent.DATA:
            continue
        if version == 1:
            raise InvalidInputError(f"a table of format version 1 has no delete files, got {file.file_path}")
        if file.content is FileContent.POSITION_DELETES and file.is_deletion_vector != (version >= 3):
            wanted = "deletion vectors" if version >= 3 else "position delete files"
            raise StalePlanError(
                f"deletes by position are {wanted} in format version {version}, got {file.file_path}; if the table "
                f"was upgraded meanwhile, re-plan"
            )


def _check_required(written: Schema, current: Schema) -> None:
    for field_id, field_ in current.fields_by_id.items():
        before = written.fields_by_id.get(field_id)
        if field_.required and (before is None or not before.required):
            raise StalePlanError(
                f"column {current.find_name(field_id)!r} became required while the rows were written; "
                f"rows without a value may be among them"
            )
