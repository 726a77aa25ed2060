"""Schemas, snapshots, tags and branches of a Paimon table, and the rules by which the latest snapshot is found.

The I/O of `paimon` is here and in `files` (the files of a snapshot), through a `FileIO`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Self

from airflow_iceberg.errors import FormatError, NotFoundError
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.snapshots import Snapshot, Tag
from airflow_iceberg.storage.base import FileIO

MAIN_BRANCH = "main"

# How many are kept where memory is limited; each may be as large as a file that is read.
_MOST_SCHEMAS = 2
_NUMBER = re.compile(r"0|[1-9][0-9]*")


class PaimonHistory:
    """One branch of a Paimon table. Schemas are read once; snapshots, hints and tags each time.

    Args:
        location: the location of the table.
        io: the store.
        branch: `main`, or a branch. A branch has its own snapshots, schemas and tags, and shares all other files.
        most_bytes: how much memory the entries of manifests may take together, where the process does the work of
            others, too; None for any.
    """

    def __init__(self, location: str, io: FileIO, *, branch: str = MAIN_BRANCH, most_bytes: int | None = None) -> None:
        self.most_bytes = most_bytes
        self.location = location.rstrip("/")
        self.io = io
        self.branch_name = branch
        self._schemas: dict[int, PaimonSchema] = {}

    @classmethod
    def load(cls, location: str, io: FileIO, *, branch: str = MAIN_BRANCH) -> Self:
        """Return a table.

        Raises:
            NotFoundError: the table, or this branch of it, does not exist: there is no schema.
        """
        table = cls(location, io, branch=branch)
        table.schema()
        return table

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r}, branch={self.branch_name!r})"

    # --- schemas ------------------------------------------------------------------------------------------------------

    def schema_ids(self) -> tuple[int, ...]:
        """Return the numbers of all schemas, ascending.

        Raises:
            NotFoundError: there are none, so the table or this branch of it does not exist.
        """
        ids = self._numbers("schema", "schema-")
        if not ids:
            raise NotFoundError(
                f"no Paimon table at {self._root}: expected files schema-0 and on in {self._root}/schema, found none"
            )
        return ids

    def schema(self, schema_id: int | None = None) -> PaimonSchema:
        """Return a schema, the newest one by default."""
        number = self.schema_ids()[-1] if schema_id is None else schema_id
        if number not in self._schemas:
            location = f"{self._root}/schema/schema-{number}"
            schema = PaimonSchema.from_json(self._read(location, f"schema {number}"), path=location)
            if schema.id != number:
                raise FormatError(f"unexpected schema id {schema.id} (expected {number})", path=location)
            if self.most_bytes is not None and len(self._schemas) >= _MOST_SCHEMAS:
                self._schemas.clear()
            self._schemas[number] = schema
        return self._schemas[number]

    def schemas(self) -> tuple[PaimonSchema, ...]:
        """Return all schemas, oldest first."""
        return tuple(self.schema(number) for number in self.schema_ids())

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def latest_snapshot_id(self) -> int | None:
        """Return the id of the latest snapshot, None for a table without snapshots.

        The hint is used only if its snapshot exists and the next one does not: it is written after the snapshot, and a
        writer may die in between.

        Raises:
            FormatError: there is a hint, but no snapshot.
        """
        return self._end("LATEST", 1)

    def earliest_snapshot_id(self) -> int | None:
        """Return the id of the earliest snapshot that has not expired, None for a table without snapshots."""
        return self._end("EARLIEST", -1)

    def _end(self, name: str, step: int) -> int | None:
        hint = self._hint(name)
        if hint is not None and self._has(hint) and not self._has(hint + step):
            return hint
        ids = self._listed_ids()
        return (max if step > 0 else min)(ids, default=None)

    def _listed_ids(self) -> tuple[int, ...]:
        ids = self._numbers("snapshot", "snapshot-")
        if not ids:
            self._refuse_hints_without_files()
        return ids

    def snapshot_ids(self) -> tuple[int, ...]:
        """Return the ids of all snapshots that have not expired, ascending.

        Raises:
            FormatError: one in the middle is missing: the oldest snapshots expire, and the newest are rolled back.
        """
        ids = self._listed_ids()
        for before, after in pairwise(ids):
            if after != before + 1:
                missing = self._snapshot_location(before + 1)
                raise FormatError(f"a snapshot is missing between {before} and {after}; expected a file", path=missing)
        return ids

    def snapshots(self) -> Iterator[Snapshot]:
        """Yield all snapshots, oldest first, without those that expire before they are read."""
        for number in self.snapshot_ids():
            found = self.find_snapshot(number)
            if found is None:
                ids = self._numbers("snapshot", "snapshot-")
                is_gone = bool(ids) and not ids[0] < number < ids[-1]  # expired, or rolled back
                found = None if is_gone else self.snapshot(number)
            if found is not None:
                yield found

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """Return a snapshot by its id.

        Raises:
            NotFoundError: it has expired, was rolled back or never existed.
        """
        found = self.find_snapshot(snapshot_id)
        if found is None:
            ids = self._numbers("snapshot", "snapshot-")
            known = f"it has {ids[0]} to {ids[-1]}" if ids else "it has none"
            raise NotFoundError(f"no snapshot {snapshot_id} of table {self._root}; {known}")
        return found

    def find_snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return a snapshot by its id, None if it does not exist."""
        location = self._snapshot_location(snapshot_id)
        try:
            data = self.io.read(location)
        except NotFoundError:
            return None
        snapshot = Snapshot.from_json(data, path=location)
        if snapshot.id != snapshot_id:
            raise FormatError(f"unexpected snapshot id {snapshot.id} (expected {snapshot_id})", path=location)
        return snapshot

    def latest_snapshot(self) -> Snapshot | None:
        """Return the latest snapshot, None for a table without snapshots; see `latest_snapshot_id`."""
        hint = self._hint("LATEST")
        if hint is not None and not self._has(hint + 1) and (found := self.find_snapshot(hint)) is not None:
            return found
        number = self.latest_snapshot_id()
        return None if number is None else self.snapshot(number)

    def _snapshot_location(self, snapshot_id: int) -> str:
        return f"{self._root}/snapshot/snapshot-{snapshot_id}"

    def _has(self, snapshot_id: int) -> bool:
        return self.io.exists(self._snapshot_location(snapshot_id))

    def _hint(self, name: str) -> int | None:
        """Return the number in a hint, None if there is none."""
        try:
            text = self.io.read(f"{self._root}/snapshot/{name}", length=32).decode("ascii", "replace").strip()
        except NotFoundError:
            return None
        return int(text) if _NUMBER.fullmatch(text) else None

    def _refuse_hints_without_files(self) -> None:
        for name in ("LATEST", "EARLIEST"):
            location = f"{self._root}/snapshot/{name}"
            if self.io.exists(location):
                text = self.io.read(location, length=32).decode("ascii", "replace").strip()
                raise FormatError(
                    f"the hint says snapshot {text!r}, expected files snapshot-* in the same folder, found none",
                    path=location,
                )

    # --- tags and branches --------------------------------------------------------------------------------------------

    def tag_names(self) -> tuple[str, ...]:
        """Return the names of all tags, sorted."""
        return tuple(sorted(name.removeprefix("tag-") for name in self._names("tag") if name.startswith("tag-")))

    def has_tag(self, name: str) -> bool:
        """Return whether a tag of this name exists."""
        return self.io.exists(f"{self._root}/tag/tag-{name}")

    def tag(self, name: str) -> Tag:
        """Return a tag.

        Raises:
            NotFoundError: it does not exist.
        """
        location = f"{self._root}/tag/tag-{name}"
        try:
            data = self.io.read(location)
        except NotFoundError as error:
            known = ", ".join(self.tag_names()) or "none"
            raise NotFoundError(f"no tag '{name}' of table {self._root}; it has {known}") from error
        return Tag.from_json(name, data, path=location)

    def tags(self) -> tuple[Tag, ...]:
        """Return all tags, sorted by name."""
        return tuple(self.tag(name) for name in self.tag_names())

    def branches(self) -> tuple[str, ...]:
        """Return the names of all branches, sorted, without `main`."""
        base = f"{self.location}/branch/"
        heads = {status.location.removeprefix(base).split("/")[0] for status in self.io.list(base)}
        return tuple(sorted(head.removeprefix("branch-") for head in heads if head.startswith("branch-")))

    def branch(self, name: str) -> Self:
        """Return a branch as a table of its own.

        Raises:
            NotFoundError: it does not exist.
        """
        if name != MAIN_BRANCH and name not in self.branches():
            known = ", ".join((MAIN_BRANCH, *self.branches()))
            raise NotFoundError(f"no branch '{name}' of table {self.location}; it has {known}")
        return type(self)(self.location, self.io, branch=name, most_bytes=self.most_bytes)

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def _root(self) -> str:
        """Directory of the branch's own files."""
        if self.branch_name == MAIN_BRANCH:
            return self.location
        return f"{self.location}/branch/branch-{self.branch_name}"

    def _read(self, location: str, what: str, size: int | None = None) -> bytes:
        """Return a file that the table needs, after checking its size if that is known."""
        try:
            data = self.io.read(location)
        except NotFoundError as error:
            expected = "" if size is None else f" of {size} bytes"
            raise NotFoundError(
                f"cannot read {location}: expected the {what}{expected}, found no file; "
                f"it was lost, or has expired in the meantime"
            ) from error
        if size is not None and len(data) != size:
            raise FormatError(f"unexpected {len(data)} bytes of the {what} (expected {size})", path=location)
        return data

    def _names(self, folder: str) -> Iterator[str]:
        base = f"{self._root}/{folder}/"
        for status in self.io.list(base):
            yield status.location.removeprefix(base)

    def _numbers(self, folder: str, prefix: str) -> tuple[int, ...]:
        texts = (name.removeprefix(prefix) for name in self._names(folder) if name.startswith(prefix))
        return tuple(sorted(int(text) for text in texts if _NUMBER.fullmatch(text)))
