"""`NessieCatalog`: tables as content objects of a Nessie server, on any of its branches, tags and commits.

Not here: documents and commits (`nessie.contents`, `nessie.tree`), names (`nessie.keys`), branches and tags
(`nessie.references`), HTTP (`nessie.client`), metadata files (`pointer`).

A commit has the hash of the branch that its base was read at. Nessie refuses it only if the table itself was changed
since; commits to other tables are no conflict. The commit's message and properties, and the table's properties, are
those of Iceberg Java's NessieCatalog, so that both can work on one table.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Unpack

from airflow_iceberg.catalogs.base import Namespace, TableId, TableState, join_levels
from airflow_iceberg.catalogs.names import split_levels
from airflow_iceberg.catalogs.nessie.client import Json, NessieClient, Refusal, key_path, ref_path
from airflow_iceberg.catalogs.nessie.contents import (
    NAMESPACE,
    TABLE,
    Content,
    added_id,
    delete,
    describe,
    elements_of,
    has_kind,
    kind_of,
    namespace_content,
    put,
    read_content,
    table_content,
    with_content,
)
from airflow_iceberg.catalogs.nessie.keys import Key, Place, own_ref, place_of
from airflow_iceberg.catalogs.nessie.login import author_of
from airflow_iceberg.catalogs.nessie.references import NessieReferences
from airflow_iceberg.catalogs.nessie.together import COMMIT_ID, CommitsTogether, pointer_of, token_of
from airflow_iceberg.catalogs.nessie.tree import NessieTree
from airflow_iceberg.catalogs.owners import Named
from airflow_iceberg.catalogs.pointer import Outside, Pointer
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.inventory.purge import TableFiles

log = logging.getLogger(__name__)

_GC_ENABLED, _DELETE_AFTER_COMMIT = TableProperties.gc_enabled, TableProperties.metadata_delete_after_commit


class NessieCatalog(CommitsTogether):
    """Tables on a Nessie server.

    Args:
        properties: `uri` (…/api/v2), `warehouse`, `ref` (a branch, tag or branch@hash; by default the server's default
            branch), `token`, `user` (the author of commits); see `NessieClient` for the others.

    Attributes:
        references: the server's branches and tags.
    """

    rules_out_echoes = names_have_refs = names_are_compared = lists_pointers = True
    unique_end = re.compile(r"_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

    def __init__(self, name: str, properties: Mapping[str, str], **outside: Unpack[Outside]) -> None:
        super().__init__(name, properties, **outside)
        self._client = NessieClient(name, properties)
        self._ref = own_ref(name, properties)
        author = author_of(properties)
        self._tree = NessieTree(name, self._client, author=author, app_id=properties.get("app-id", ""))
        self.references = NessieReferences(name, self._client, own=self._ref, author=author)

    def __repr__(self) -> str:
        return f"NessieCatalog(name={self.name!r}, client={self._client!r}, ref={str(self._ref)!r})"

    # -- the pointer ---------------------------------------------------------------------------------------------

    def read_pointer(self, table: TableId) -> Pointer | None:
        place = self._place(table)
        try:
            answer = self._client.get(f"{place.ref.path}/contents/{key_path(place.key)}")
        except Refusal as error:
            if error.code == "CONTENT_NOT_FOUND":
                return None
            raise self._tree.refused(error, f"read {table}", place.ref) from error
        with self._client.understood():
            found, reference = answer.get("content") or {}, answer.get("effectiveReference") or {}
            return None if found.get("type") != TABLE else pointer_of(read_content(found, reference, place.ref))

    def kind_of_name(self, table: TableId) -> str | None:
        place = self._place(table)
        found = self._contents(place).get(place.key) or {}
        return None if found.get("type", TABLE) == TABLE else f"a {kind_of(found)}"

    def swap_metadata(self, table: TableId, *, base: TableState | None, new: str, metadata: TableMetadata) -> Pointer:
        place = self._place(table)
        before = token_of(base) if base else None
        branch, hash_ = (before.branch, before.hash) if before else self._free_key(table, place)
        wanted = Content.of(metadata, new, id=before.id if before else "", branch=branch, hash=hash_)
        message, properties = describe(table, base.metadata if base else None, metadata)
        try:
            answer = self._tree.commit(branch, hash_, [put(place.key, table_content(wanted))], message, properties)
        except CommitUnknownError as error:
            return self._landed(place, wanted, error)
        except Refusal as error:
            return self._explain(table, place, base, wanted, error)
        return pointer_of(
            replace(wanted, id=wanted.id or added_id(answer, place.key), hash=str(answer["targetBranch"]["hash"]))
        )

    def _landed(self, place: Place, wanted: Content, error: CommitUnknownError) -> Pointer:
        """Return the pointer if the branch's history holds our commit; else raise the error.

        The table's current content is not enough: other writers may have committed on top, dropped the table, or
        removed our file's name from the log of metadata files.
        """
        # Differs from Java: it reports an unknown outcome without reading the history.
        try:
            pointer = self._find_commit(place, wanted)
        except IcebergError as unreadable:
            raise error from unreadable
        if pointer is None:
            raise error
        log.warning("the answer to a commit to %s was lost; it is in the history of %s", place, wanted.branch)
        return pointer

    def _find_commit(self, place: Place, wanted: Content) -> Pointer | None:
        """Return the pointer of our own commit if it is in the history; a creation gets its content id there."""
        hash_ = self._tree.find_commit(place.key, wanted)
        if hash_ is None or wanted.id:
            return pointer_of(replace(wanted, hash=hash_)) if hash_ else None
        path = f"{ref_path(wanted.branch, hash_)}/contents/{key_path(place.key)}"
        try:
            found = self._client.get(path)["content"]
        except (Refusal, StorageError) as error:
            raise CommitUnknownError(f"{place} was created, and cannot be read back: {error}") from error
        return pointer_of(replace(wanted, id=str(found["id"]), hash=hash_))

    def _explain(
        self, table: TableId, place: Place, base: TableState | None, wanted: Content, refusal: Refusal
    ) -> Pointer:
        """Return the pointer if our own commit, sent twice by a gateway, caused the refusal; else raise its meaning.

        Only after an echo is ruled out may the caller delete the metadata file.
        """
        if refusal.status in (401, 403, 429):
            raise self._client.denied(f"commit to {table}", refusal) from refusal
        try:
            current = self.read_pointer(table)
            echo = self._find_commit(place, wanted)
        except (StorageError, Refusal) as error:
            raise CommitUnknownError(
                f"a commit to {table} in catalog {self.name} was refused ({refusal}), and it is unknown whether a "
                f"repetition of the same request is the reason: {error}"
            ) from error
        if echo is not None:
            return echo
        if base is None and current is not None:
            raise self._existing_table(table) from refusal
        if base is None and refusal.has("NAMESPACE_ABSENT"):
            raise self._unknown_namespace(table.namespace) from refusal
        if current is None and base is not None:
            raise self._unknown_table(table) from refusal
        if refusal.status in (404, 409) or (base is not None and current != pointer_of(token_of(base))):
            where = current.metadata_location if current else "nothing"
            expected = base.metadata_location if base else "nothing"
            raise self._changed_by_another(table, f"it points to {where}, expected {expected}") from refusal
        raise self._client.denied(f"commit to {table}", refusal) from refusal

    def _free_key(self, table: TableId, place: Place) -> tuple[str, str]:
        """Return branch and hash at which the table's namespace exists, and no table of the name."""
        contents, branch, hash_ = self._tree.contents(place.ref, place.parent.key, place.key)
        self._tree.require_branch(place, branch)
        if not has_kind(contents, place.parent.key, NAMESPACE):
            raise self._unknown_namespace(table.namespace)
        if place.key in contents:
            raise self._existing_table(table)
        return branch, hash_

    def _state(self, table: TableId, metadata: TableMetadata, pointer: Pointer) -> TableState:
        if isinstance(pointer.token, Content):
            metadata = with_content(metadata, pointer.token)
        return super()._state(table, metadata, pointer)

    # -- tables --------------------------------------------------------------------------------------------------

    def create(self, table: str | TableId, metadata: TableMetadata) -> TableState:
        """Create a table; by default its files are never deleted, since other branches and commits may need them."""
        table = self.id_of(table)
        self._free_key(table, self._place(table))  # checked before a file is written into another table's directory
        self.check_place(table, metadata.location, is_chosen=False)
        properties = {_GC_ENABLED.name: "false", _DELETE_AFTER_COMMIT.name: "false", **metadata.properties}
        return self._publish(table, None, replace(metadata, properties=properties))

    def table_exists(self, table: str | TableId) -> bool:
        """Tell whether there is such a table; on a branch that does not exist, there is none."""
        table = self.id_of(table)
        return self._is_there(self._place(table), lambda: self.read_pointer(table) is not None)

    def _publish(self, table: TableId, base: TableState | None, metadata: TableMetadata) -> TableState:
        if base is not None:
            content = token_of(base)
            self._tree.require_branch(self._place(table), content.branch)
            metadata = replace(metadata, properties={**metadata.properties, COMMIT_ID: content.hash})
        return super()._publish(table, base, metadata)

    def _delete_forgotten_metadata(self, before: TableMetadata, after: TableState) -> None:
        properties = TableProperties.of(after.metadata.properties)
        if properties.gc_enabled or not properties.metadata_delete_after_commit:
            super()._delete_forgotten_metadata(before, after)
            return
        why = f"is ignored while {_GC_ENABLED} is false: other commits and branches need the files"
        log.warning("%s of %s %s", _DELETE_AFTER_COMMIT, after.table, why)

    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]:
        place = self._require(namespace)
        return tuple(sorted(place.table(key) for key in self._tree.keys_below(place, TABLE)))

    def other_pointers(self, table: TableId) -> Iterator[Named]:
        return self._tree.others(self._place(table))

    def find_purgeable(self, table: TableId) -> tuple[TableState, TableFiles]:
        """Refuse while `gc.enabled` is false, Nessie's default: other branches and commits may need the files."""
        if not TableProperties.of(self.load(table).metadata.properties).gc_enabled:
            raise InvalidInputError(
                f"cannot purge {table}: its property {_GC_ENABLED} is false, since other branches and older commits "
                "may need its files; drop it without purge, and let nessie-gc find the files that are not needed"
            )
        return super().find_purgeable(table)

    def drop_if_current(self, state: TableState) -> None:
        self.drop_pointer(state.table, state)

    def drop_pointer(self, table: TableId, expected: TableState | None = None) -> None:
        place = self._place(table)

        def operations(contents: Mapping[Key, Json]) -> list[Json]:
            if not has_kind(contents, place.key, TABLE):
                raise self._no_table(table)
            location = str(contents[place.key].get("metadataLocation"))
            if expected is not None and location != expected.metadata_location:
                raise self._not_current(expected, location)
            return [delete(place.key)]

        self._tree.change(place, (place.key,), operations, f"Iceberg delete table {table}")

    def rename_table(self, table: str | TableId, to: str | TableId) -> None:
        """Give the table another name on the same branch, in one commit; its content id and its files are kept."""
        table, to = self.id_of(table), self.id_of(to)
        place, target = self._place(table), self._place(to)
        if target.ref != place.ref:
            if target.suffix:
                raise InvalidInputError(
                    f"cannot rename {table} to {to}: a table is renamed on its own branch, and can be merged to others"
                )
            target = replace(target, ref=place.ref, suffix=place.suffix)

        def operations(contents: Mapping[Key, Json]) -> list[Json]:
            if not has_kind(contents, place.key, TABLE):
                raise self._no_table(table)
            if not has_kind(contents, target.parent.key, NAMESPACE):
                raise self._unknown_namespace(to.namespace)
            if target.key in contents:
                raise self._existing_target(table, to)
            return [delete(place.key), put(target.key, contents[place.key])]

        keys = (place.key, target.parent.key, target.key)
        self._tree.change(place, keys, operations, f"Iceberg rename table from '{table}' to '{to}'")

    def default_location(self, table: str | TableId) -> str:
        """Return <namespace's location or warehouse/namespace>/<table>_<uuid>: branches must not share a directory."""
        table = self.id_of(table)
        place = self._place(table)
        properties = (self._contents(place.parent).get(place.parent.key) or {}).get("properties") or {}
        base = self._base_location(table, properties.get("location"), join_levels(place.parent.key))
        return f"{base}/{place.key[-1]}_{self._new_uuid()}"

    def new_location(self, table: str | TableId) -> str:
        return self.default_location(table)  # it is unique

    def _path_of(self, table: TableId) -> str:
        place = self._place(table)
        return f"{join_levels(place.parent.key)}/{place.key[-1]}"

    def _namespace_of(self, folders: Sequence[str]) -> Namespace:
        return split_levels(folders[0]) if len(folders) == 1 else ()

    # -- namespaces ----------------------------------------------------------------------------------------------

    def _create_namespace(self, namespace: Namespace, properties: dict[str, str]) -> bool:
        """Create a namespace, and those above it that are missing, in one commit."""
        place = self._place(namespace)
        if not place.key:
            raise InvalidInputError(f"{join_levels(namespace)!r} names no namespace, write it as 'a' or 'a.b'")
        levels = [place.key[:depth] for depth in range(1, len(place.key) + 1)]
        is_there = False

        def operations(contents: Mapping[Key, Json]) -> list[Json]:
            nonlocal is_there
            for key in levels:
                if key in contents and not has_kind(contents, key, NAMESPACE):
                    raise AlreadyExistsError(f"'{join_levels(key)}' exists already in catalog {self.name}, as a table")
            if is_there := place.key in contents:
                raise AlreadyExistsError(f"namespace {place} exists already in catalog {self.name}")
            missing = [key for key in levels if key not in contents]
            return [put(key, namespace_content(key, properties if key == place.key else {})) for key in missing]

        try:
            self._tree.change(place, levels, operations, f"create namespace {join_levels(namespace)}")
        except AlreadyExistsError:
            if not is_there:
                raise
        return not is_there

    def drop_namespace(self, namespace: str | Namespace) -> None:
        place = self._require(namespace)
        for entry in self._tree.entries_below(place, None):
            raise self._not_empty(self.levels_of(namespace), kind_of(entry), join_levels(elements_of(entry)))

        def operations(contents: Mapping[Key, Json]) -> list[Json]:
            self._namespace_properties(self.levels_of(namespace), contents.get(place.key))
            return [delete(place.key)]

        try:
            self._tree.change(place, (place.key,), operations, f"delete namespace {place}")
        except Refusal as error:
            if error.has("NAMESPACE_NOT_EMPTY"):
                raise InvalidInputError(f"namespace {place} is not empty; drop what it holds first") from error
            raise self._client.denied(f"drop namespace {place}", error) from error

    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]:
        """Return the namespaces one level below the parent, sorted; the parent "@etl" is the whole branch etl."""
        place = self._place(self.levels_of(parent)) if parent else Place(key=(), ref=self._ref)
        if place.key:
            self._require(self.levels_of(parent or ()))
        return tuple(sorted(place.namespace(key) for key in self._tree.keys_below(place, NAMESPACE)))

    def namespace_exists(self, namespace: str | Namespace) -> bool:
        """Tell whether there is such a namespace; on a branch that does not exist, there is none."""
        place = self._place(self.levels_of(namespace))
        return self._is_there(place, lambda: has_kind(self._contents(place), place.key, NAMESPACE))

    def load_namespace_properties(self, namespace: str | Namespace) -> Mapping[str, str]:
        namespace = self.levels_of(namespace)
        place = self._place(namespace)
        return self._namespace_properties(namespace, self._contents(place).get(place.key))

    def _update_namespace(self, namespace: Namespace, new: dict[str, str], old: frozenset[str]) -> None:
        place = self._place(namespace)

        def operations(contents: Mapping[Key, Json]) -> list[Json]:
            found = contents.get(place.key)
            properties = {**self._namespace_properties(namespace, found), **new}
            kept = {key: value for key, value in properties.items() if key not in old}
            return [put(place.key, {**(found or {}), "properties": kept})]

        self._tree.change(place, (place.key,), operations, f"update namespace {place}")

    def namespace_of(self, table: str | TableId) -> Namespace:
        """Return the namespace of a table, on the table's own branch: "sales@etl" for "sales.orders@etl"."""
        place = self._place(self.id_of(table))
        return place.namespace(place.parent.key)

    # -- asking --------------------------------------------------------------------------------------------------

    def _place(self, name: TableId | Namespace) -> Place:
        return place_of(name, self._ref)

    def _is_there(self, place: Place, look: Callable[[], bool]) -> bool:
        try:
            return look()
        except NotFoundError:  # of the branch
            if place.suffix:
                return False
            raise

    def _require(self, namespace: str | Namespace) -> Place:
        namespace = self.levels_of(namespace)
        place = self._place(namespace)
        self._namespace_properties(namespace, self._contents(place).get(place.key))
        return place

    def _contents(self, place: Place) -> dict[Key, Json]:
        return self._tree.contents(place.ref, place.key)[0]

    def _namespace_properties(self, namespace: Namespace, found: Json | None) -> dict[str, str]:
        if (found or {}).get("type") != NAMESPACE:
            raise self._unknown_namespace(namespace)
        return dict((found or {}).get("properties") or {})
