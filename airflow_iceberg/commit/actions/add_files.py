"""Add files that exist already: an append of files whose names are not the commit's own.

Two things differ from an append of new files. A file may be in the table already, by whatever commit, so every base is
searched for it. And that a file is in the table does not tell that this commit has landed.

After a clear, a file that the earlier run has added is kept, without the deletes of others: in Iceberg a file that a
snapshot has removed may be deleted from the store when the snapshot expires, also if it is added again under the same
name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.attempts.kept import Kept
from airflow_iceberg.commit.file_filters import partition_key
from airflow_iceberg.commit.runs.expired import WAYS_OUT
from airflow_iceberg.commit.snapshot_action import FileChanges
from airflow_iceberg.commit.snapshot_writer import AddedFiles
from airflow_iceberg.errors import AlreadyExistsError, IncompatibleChangeError
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestContent, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.plan.deletes import DeleteIndex, referenced_file

_MOST_SHOWN = 5


class AddFiles(AppendFiles):
    """Adds existing files to a branch, and removes those that only the task's earlier epochs have named.

    Args:
        place: returns the same for all spellings of one location.
        check_duplicate_files: whether a file that the branch has already is an error.
    """

    def __init__(
        self,
        *args: Any,
        place: Callable[[str], Hashable],
        check_duplicate_files: bool = True,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._place = place
        self._checks = check_duplicate_files
        self._by_place = {place(file.file_path): file for file in self._files}
        self._names = {_name(file.file_path) for file in self._files}
        # By the row of the manifest, from which entries inherit; the files that are looked for are always the same.
        self._known: Kept[Mapping[Hashable, DataFile]] = Kept()

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        """Return what to do on this base.

        Raises:
            AlreadyExistsError: the branch has some of the files already.
            IncompatibleChangeError: a file of an earlier run was written again since.
        """
        found = super().changes(metadata, parent)
        earlier = found.removal.paths
        if not (self._checks or earlier):
            return found
        live = self._live(parent)
        own = {place: file for place, file in live.items() if file.file_path in earlier}
        if self._checks:
            self._refuse_duplicates([file for place, file in live.items() if place not in own])
        for place, file in own.items():
            _check_unchanged(file, self._by_place[place])
        kept = {file.file_path for file in own.values()}
        added = tuple(file for place, file in self._by_place.items() if place not in own)
        deletes = self._deletes_of(kept, metadata, parent) if kept else ()
        _, *vectors = found.added
        return replace(
            found,
            added=(*((AddedFiles(files=added),) if added else ()), *vectors),
            removal=replace(found.removal, paths=earlier - kept, files=(*found.removal.files, *deletes)),
            # Rows that others have deleted are there again.
            operation="overwrite" if deletes else found.operation,
        )

    def _deletes_of(self, paths: Set[str], metadata: TableMetadata, parent: Snapshot | None) -> tuple[DataFile, ...]:
        """Return the delete files of files that are kept: their rows are to be there as if they were added now."""
        entries = list(self.writer.live_entries(self.writer.read_parent(parent)))
        is_data = FileContent.DATA
        index = DeleteIndex((e for e in entries if e.data_file.content is not is_data), metadata=metadata)
        found: dict[tuple[str, int | None], DataFile] = {}
        for entry in entries:
            if entry.data_file.content is not is_data or entry.data_file.file_path not in paths:
                continue
            for delete in index.of(entry):
                if referenced_file(delete) != entry.data_file.file_path:
                    raise IncompatibleChangeError(
                        f"cannot add the rows of file {entry.data_file.file_path} again, which an earlier run of this "
                        f"task has added: some were deleted since, in {delete.file_path}, which may delete rows of "
                        f"other files as well; nothing was committed; compact the table's delete files, or "
                        f"{WAYS_OUT}"
                    )
                found[delete.identity] = delete
        return tuple(found.values())

    def has_left_files(self, metadata: TableMetadata) -> bool:
        """Whether manifests of an attempt are in the branch; another commit may have added the same files."""
        return self.writer.has_written(self.writer.read_parent(metadata.ref_snapshot(self.settings.branch)))

    def _live(self, parent: Snapshot | None) -> Mapping[Hashable, DataFile]:
        """Return those of the files that the branch has."""
        live: dict[Hashable, DataFile] = {}
        for manifest in self.writer.read_parent(parent):
            if manifest.content is ManifestContent.DATA and manifest.may_have_live_files:
                live.update(self._live_in(manifest))
        return live

    def _live_in(self, manifest: ManifestFile) -> Mapping[Hashable, DataFile]:
        def read() -> Mapping[Hashable, DataFile]:
            files = (entry.data_file for entry in self.writer.live_entries([manifest]))
            # Few have an equal name, so few locations have to be taken apart.
            alike = {self._place(file.file_path): file for file in files if _name(file.file_path) in self._names}
            return {place: file for place, file in alike.items() if place in self._by_place}

        return self._known.of(manifest, make=read)

    def _refuse_duplicates(self, files: Sequence[DataFile]) -> None:
        if files:
            raise AlreadyExistsError(
                f"cannot add files that the table has already, on branch {self.settings.branch!r}: "
                f"{named([file.file_path for file in files])}; leave them out, nothing was committed"
            )


def named(paths: Sequence[str]) -> str:
    """Return the first few of some paths as text."""
    more = f" and {len(paths) - _MOST_SHOWN} more" if len(paths) > _MOST_SHOWN else ""
    return ", ".join(sorted(paths)[:_MOST_SHOWN]) + more


def _check_unchanged(before: DataFile, now: DataFile) -> None:
    facts = [(file.record_count, file.file_size_in_bytes, partition_key(file)) for file in (before, now)]
    if facts[0] != facts[1]:
        raise IncompatibleChangeError(
            f"file {before.file_path} was changed since an earlier run of this task has added it: it had "
            f"{before.record_count} rows in {before.file_size_in_bytes} bytes in partition {before.partition} of spec "
            f"{before.spec_id}, and has {now.record_count} rows in {now.file_size_in_bytes} bytes in partition "
            f"{now.partition} of spec {now.spec_id}; a file of a table is never changed: write it under a new name, "
            f"nothing was committed"
        )


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
