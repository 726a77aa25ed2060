"""`NessieCatalog`: tables as content objects of a Nessie server, on any of its branches, tags and commits.

Here: the meaning of contents, and the outcome of a commit. Not here: documents and commits (`nessie.contents`,
`nessie.tree`), names (`nessie.keys`), branches and tags (`nessie.references`), HTTP (`nessie.client`), metadata files
(`pointer`).

A commit names the hash of the branch that its base was read at. Nessie refuses it only if the table itself was changed
since; commits to other tables are no conflict. What a commit says of itself, and what it leaves in the table's
properties, is what Iceberg Java's NessieCatalog writes, so that both can work on one table.
"""

from __future__ import annotations

import getpass
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Unpack

from airflow_iceberg.catalogs.base import Namespace, TableId, TableState, parse_namespace
from airflow_iceberg.catalogs.nessie.client import Json, NessieClient, Refusal, key_path, ref_path
from airflow_iceberg.catalogs.nessie.contents import (
    NAMESPACE,
    NO_SNAPSHOT,
    TABLE,
    Content,
    added_id,
    delete,
    describe,
    elements_of,
    namespace_content,
    put,
    read_content,
    table_content,
    with_content,
)
from airflow_iceberg.catalogs.nessie.keys import Key, Place, own_ref, place_of
from airflow_iceberg.catalogs.nessie.login import nessie_property
from airflow_iceberg.catalogs.nessie.references import NessieReferences
from airflow_iceberg.catalogs.nessie.tree import NessieTree
from airflow_iceberg.catalogs.pointer import (
    DescribingCatalog,
    Outside,
    Pointer,
)
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

COMMIT_ID = "nessie.commit.id"
_GC_ENABLED, _DELETE_AFTER_COMMIT = TableProperties.gc_enabled, TableProperties.metadata_delete_after_commit


class NessieCatalog(DescribingCatalog):
    """Tables on a Nessie server.

    Args:
        properties: `uri` (…/api/v2), `warehouse`, `ref` (a branch, tag or branch@hash; the server's default branch if
            it is missing), `token`, `user` (the author of commits); see `NessieClient` for the others.

    Attributes:
        references: the server's branches and tags.
    """

    rules_out_echoes = True

    def __init__(self, name: str, properties: Mapping[str, str], **outside: Unpack[Outside]) -> None:
        super().__init__(name, properties, **outside)
        self._client = NessieClient(name, properties)
        self._ref = own_ref(name, properties)
        author = nessie_property(properties, "user") or _login()
        self._tree = NessieTree(name, self._client, author=author, app_id=properties.get("app-id", ""))
        self.references = NessieReferences(name, self._client, own=self._ref, author=author)

    def __repr__(self) -> str:
        return f"NessieCatalog(name={self.name!r}, client={self._client!r}, ref={str(self._ref)!r})"

    # -- the pointer ---------------------------------------------------------------------------------------------

    def read_pointer(self, table: TableId) -> Pointer | None:
        """Return the table's content and the commit that it was read at."""
        place = self._place(table)
        try:
            answer = self._client.get(f"{place.ref.path}/contents/{key_path(place.key)}")
        except Refusal as error:
            if error.code == "CONTENT_NOT_FOUND":
                return None
            raise self._tree.refused(error, f"read {table}", place.ref) from error
        found, reference = answer.get("content") or {}, answer.get("effectiveReference") or {}
        return None if found.get("type") != TABLE else _pointer(read_content(found, reference, place.ref))

    def swap_metadata(self, table: TableId, *, base: TableState | None, new: str, metadata: TableMetadata) -> Pointer:
        """Commit new content for the table to its branch, at the hash that the base was read at."""
        place = self._place(table)
        before = _token(base) if base else None
        branch, hash_ = (before.branch, before.hash) if before else self._free_key(table, place)
        wanted = Content(
            id=before.id if before else "",
            metadata_location=new,
            snapshot_id=NO_SNAPSHOT if metadata.current_snapshot_id is None else metadata.current_snapshot_id,
            schema_id=metadata.current_schema_id,
            spec_id=metadata.default_spec_id,
            sort_order_id=metadata.default_sort_order_id,
            branch=branch,
            hash=hash_,
        )
        message, properties = describe(table, base.metadata if base else None, metadata)
        try:
            answer = self._tree.commit(branch, hash_, [put(place.key, table_content(wanted))], message, properties)
        except CommitUnknownError as error:
            return self._landed(place, wanted, error)
        except Refusal as error:
            return self._explain(table, place, base, wanted, error)
        return _pointer(
            replace(wanted, id=wanted.id or added_id(answer, place.key), hash=str(answer["targetBranch"]["hash"]))
        )

    def _landed(self, place: Place, wanted: Content, error: CommitUnknownError) -> Pointer:
        """Return the pointer if the branch's history holds our commit; raise the error if it is still unknown.

        The table's current content is not enough: other writers may have committed on top, have dropped the table, or
        have removed our file's name from the log of metadata files.
        """
        # Differs from Java: it reports an unknown outcome without a look at the history.
        try:
            hash_ = self._find(place, wanted)
        except (IcebergError, Refusal) as unreadable:
            raise error from unreadable
        if hash_ is None:
            raise error
        log.warning("the answer to a commit to %s was lost; it is in the history of %s", place, wanted.branch)
        return self._pointer_at(place, wanted, hash_)

    def _find(self, place: Place, wanted: Content) -> str | None:
        return self._tree.find_location(wanted.branch, wanted.hash, place.key, wanted.metadata_location)

    def _pointer_at(self, place: Place, wanted: Content, hash_: str) -> Pointer:
        """Return our own commit's pointer; a creation learns its content id from there."""
        if wanted.id:
            return _pointer(replace(wanted, hash=hash_))
        path = f"{ref_path(wanted.branch, hash_)}/contents/{key_path(place.key)}"
        try:
            found = self._client.get(path)["content"]
        except (Refusal, StorageError) as error:
            raise CommitUnknownError(f"{place} was created, and cannot be read back: {error}") from error
        return _pointer(replace(wanted, id=str(found["id"]), hash=hash_))

    def _explain(
        self, table: TableId, place: Place, base: TableState | None, wanted: Content, refusal: Refusal
    ) -> Pointer:
        """Return the pointer if the refusal is the echo of our own commit, else raise what it means.

        A gateway may have sent the request twice: the second one is refused because of the first. Only after that is
        ruled out may the caller delete the metadata file.
        """
        if refusal.status in (401, 403, 429):
            raise self._client.denied(f"commit to {table}", refusal) from refusal
        try:
            current = self.read_pointer(table)
            echo = self._find(place, wanted)
        except (StorageError, Refusal) as error:
            raise CommitUnknownError(
                f"a commit to {table} in catalog {self.name} was refused ({refusal}), and it cannot be told whether "
                f"because of itself: {error}"
            ) from error
        if echo is not None:
            return self._pointer_at(place, wanted, echo)
        if base is None and current is not None:
            raise self._existing_table(table) from refusal
        if base is None and refusal.has("NAMESPACE_ABSENT"):
            raise self._unknown_namespace(table.namespace) from refusal
        if current is None and base is not None:
            raise self._unknown_table(table) from refusal
        if refusal.status == 409 or (base is not None and current != _pointer(_token(base))) or refusal.status == 404:
            where = current.metadata_location if current else "nothing"
            expected = base.metadata_location if base else "nothing"
            raise self._changed_by_another(table, f"it points to {where}, expected {expected}") from refusal
        raise self._client.denied(f"commit to {table}", refusal) from refusal

    def _free_key(self, table: TableId, place: Place) -> tuple[str, str]:
        """Return branch and hash at which there is the table's namespace and no table of the name yet."""
        contents, branch, hash_ = self._tree.contents(place.ref, place.parent.key, place.key)
        self._tree.require_branch(place, branch)
        if (contents.get(place.parent.key) or {}).get("type") != NAMESPACE:
            raise self._unknown_namespace(table.namespace)
        if place.key in contents:
            raise self._existing_table(table)
        return branch, hash_

    def _state(self, table: TableId, metadata: TableMetadata, pointer: Pointer) -> TableState:
        content = pointer.token
        return super()._state(
            table, with_content(metadata, content) if isinstance(content, Content) else metadata, pointer
        )

    # -- tables --------------------------------------------------------------------------------------------------

    def create(self, table: str | TableId, metadata: TableMetadata) -> TableState:
        """Make a table of its first metadata.

        Unless its properties say otherwise, files are neither collected nor metadata files deleted: other branches and
        older commits may need them.
        """
        table = TableId.of(table)
        self._free_key(table, self._place(table))  # asked before a file is written into what may be another's directory
        properties = {_GC_ENABLED.name: "false", _DELETE_AFTER_COMMIT.name: "false", **metadata.properties}
        return self._publish(table, None, replace(metadata, properties=properties))

    def table_exists(self, table: str | TableId) -> bool:
        """Tell whether there is such a table; on a branch that is not there, there is none."""
        table = TableId.of(table)
        try:
            return self.read_pointer(table) is not None
        except NotFoundError:
            if self._place(table).suffix:
                return False
            raise

    def _publish(self, table: TableId, base: TableState | None, metadata: TableMetadata) -> TableState:
        if base is None:
            return super()._publish(table, base, metadata)
        content = _token(base)
        self._tree.require_branch(self._place(table), content.branch)
        properties = {**metadata.properties, COMMIT_ID: content.hash}
        return super()._publish(table, base, replace(metadata, properties=properties))

    def _delete_forgotten_metadata(self, before: TableMetadata, after: TableMetadata) -> None:
        properties = TableProperties.of(after.properties)
        if properties.metadata_delete_after_commit and not properties.gc_enabled:
            log.warning(
                "%s of table %s is ignored while %s is false: older commits and other branches need the files",
                _DELETE_AFTER_COMMIT,
                after.location,
                _GC_ENABLED,
            )
            return
        super()._delete_forgotten_metadata(before, after)

    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]:
        place = self._require(namespace)
        keys = self._tree.keys_below(place, TABLE)
        return tuple(sorted(place.table(key) for key in keys))

    def find_purgeable(self, table: TableId) -> tuple[TableState, TableFiles]:
        """Refuse while `gc.enabled` is false, as Nessie sets it: other branches and commits may need the files."""
        if not TableProperties.of(self.load(table).metadata.properties).gc_enabled:
            raise InvalidInputError(
                f"cannot purge {table}: its property {_GC_ENABLED} is false, since other branches and older commits "
                "may need its files; drop it without purge, and let nessie-gc find the files that are not needed"
            )
        return super().find_purgeable(table)

    def drop_pointer(self, table: TableId) -> None:
        """Remove the table from its branch; its files stay, older commits and other branches may need them."""
        self._drop(table, None)

    def drop_if_current(self, state: TableState) -> None:
        """Remove the table from its branch if it is there in this state: the branch takes no other change meanwhile."""
        self._drop(state.table, state)

    def _drop(self, table: TableId, expected: TableState | None) -> None:
        place = self._place(table)

        def operations(contents: Mapping[Key, Json]) -> list[Json]:
            found = contents.get(place.key) or {}
            if found.get("type") != TABLE:
                raise self._unknown_table(table)
            if expected is not None and found.get("metadataLocation") != expected.metadata_location:
                raise self._not_current(expected, str(found.get("metadataLocation")))
            return [delete(place.key)]

        self._tree.change(place, (place.key,), operations, f"Iceberg delete table {table}")

    def rename_table(self, table: str | TableId, to: str | TableId) -> None:
        """Give the table another name on the same branch, in one commit; its content id and its files stay."""
        table, to = TableId.of(table), TableId.of(to)
        place, target = self._place(table), self._place(to)
        if target.ref != place.ref:
            if target.suffix:
                raise InvalidInputError(
                    f"cannot rename {table} to {to}: a table is renamed on its own branch, and can be merged to others"
                )
            target = replace(target, ref=place.ref, suffix=place.suffix)

        def operations(contents: Mapping[Key, Json]) -> list[Json]:
            found = contents.get(place.key) or {}
            if found.get("type") != TABLE:
                raise self._unknown_table(table)
            if (contents.get(target.parent.key) or {}).get("type") != NAMESPACE:
                raise self._unknown_namespace(to.namespace)
            if target.key in contents:
                raise self._existing_target(table, to)
            return [delete(place.key), put(target.key, found)]

        keys = (place.key, target.parent.key, target.key)
        self._tree.change(place, keys, operations, f"Iceberg rename table from '{table}' to '{to}'")

    def default_location(self, table: str | TableId) -> str:
        """Return <location of the namespace>/<table>_<uuid>, or <warehouse>/<namespace>/<table>_<uuid>.

        As Iceberg Java does: tables of one name can exist on several branches, and must not share a directory.
        """
        place = self._place(TableId.of(table))
        warehouse = self.properties.get("warehouse", "").rstrip("/")
        contents, _, _ = self._tree.contents(place.ref, place.parent.key)
        properties = (contents.get(place.parent.key) or {}).get("properties") or {}
        base = properties.get("location") or (warehouse and f"{warehouse}/{'.'.join(place.parent.key)}")
        if not base:
            raise InvalidInputError(
                f"catalog {self.name}: property 'warehouse' is missing, set it or give table {table} a location"
            )
        return f"{base.rstrip('/')}/{place.key[-1]}_{self._new_uuid()}"

    # -- namespaces ----------------------------------------------------------------------------------------------

    def create_namespace(
        self, namespace: str | Namespace, properties: Mapping[str, str] | None = None, *, if_not_exists: bool = False
    ) -> None:
        """Make a namespace, and those above it that are missing, in one commit."""
        namespace = parse_namespace(namespace)
        place = self._place(namespace)
        if not place.key:
            raise InvalidInputError(f"{'.'.join(namespace)!r} names no namespace, write it as 'a' or 'a.b'")
        levels = [place.key[:depth] for depth in range(1, len(place.key) + 1)]
        given = {str(key): str(value) for key, value in (properties or {}).items()}

        def operations(contents: Mapping[Key, Json]) -> list[Json]:
            for key in levels:
                if key in contents and contents[key].get("type") != NAMESPACE:
                    raise AlreadyExistsError(f"'{'.'.join(key)}' exists already in catalog {self.name}, as a table")
            if place.key in contents:
                raise self._existing_namespace(namespace)
            missing = [key for key in levels if key not in contents]
            return [put(key, namespace_content(key, given if key == place.key else {})) for key in missing]

        try:
            self._tree.change(place, levels, operations, f"create namespace {'.'.join(namespace)}")
        except AlreadyExistsError:
            if not if_not_exists or not self.namespace_exists(namespace):
                raise

    def drop_namespace(self, namespace: str | Namespace) -> None:
        place = self._require(namespace)
        for entry in self._tree.entries_below(place, None):
            raise InvalidInputError(
                f"namespace {place} is not empty: it holds {'.'.join(elements_of(entry))}; drop that first"
            )

        def operations(contents: Mapping[Key, Json]) -> list[Json]:
            if (contents.get(place.key) or {}).get("type") != NAMESPACE:
                raise self._unknown_namespace(parse_namespace(namespace))
            return [delete(place.key)]

        try:
            self._tree.change(place, (place.key,), operations, f"delete namespace {place}")
        except Refusal as error:
            if error.has("NAMESPACE_NOT_EMPTY"):
                raise InvalidInputError(f"namespace {place} is not empty; drop what it holds first") from error
            raise self._client.denied(f"drop namespace {place}", error) from error

    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]:
        """Return the namespaces one level below the parent, sorted; the parent "@etl" is the whole branch etl."""
        place = self._place(parse_namespace(parent)) if parent else Place(key=(), ref=self._ref)
        if place.key:
            self._require(parse_namespace(parent or ()))
        return tuple(sorted(place.namespace(key) for key in self._tree.keys_below(place, NAMESPACE)))

    def namespace_exists(self, namespace: str | Namespace) -> bool:
        """Tell whether there is such a namespace; on a branch that is not there, there is none."""
        place = self._place(parse_namespace(namespace))
        try:
            contents, _, _ = self._tree.contents(place.ref, place.key)
        except NotFoundError:
            if place.suffix:
                return False
            raise
        return (contents.get(place.key) or {}).get("type") == NAMESPACE

    def load_namespace_properties(self, namespace: str | Namespace) -> Mapping[str, str]:
        namespace = parse_namespace(namespace)
        place = self._place(namespace)
        contents, _, _ = self._tree.contents(place.ref, place.key)
        return self._namespace_properties(namespace, contents.get(place.key))

    def update_namespace_properties(
        self, namespace: str | Namespace, updates: Mapping[str, str] | None = None, removals: Iterable[str] = ()
    ) -> None:
        namespace = parse_namespace(namespace)
        place = self._place(namespace)
        new, old = self._property_changes(namespace, updates, removals)

        def operations(contents: Mapping[Key, Json]) -> list[Json]:
            found = contents.get(place.key)
            properties = {**self._namespace_properties(namespace, found), **new}
            kept = {key: value for key, value in properties.items() if key not in old}
            return [put(place.key, {**(found or {}), "properties": kept})]

        self._tree.change(place, (place.key,), operations, f"update namespace {place}")

    def namespace_of(self, table: str | TableId) -> Namespace:
        """Return the namespace that a table is in, on the table's own branch: "sales@etl" for "sales.orders@etl"."""
        place = self._place(TableId.of(table))
        return place.namespace(place.parent.key)

    # -- asking --------------------------------------------------------------------------------------------------

    def _place(self, name: TableId | Namespace) -> Place:
        return place_of(name, self._ref)

    def _require(self, namespace: str | Namespace) -> Place:
        namespace = parse_namespace(namespace)
        place = self._place(namespace)
        self._namespace_properties(namespace, self._tree.contents(place.ref, place.key)[0].get(place.key))
        return place

    def _namespace_properties(self, namespace: Namespace, found: Json | None) -> dict[str, str]:
        if (found or {}).get("type") != NAMESPACE:
            raise self._unknown_namespace(namespace)
        return dict((found or {}).get("properties") or {})


def _pointer(content: Content) -> Pointer:
    return Pointer(metadata_location=content.metadata_location, token=content)


def _token(base: TableState) -> Content:
    if not isinstance(base.token, Content):
        raise InvalidInputError(f"the state of table {base.table} is not of a Nessie catalog, load the table again")
    return base.token


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "airflow"  # a container without a name for its user
