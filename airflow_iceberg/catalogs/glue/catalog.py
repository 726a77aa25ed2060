"""`GlueCatalog`: pointers in the AWS Glue Data Catalog, shared with Iceberg Java, PyIceberg, Athena and others.

Not here: boto3 (`glue.client`), Glue's documents (`glue.tables`), metadata files (`pointer`).

A commit is one UpdateTable with the version of the Glue table that the base was read at. Glue refuses it if the table
has another version by then, even if only other programs' entries were changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Unpack

from airflow_iceberg.catalogs.base import Namespace, TableId, TableState, child_namespaces, listed_tables
from airflow_iceberg.catalogs.glue.client import MISSING, GlueClient, Refusal
from airflow_iceberg.catalogs.glue.tables import (
    METADATA_LOCATION,
    PREVIOUS_METADATA_LOCATION,
    TABLE_TYPE,
    GlueVersion,
    Json,
    copied_input,
    database_input,
    database_of,
    database_properties,
    document_of,
    is_iceberg,
    is_name,
    is_view,
    other_kind,
    parameters_of,
    pointer_of,
    pointers_in,
    table_input,
    told_location,
    without_aliases,
)
from airflow_iceberg.catalogs.owners import Named
from airflow_iceberg.catalogs.pointer import DescribingCatalog, Outside, Pointer
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    switch,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata

log = logging.getLogger(__name__)

_TAKEN, _CHANGED = "AlreadyExistsException", "ConcurrentModificationException"
_RENAMED_TO, _DROPPED_BY = "renamed_to", "dropped_by"


class GlueCatalog(DescribingCatalog):
    """Tables in Glue; a namespace is a database and has one level, names are in lower case.

    Args:
        properties: `warehouse`, `glue.skip-archive` ("true": Glue keeps no copy of the document that a commit
            replaces), and those of `GlueClient`.
    """

    rules_out_echoes = lists_pointers = True

    def __init__(self, name: str, properties: Mapping[str, str], **outside: Unpack[Outside]) -> None:
        super().__init__(name, properties, **outside)
        self._glue = GlueClient(name, properties)
        self._skip_archive = switch(properties, "glue.skip-archive", default=True, whose=f"catalog {name}: ")

    def __repr__(self) -> str:
        return f"GlueCatalog(name={self.name!r}, service={str(self._glue)!r})"

    # -- the pointer ---------------------------------------------------------------------------------------------

    def read_pointer(self, table: TableId) -> Pointer | None:
        if (found := self._find(table)) is None:
            return None
        if is_view(found):
            raise self.not_a_table(table, "a view")
        if not is_iceberg(found):
            kind = parameters_of(found).get(TABLE_TYPE, "none given")
            raise NotFoundError(
                f"{table} in catalog {self.name} is a table of Glue, but none of Iceberg (its {TABLE_TYPE}: {kind}); "
                "name another table"
            )
        return pointer_of(found)

    def kind_of_name(self, table: TableId) -> str | None:
        return other_kind(self._find(table))

    def swap_metadata(self, table: TableId, *, base: TableState | None, new: str, metadata: TableMetadata) -> Pointer:
        try:
            if base is None:
                self._create(table, new, metadata)
            else:
                self._update(table, base, new, metadata)
        except CommitUnknownError as error:
            return self._landed(table, new, error)
        except Refusal as error:
            return self._explain(table, base, new, error)
        return Pointer(metadata_location=new, token=GlueVersion())

    def _create(self, table: TableId, new: str, metadata: TableMetadata) -> None:
        if not is_name(table.name):
            raise InvalidInputError(
                f"table {table} of catalog {self.name}: a name in Glue is in lower case and has at most 255 characters"
            )
        document = table_input(table, metadata, new, previous=None, found=None)
        self._glue.change("create_table", DatabaseName=database_of(self.name, table.namespace), TableInput=document)

    def _update(self, table: TableId, base: TableState, new: str, metadata: TableMetadata) -> None:
        version = base.token if isinstance(base.token, GlueVersion) else GlueVersion()
        if version.version_id is None:
            now = self._require_pointer(table)
            if now.metadata_location != base.metadata_location:
                raise self._changed(table, now.metadata_location, base)
            assert isinstance(now.token, GlueVersion)
            version = now.token
        document = table_input(table, metadata, new, previous=base.metadata_location, found=version.found)
        self._replace(table, document, version.version_id)

    def _replace(self, table: TableId, document: Json, version_id: str | None) -> None:
        """Replace a table's document if it has this version."""
        self._glue.change(
            "update_table",
            DatabaseName=database_of(self.name, table.namespace),
            TableInput=document,
            SkipArchive=self._skip_archive,
            VersionId=version_id,
        )

    def _landed(self, table: TableId, new: str, error: CommitUnknownError) -> Pointer:
        """Return the pointer if our metadata is or was the table's; else raise the error."""
        try:
            has_landed, _ = self._look_for(table, new)
        except IcebergError as unreadable:
            raise error from unreadable
        if not has_landed:
            raise error
        log.warning("the answer to a commit to %s was lost; it has landed", table)
        return Pointer(metadata_location=new, token=GlueVersion())

    def _explain(self, table: TableId, base: TableState | None, new: str, refusal: Refusal) -> Pointer:
        """Return the pointer if our own commit, sent twice on the way, caused the refusal; else raise its meaning.

        Only after an echo is ruled out may the caller delete the metadata file.
        """
        if refusal.code not in (MISSING, _TAKEN, _CHANGED):
            raise self._glue.denied(f"commit to {table}", refusal) from None
        try:
            has_landed, current = self._look_for(table, new)
        except IcebergError as error:
            raise CommitUnknownError(
                f"a commit to {table} in catalog {self.name} was refused ({refusal}), and it is unknown whether a "
                f"repetition of the same request is the reason: {error}"
            ) from error
        if has_landed:
            log.warning("a commit to %s was sent twice, by something between here and Glue; it has landed once", table)
            return Pointer(metadata_location=new, token=GlueVersion())
        if base is None:
            if refusal.code == MISSING:
                raise self._unknown_namespace(table.namespace) from None
            raise self._existing_table(table) from None
        if refusal.code == MISSING or current is None:
            raise self._unknown_table(table) from None
        raise self._changed(table, current, base) from None

    def _look_for(self, table: TableId, new: str) -> tuple[bool, str | None]:
        """Return whether the table points to a file or did so earlier, and its current location (None: dropped)."""
        if (found := self._find(table)) is None or not is_iceberg(found):
            return False, None
        current = str(found["Parameters"][METADATA_LOCATION])
        if new in (current, found["Parameters"].get(PREVIOUS_METADATA_LOCATION)):
            return True, current
        logged = self.read_metadata(table, current).metadata_log
        return any(location == new for _, location in logged), current

    def _changed(self, table: TableId, found: str, base: TableState) -> CommitConflictError:
        detail = f"it points to {found}, expected {base.metadata_location}"
        if found == base.metadata_location:
            detail = "its Glue table has another version, though it points to the same metadata"
        return self._changed_by_another(table, detail)

    # -- tables --------------------------------------------------------------------------------------------------

    def table_exists(self, table: str | TableId) -> bool:
        found = self._find(self.id_of(table))
        return found is not None and is_iceberg(found)

    def register_table(self, table: str | TableId, metadata_location: str) -> TableState:
        table = self.id_of(table)
        # Checked first: a table that points to this very file would look like the echo of our own request.
        if self._find(table) is not None:
            raise self._existing_table(table)
        return super().register_table(table, metadata_location)

    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]:
        found = filter(is_iceberg, self._tables(levels := self.levels_of(namespace)))
        return listed_tables(levels, filter(is_name, (str(each["Name"]) for each in found)))

    def other_pointers(self, table: TableId) -> Iterator[Named]:
        for space in self.list_namespaces():
            yield from pointers_in(space, self._glue.list_tables(space[0]) or (), other_than=table)

    def told_location(self, table: TableId) -> str | None:
        return told_location(self._find(table))

    def drop_pointer(self, table: TableId) -> None:
        self._require_pointer(table)
        self._delete(table)

    def drop_if_current(self, state: TableState) -> None:
        """Let the table's document point to nothing if it has the state's version, then remove it.

        If a process is killed in between, the document's `previous_metadata_location` still has the table's location.
        """
        # Differs from Java: it removes any table of the name. Glue removes without comparing, hence two steps.
        table, mark = state.table, str(self._new_uuid())
        pointer = Pointer(metadata_location=state.metadata_location, token=state.token)
        try:
            self._empty(table, pointer, {_DROPPED_BY: mark})
        except CommitUnknownError:
            if parameters_of(self._find(table)).get(_DROPPED_BY) != mark:
                raise
        except Refusal as error:
            if error.code not in (MISSING, _CHANGED):
                raise self._glue.denied(f"drop {table}", error) from None
            found = self._find(table) or {}
            if parameters_of(found).get(_DROPPED_BY) != mark:  # it may be the echo of our own request
                if not is_iceberg(found):
                    raise self._unknown_table(table) from None
                raise self._changed(table, found["Parameters"][METADATA_LOCATION], state) from None
        self._delete(table)

    def rename_table(self, table: str | TableId, to: str | TableId) -> None:
        """Create a second document and remove the first one, since Glue cannot rename.

        That is not atomic. The new document comes first, so the table is never lost. Then the old one is emptied by
        compare-and-swap, so that no commit is lost, and removed. A process that is killed in between leaves the table
        under both names.

        Raises:
            CommitConflictError: another writer committed meanwhile; the table has its old name.
        """
        # Differs from Java: it removes the old document without comparing, and loses a commit made in between.
        table, to = self.id_of(table), self.id_of(to)
        pointer = self._require_pointer(table)
        self._require_namespace(to.namespace)
        if not is_name(to.name):
            raise InvalidInputError(f"cannot rename {table} to {to}: a name in Glue is in lower case")
        found = document_of(pointer)
        document = copied_input(to.name, found, found["Parameters"])
        database = database_of(self.name, to.namespace)
        try:
            with self._refusals(f"rename {table} to {to}", {_TAKEN: lambda: self._existing_target(table, to)}):
                self._glue.change("create_table", DatabaseName=database, TableInput=document)
        except CommitUnknownError:
            made = self._find(to)
            if made is None or made.get("Parameters") != found["Parameters"]:
                raise
        self._close(table, to, pointer)
        self._delete(table)

    def _close(self, table: TableId, to: TableId, pointer: Pointer) -> None:
        """Let the old document of a renamed table point to nothing; undo the renaming if it was changed meanwhile."""
        try:
            self._empty(table, pointer, {_RENAMED_TO: str(to)})
        except CommitUnknownError as error:
            now = self._find(table)
            if now is not None and parameters_of(now).get(_RENAMED_TO) != str(to):
                raise CommitUnknownError(
                    f"{table} has the name {to} as well, and it is unknown whether its old one still works ({error}); "
                    f"check both, and drop {to} or rename again"
                ) from error
        except Refusal as error:
            self._delete(to)
            if error.code != _CHANGED:
                raise self._glue.denied(f"rename {table} to {to}", error) from None
            raise CommitConflictError(
                f"cannot rename {table} in catalog {self.name}: it was changed by another writer meanwhile; it has "
                "its old name, try again"
            ) from None

    def _empty(self, table: TableId, pointer: Pointer, mark: Mapping[str, str]) -> None:
        """Let a table's document point to nothing, by compare-and-swap, so that no writer can commit to it."""
        found = document_of(pointer)
        parameters = {**found["Parameters"], PREVIOUS_METADATA_LOCATION: pointer.metadata_location, **mark}
        for name in (TABLE_TYPE, METADATA_LOCATION):
            del parameters[name]
        self._replace(table, copied_input(table.name, found, parameters), found["VersionId"])

    def _delete(self, table: TableId) -> None:
        try:
            self._glue.change("delete_table", DatabaseName=database_of(self.name, table.namespace), Name=table.name)
        except Refusal as error:
            if error.code != MISSING:
                raise self._glue.denied(f"drop {table}", error) from None
            log.info("table %s was removed by another writer", table)
        except CommitUnknownError:
            if self._find(table) is not None:
                raise

    def default_location(self, table: str | TableId) -> str:
        """Return <location of the database>/<table>, or <warehouse>/<database>.db/<table>, as PyIceberg and Java do."""
        table = self.id_of(table)
        own = (self._find_database(table.namespace) or {}).get("LocationUri")
        return f"{self._base_location(table, own, self._folder(table.namespace))}/{table.name}"

    def _folder(self, namespace: Namespace) -> str:
        return f"{database_of(self.name, namespace)}.db"

    def _namespace_of(self, folders: Sequence[str]) -> Namespace:
        return (folders[0].removesuffix(".db"),) if len(folders) == 1 and folders[0].endswith(".db") else ()

    # -- namespaces ----------------------------------------------------------------------------------------------

    def _create_namespace(self, namespace: Namespace, properties: dict[str, str]) -> bool:
        """Create a database; its properties `location` and `Description` (or `comment`) are fields of it."""
        document = database_input(database_of(self.name, namespace), properties)
        try:
            self._glue.change("create_database", DatabaseInput=document)
        except CommitUnknownError:
            if not self.namespace_exists(namespace):
                raise
        except Refusal as error:
            if error.code != _TAKEN:
                raise self._glue.denied(f"create namespace {namespace[0]}", error) from None
            return False
        return True

    def drop_namespace(self, namespace: str | Namespace) -> None:
        """Remove a database that holds no table of any kind. Glue drops a table that is created at the same moment."""
        namespace = self.levels_of(namespace)
        if tables := self._tables(namespace):
            raise self._not_empty(namespace, "view" if is_view(tables[0]) else "table", tables[0]["Name"])
        try:
            meanings = {MISSING: lambda: self._unknown_namespace(namespace)}
            with self._refusals(f"drop namespace {namespace[0]}", meanings):
                self._glue.change("delete_database", Name=database_of(self.name, namespace))
        except CommitUnknownError:
            if self.namespace_exists(namespace):
                raise

    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]:
        """Return all databases, sorted; there are none below another."""
        if parent:
            self._require_namespace(parent)
            return ()
        with self._refusals("list namespaces", {}):
            names = [str(found["Name"]) for found in self._glue.pages("get_databases", "DatabaseList")]
        return child_namespaces((), ((name,) for name in names if is_name(name)))

    def namespace_exists(self, namespace: str | Namespace) -> bool:
        return self._find_database(self.levels_of(namespace)) is not None

    def load_namespace_properties(self, namespace: str | Namespace) -> Mapping[str, str]:
        """Return the database's parameters, and its location and description."""
        return database_properties(self._existing_database(self.levels_of(namespace)))

    def _update_namespace(self, namespace: Namespace, new: dict[str, str], old: frozenset[str]) -> None:
        """Replace the database's document; Glue has no versions of it, so the last of several writers wins."""
        found = self._existing_database(namespace)
        there = without_aliases(database_properties(found), {**new, **dict.fromkeys(old, "")})
        kept = {key: value for key, value in {**there, **new}.items() if key not in old}
        name = database_of(self.name, namespace)
        with self._refusals(f"change namespace {name}", {MISSING: lambda: self._unknown_namespace(namespace)}):
            self._glue.change("update_database", Name=name, DatabaseInput=database_input(name, kept, found))

    # -- documents -----------------------------------------------------------------------------------------------

    def _find(self, table: TableId) -> Json | None:
        return self._glue.find_table(table.namespace[0], table.name) if len(table.namespace) == 1 else None

    def _find_database(self, namespace: Namespace) -> Json | None:
        return self._glue.find_database(namespace[0]) if len(namespace) == 1 else None

    def _existing_database(self, namespace: Namespace) -> Json:
        if (found := self._find_database(namespace)) is None:
            raise self._unknown_namespace(namespace)
        return found

    def _tables(self, namespace: Namespace) -> list[Json]:
        found = self._glue.list_tables(namespace[0]) if len(namespace) == 1 else None
        if found is None:
            raise self._unknown_namespace(namespace)
        if not found:  # some services list nothing for a database that does not exist
            self._existing_database(namespace)
        return found

    @contextmanager
    def _refusals(self, what: str, meanings: Mapping[str, Callable[[], IcebergError]]) -> Iterator[None]:
        """Raise what a refusal inside the block means, by its code: without an entry, that the request was denied."""
        try:
            yield
        except Refusal as error:
            meaning = meanings.get(error.code)
            raise (meaning() if meaning else self._glue.denied(what, error)) from None
