"""`HadoopCatalog`: tables are directories, and the newest `metadata/v<N>.metadata.json` is the table.

A commit is the creation of one file. Iceberg Java's HadoopCatalog may read and write the same tables at the same time.
Not here: which version is the newest (`hadoop.versions`), and how a file is created only if it does not exist
(`airflow_iceberg.storage`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Unpack

from airflow_iceberg.catalogs.base import Namespace, TableId, TableState, join_levels, listed_tables
from airflow_iceberg.catalogs.hadoop.paths import below, is_plain
from airflow_iceberg.catalogs.hadoop.versions import MetadataDirectory, Version, base_version, version_of
from airflow_iceberg.catalogs.metadata_file import encode_metadata, is_gzip_asked, read_metadata
from airflow_iceberg.catalogs.missing import warn_of_new_warehouse
from airflow_iceberg.catalogs.pointer import Outside, Pointer, PointerCatalog
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.inventory.purge import delete_files
from airflow_iceberg.inventory.within import check_folder
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.conditional_create import Presence, find_directory, require_conditional_create
from airflow_iceberg.storage.directories import FsspecDirectories, open_directory
from airflow_iceberg.storage.gate import Gate, GatedFileIO
from airflow_iceberg.storage.trust import Trust

_OWN_DIRECTORIES = {"data", "metadata"}
# Differs from Java: it checks whether vN exists and then renames. On a local file system its rename replaces: a file
# that we create between the two is lost. We look again after more time than Java needs for both.
_JAVA_RENAME_S = 0.01


class HadoopCatalog(PointerCatalog):
    """Tables in the directories of a warehouse: `<warehouse>/<namespace levels>/<table>`.

    A table cannot be renamed, registered, moved, or keep its metadata elsewhere; namespaces have no properties.

    Args:
        properties: `warehouse`, the root directory.
        sleep: a replacement of `time.sleep` in tests.
    """

    # Versions are numbers, which start again when a table was dropped and created again.
    has_new_names = False
    namespaces_are_folders = True

    def __init__(
        self,
        name: str,
        properties: Mapping[str, str],
        *,
        sleep: Callable[[float], None] = time.sleep,
        **outside: Unpack[Outside],
    ) -> None:
        super().__init__(name, properties, **outside)
        warehouse = properties.get("warehouse", "").strip()
        if not warehouse:
            raise InvalidInputError(
                f"catalog {name}: property 'warehouse' is missing, set it to the root directory of its tables"
            )
        self._sleep = sleep
        self._warehouse = warehouse.rstrip("/") or "/"
        self._is_probed = False
        self._gated: GatedFileIO | None = None
        self.io.filesystem(self._warehouse)  # an unknown scheme, or a missing driver, is reported at once

    def __repr__(self) -> str:
        return f"HadoopCatalog(name={self.name!r}, warehouse={self._warehouse!r})"

    # -- the pointer: the newest version ---------------------------------------------------------------------------

    def read_pointer(self, table: TableId) -> Pointer | None:
        newest = self._metadata_directory(table).newest()
        return Pointer(metadata_location=newest.location, token=newest.version) if newest else None

    def swap_pointer(self, table: TableId, *, expected: Pointer | None, new: str) -> Pointer:
        """Refuse: the metadata file is the pointer, there is nothing to swap."""
        raise UnsupportedError(f"cannot let {table} point to {new}: a Hadoop catalog's table is its own directory")

    def _publish(self, table: TableId, base: TableState | None, metadata: TableMetadata) -> TableState:
        """Create the file of the next version; the writer that creates it first has won."""
        directory = self._metadata_directory(table)
        self._refuse_relocation(table, base, metadata)
        if base is None:
            self._require_no_namespace(table)
        else:
            self._require_newest(table, directory, base)
        version = 1 if base is None else base_version(base) + 1
        # Differs from Java: the name follows from the *base's* codec, so that all who commit on one base meet at one
        # name. Java takes the new codec, and of two writers of which one changes the codec both succeed.
        location = directory.location_of(version, is_gzip=base is not None and is_gzip_asked(base.metadata.properties))
        is_gzip_asked(metadata.properties)  # an unknown codec is rejected before it is written
        data = encode_metadata(metadata, location)
        try:
            hint = self._create_version(directory, version, location, data, base)
        except AlreadyExistsError as error:
            raise self._lost(table, base, version) from error
        directory.write_hint(version, last=hint)
        return self._state(table, metadata, Pointer(metadata_location=location, token=version))

    def _create_version(
        self, directory: MetadataDirectory, version: int, location: str, data: bytes, base: TableState | None
    ) -> int | None:
        """Create the file, make sure that it is the table's, and return the hint as it was read afterwards."""
        # For a later version, `_require_newest` has just checked this.
        if base is None and (taken := directory.spellings(version)):
            raise AlreadyExistsError(f"version {version} is {taken[0]}")
        self._probe(directory)
        directory.forget_checksum(location)
        try:
            self._in_warehouse.create(location, data)
        except StorageError as error:
            self._resolve(directory, location, data, error)
        try:
            return self._look_again(directory, version, location, data, base)
        except (AlreadyExistsError, CommitUnknownError):
            raise
        except IcebergError as error:
            # The version exists and may be the table's: an error while that is checked does not prove a failure.
            raise _unknown(location, str(error)) from error

    def _probe(self, directory: MetadataDirectory) -> None:
        """Reject a store that ignores the condition that commits rely on; checked once for each catalog object."""
        if directory.is_conditional and not self._is_probed:
            require_conditional_create(self._in_warehouse, directory.location)
            self._is_probed = True

    def _look_again(
        self, directory: MetadataDirectory, version: int, location: str, data: bytes, base: TableState | None
    ) -> int | None:
        """Make sure that the version just created is the table's, and the only one of its number."""
        if directory.is_local:
            self._sleep(_JAVA_RENAME_S)
            self._resolve(directory, location, data, None)
        if directory.is_there(version, other_than=location):
            raise directory.two_spellings(version)
        return self._require_to_be_followed(directory, version, location, base)

    def _require_to_be_followed(
        self, directory: MetadataDirectory, version: int, location: str, base: TableState | None
    ) -> int | None:
        """Make sure that newer versions, if there are any by now, are based on ours; return the hint.

        If old metadata is deleted after each commit, a delayed writer can fill the hole that a deleted version left:
        its file is created and has no effect.
        """
        hint = directory.read_hint()
        if base is not None and not directory.is_there(version + 1):
            if directory.is_surely_last(version, hint=hint, witness=base.metadata_location):
                return hint
        newest = directory.newest(at_least=Version(version=version, location=location))
        if newest is None or newest.version <= version:
            return hint
        name = location.rpartition("/")[2]
        files = Trust.of(self.properties).gate(newest.location).around(self.io)
        logged = read_metadata(files, newest.location).metadata_log
        # By name: Java spells the same location file:/…
        if all(entry.rpartition("/")[2] != name for _, entry in logged):
            raise _unknown(location, f"the table is at version {newest.version} already")
        return hint

    def _resolve(self, directory: MetadataDirectory, location: str, data: bytes, cause: StorageError | None) -> None:
        """Find out by reading back whether the version is ours; return if it is.

        Raises:
            AlreadyExistsError: it is another writer's.
            StorageError: there is no such version, and none will come: the store has no requests on their way, or has
                refused them all.
        """
        if cause is not None and cause.is_refused and not directory.is_local:
            raise cause
        try:
            found = self._in_warehouse.read(location)
        except NotFoundError as error:
            if cause is None:
                raise _unknown(location, "the file existed and was then deleted") from error
            if directory.answers_are_final:
                raise cause from cause.__cause__
            raise _unknown(location, "the file does not exist, or not yet") from cause
        except StorageError as error:
            raise _unknown(location, str(error)) from (cause or error)
        if found != data:
            raise AlreadyExistsError(f"{location} was written by another writer") from cause

    def _lost(self, table: TableId, base: TableState | None, version: int) -> IcebergError:
        if base is None:
            return self._existing_table(table)
        return self._changed_by_another(table, f"it is at version {version}, expected {base_version(base)}")

    def _refuse_relocation(self, table: TableId, base: TableState | None, metadata: TableMetadata) -> None:
        where = self.default_location(table)
        if TableProperties.metadata_path.name in metadata.properties:
            raise UnsupportedError(
                f"cannot set {TableProperties.metadata_path} on {table}: a Hadoop catalog finds metadata only in "
                f"{where}/metadata"
            )
        if base is not None and base.metadata.location != metadata.location:
            raise UnsupportedError(
                f"cannot move {table} to {metadata.location}: in a Hadoop catalog its location is always {where}"
            )
        if base is None and not self._is_same_place(metadata.location, where):
            raise UnsupportedError(
                f"cannot create {table} in {metadata.location}: a Hadoop catalog's table of this name is in {where}, "
                "leave the location out"
            )

    def _require_newest(self, table: TableId, directory: MetadataDirectory, base: TableState) -> None:
        """Reject a base that is not the newest version: the file of the next one may have been deleted since.

        A table that was dropped and created again has files of the same names: only their uuid tells.
        """
        version = base_version(base)
        if directory.is_there(version + 1):  # checked first: most writers that lost a race need one request only
            raise self._lost(table, base, version + 1)
        hint = directory.read_hint()
        is_there = directory.is_of(base, base.metadata_location)
        if is_there and hint is not None and hint <= version:  # as `is_surely_last`, which asks for the file, too
            return
        newest = directory.newest()
        if newest is None:
            raise self._unknown_table(table)
        if newest.version != version:
            raise self._lost(table, base, newest.version)
        if newest.location != base.metadata_location:
            directory.is_of(base, newest.location)

    def _require_no_namespace(self, table: TableId) -> None:
        inside = {name for name in self._directories((*table.namespace, table.name)) if name[0] not in "._"}
        if inside - _OWN_DIRECTORIES:
            raise AlreadyExistsError(
                f"cannot create table {table} in catalog {self.name}: it is a namespace that is not empty"
            )

    # -- tables ------------------------------------------------------------------------------------------------------

    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]:
        namespace = self._require_namespace(namespace)
        tables = listed_tables(namespace, self.some_names(namespace))
        return tuple(table for table in tables if self._is_table((*namespace, table.name)))

    def some_names(self, above: Namespace) -> Iterable[str]:
        return filter(is_plain, self._directories(above))

    def why_missing(self, table: TableId) -> str | None:
        if find_directory(self.io, self._warehouse) is Presence.PRESENT:
            return None
        return f"the warehouse {self._warehouse} does not exist, or holds nothing"

    def drop_table(self, table: str | TableId, *, purge: bool = False) -> None:
        """Remove the table's directory, as Iceberg Java does: the directory is the table, data files included.

        With `purge` its files in other places are deleted, too.
        """
        table = self.id_of(table)
        if not purge:
            self.drop_pointer(table)
            return
        _, files, io = self._drop_with_files(table)
        delete_files(io, str(table), files.outside(self.default_location(table)))

    def drop_pointer(self, table: TableId) -> None:
        state = self.load(table)
        if not TableProperties.of(state.metadata.properties).gc_enabled:
            reason = f"its property {TableProperties.gc_enabled} is false, and a Hadoop catalog drops a table with its"
            raise InvalidInputError(f"cannot drop {table}: {reason} files; remove the property first")
        location = self.default_location(table)
        check_folder(self.deleting_io(state), location, "drop", own=f"{location}/metadata")
        try:
            with open_directory(self._in_warehouse, location, "remove") as (store, path):
                # Metadata first: half a removal must not leave a table whose files are gone.
                store.remove_tree(f"{path}/metadata")
                store.remove_tree(path)
        except StorageError as error:
            if error.is_refused or isinstance(error.__cause__, PermissionError):
                raise
            raise CommitUnknownError(
                f"it is unknown whether {table} was dropped ({error}); if it still exists, drop it again, else "
                f"remove the files that may be left in {location}"
            ) from error

    def rename_table(self, table: str | TableId, to: str | TableId) -> None:
        raise UnsupportedError(f"cannot rename {table}: a Hadoop catalog's table has the name of its directory")

    def register_table(self, table: str | TableId, metadata_location: str) -> TableState:
        raise UnsupportedError(
            f"cannot register {metadata_location} as {table}: a Hadoop catalog has no pointers, read the table with "
            "Table.from_metadata"
        )

    def default_location(self, table: str | TableId) -> str:
        """Return the directory of the table, its only possible location."""
        table = self.id_of(table)
        return self._location((*table.namespace, table.name))

    def new_location(self, table: str | TableId) -> str:
        return self.default_location(table)

    def _own_locations(self, table: TableId, metadata: TableMetadata) -> tuple[str, ...]:
        """Return the directory of the table, wherever its metadata says that it is, and the other locations."""
        _, *others = super()._own_locations(table, metadata)
        return (self.default_location(table), *others)

    # -- namespaces --------------------------------------------------------------------------------------------------

    def _create_namespace(self, namespace: Namespace, properties: dict[str, str]) -> bool:
        """Create the directory, and those above it."""
        if properties:
            raise self._no_properties(namespace)
        with open_directory(self._in_warehouse, self._location(namespace), "create the directory") as (store, path):
            if not store.is_directory(path):
                warn_of_new_warehouse(self, self._location(namespace))
                store.make_directory(path)
                return True
        if self._is_table(namespace):
            raise AlreadyExistsError(f"table {join_levels(namespace)} exists already in catalog {self.name}")
        return False

    def drop_namespace(self, namespace: str | Namespace) -> None:
        """Remove the directory if it is empty."""
        namespace = self._require_namespace(namespace)
        location = self._location(namespace)
        with open_directory(self._in_warehouse, location, "remove the directory") as (store, path):
            if held := store.children(path):
                raise InvalidInputError(
                    f"namespace {join_levels(namespace)} is not empty: {location} holds {held[0][0]}; drop that first"
                )
            store.remove_directory(path)

    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]:
        above = self._require_namespace(parent) if parent else ()
        return tuple(sorted((*above, name) for name in self.some_names(above) if not self._is_table((*above, name))))

    def namespace_exists(self, namespace: str | Namespace) -> bool:
        namespace = self.levels_of(namespace)
        with open_directory(self._in_warehouse, self._location(namespace), "look for") as (store, path):
            return store.is_directory(path) and not self._is_table(namespace)

    def load_namespace_properties(self, namespace: str | Namespace) -> Mapping[str, str]:
        """Return the location, the only property of a directory."""
        return {"location": self._location(self._require_namespace(namespace))}

    def _update_namespace(self, namespace: Namespace, new: dict[str, str], old: frozenset[str]) -> None:
        raise self._no_properties(self._require_namespace(namespace))

    def _no_properties(self, namespace: Namespace) -> UnsupportedError:
        return UnsupportedError(
            f"cannot set properties of namespace {join_levels(namespace)}: in a Hadoop catalog it is a directory"
        )

    # -- directories -------------------------------------------------------------------------------------------------

    @property
    def _in_warehouse(self) -> FileIO:
        """Access to the warehouse alone: a link below it would lead to the files of others."""
        if self._gated is None or self._gated.inner is not self.io:
            self._gated = GatedFileIO(self.io, Gate(allowed=(self._warehouse,), own=(self._warehouse,)))
        return self._gated

    def _metadata_directory(self, table: TableId) -> MetadataDirectory:
        return MetadataDirectory(self._in_warehouse, f"{self.default_location(table)}/metadata")

    def check_held(self, namespace: Namespace, *name: str) -> None:
        self._location((*namespace, *name))

    def _location(self, names: Namespace) -> str:
        return below(self._warehouse, names, self.name)

    def _directories(self, names: Namespace) -> list[str]:
        with open_directory(self._in_warehouse, self._location(names), "list") as (store, path):
            return [name for name, is_directory in store.children(path) if is_directory]

    def _is_table(self, names: Namespace) -> bool:
        with open_directory(self._in_warehouse, f"{self._location(names)}/metadata", "list") as (store, path):
            return any(version_of(name) is not None for name in store.names(path, "v"))

    def _is_same_place(self, location: str, other: str) -> bool:
        with open_directory(self.io, location, "open") as (one, path), open_directory(self.io, other, "open") as found:
            is_same_store = one is found[0] or type(one) is type(found[0]) is FsspecDirectories
            return is_same_store and path.rstrip("/") == found[1].rstrip("/")


def _unknown(location: str, why: str) -> CommitUnknownError:
    # Without `metadata_location`: the next version has the same name for every writer and proves nothing.
    return CommitUnknownError(f"cannot tell whether {location} was created: {why}")
