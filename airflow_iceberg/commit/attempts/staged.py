"""What was staged for one state of the table: may it be committed to the table as it is now?

A job writes files for one format version, schema and partition spec. Until they are committed the table may be
upgraded or altered. Each check passes, or raises StalePlanError: the work is planned again on the newest state.

- Format version: deletes by position are files in version 2 and vectors from 3 on; rows have ids from 3 on, which a
  file with existing rows stores (`check_row_ids`, `check_had_row_ids`, `check_not_upgraded`).
- Schema: field ids mean the same columns for ever, and types only become wider, so that files stay readable. A column
  that became required may be missing in them. The files' own schema, not that of the table as it is now, says what is
  in them. A predicate is bound to field ids; bounds of a type that it does not know prove nothing.
- Partition spec: that of a file must be there, and must be the one that the file was written with.
- Sort order: a file names that by which it is sorted; orders are never removed.
- Properties: how a file was written (size, compression, metrics) does not matter once it is there.

Not here: what an attempt keeps for the next one (`kept`), and rows that others have changed (`commit.conflicts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.errors import InvalidInputError, StalePlanError
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.schemas.schema import Schema


def check_files_fit(
    metadata: TableMetadata, files: Sequence[DataFile], *, written_schema: Schema, settings: CommitSettings
) -> None:
    """Check that files that were written for an older state of the table still fit it.

    Args:
        settings: those of the commit, which know the partition specs that were planned with.

    Raises:
        StalePlanError: the partition spec of a file was removed or is another one, a column became required, or the
            table needs another kind of delete files.
        InvalidInputError: delete files that the table's format version does not have.
    """
    _check_specs(metadata, files, settings)
    _check_deletes(metadata.format_version, files)
    if any(file.content is FileContent.DATA for file in files):
        _check_required(written_schema, metadata.schema())


def _check_specs(metadata: TableMetadata, files: Iterable[DataFile], settings: CommitSettings) -> None:
    known = {spec.spec_id: spec for spec in metadata.partition_specs}
    planned = {spec.spec_id: spec for spec in settings.specs}
    for spec_id in sorted({file.spec_id for file in files}):
        if spec_id not in known:
            raise StalePlanError(f"partition spec {spec_id} was removed from the table while the rows were written")
        # The number of a spec that was removed may be given to another one.
        if spec_id in planned and planned[spec_id].fields != known[spec_id].fields:
            raise StalePlanError(
                f"partition spec {spec_id} was removed from the table while the rows were written, and another one has "
                f"its number now; nothing was committed, re-plan on the latest state"
            )


# -- row ids -----------------------------------------------------------------------------------------------------------


def check_row_ids(
    planned: Iterable[DataFile], entries: Iterable[ManifestEntry], *, from_version: int | None, to_version: int
) -> None:
    """Check that rows that were rewritten have the row ids with which they were read: they would get other ones.

    From version 3 on rows have ids, and a file with existing rows stores them. Rows of older files get theirs with the
    first commit after the upgrade; on each branch others, if that comes first.

    Args:
        planned: the data files as they were read.
        entries: the same files as they are now.
        from_version: the format version when they were read; None if that is not known.

    Raises:
        StalePlanError: the table was upgraded, or the rows got their ids, while they were rewritten.
    """
    check_not_upgraded(from_version=from_version, to_version=to_version)
    # The table may list a file several times, with row ids of its own each time.
    read: dict[str, set[int | None]] = {}
    for file in _data(planned):
        read.setdefault(file.file_path, set()).add(file.first_row_id)
    for entry in entries:
        path, now = entry.data_file.file_path, entry.data_file.first_row_id
        if path in read and now is not None and now not in read[path]:
            raise _has_other_row_ids(path, next(iter(read[path])))


def check_had_row_ids(planned: Iterable[DataFile], *, from_version: int | None, to_version: int) -> None:
    """As `check_row_ids`, of a table that has had another commit since the rows were read, which gives all rows ids.

    Here the files stay in the table, so that no entry of theirs is read.
    """
    check_not_upgraded(from_version=from_version, to_version=to_version)
    if to_version >= 3:
        for path in sorted(file.file_path for file in _data(planned) if file.first_row_id is None):
            raise _has_other_row_ids(path, None)


def check_not_upgraded(*, from_version: int | None, to_version: int) -> None:
    """Check that rows that were rewritten were read with their row ids, if the table has such now.

    Raises:
        StalePlanError: the table was upgraded to version 3 since.
    """
    if from_version is not None and from_version < 3 <= to_version:
        raise StalePlanError(
            f"the table was upgraded from format version {from_version} to {to_version} while its rows were rewritten: "
            f"the new files would give unchanged rows new row ids; nothing was committed, re-plan on the latest state"
        )


def _data(files: Iterable[DataFile]) -> Iterable[DataFile]:
    return (file for file in files if file.content is FileContent.DATA)


def _has_other_row_ids(path: str, read: int | None) -> StalePlanError:
    did = "got their row ids" if read is None else "have other row ids here than where they were read: they got them"
    return StalePlanError(
        f"the rows of data file {path} {did} after they were read: the new files would give them others; nothing was "
        f"committed, re-plan on the latest snapshot"
    )


# -- deletes and columns -----------------------------------------------------------------------------------------------


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
