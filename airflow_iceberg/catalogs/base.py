"""`Catalog`: the interface of every catalog, with `TableState`.

Not here: names (`names`), catalogs that store a pointer to a metadata file (`pointer`), each concrete catalog
(`hadoop`, `sql`, …), and commit retries (`airflow_iceberg.commit`): a catalog tries once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar

from airflow_iceberg.catalogs.locations import Locations
from airflow_iceberg.catalogs.names import Namespace as Namespace
from airflow_iceberg.catalogs.names import TableId as TableId
from airflow_iceberg.catalogs.names import check_names, stored_properties
from airflow_iceberg.catalogs.names import child_namespaces as child_namespaces
from airflow_iceberg.catalogs.names import join_levels as join_levels
from airflow_iceberg.catalogs.names import listed_tables as listed_tables
from airflow_iceberg.catalogs.names import parse_namespace as parse_namespace
from airflow_iceberg.catalogs.state import TableState as TableState
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata.requirements import check_same_table
from airflow_iceberg.storage.base import FileIO

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.metadata.updates import Change


class Catalog(Locations):
    """Tables by name. Tables are given as `TableId` or as "namespace.table", namespaces as tuple or as "a.b".

    A level with a dot is in backticks. What a listing returns names the same table in every call, also as text.

    Every method raises `NotFoundError` for a table or namespace that does not exist, and `StorageError` if the service
    of the catalog can't be reached. Names of methods and properties follow PyIceberg. A method's docstring in a catalog
    adds only what is special there.

    Args:
        name: the user's name of the catalog; part of the key in some catalogs (SQL).
        properties: the properties given to `load_catalog`; may hold secrets, so they are never shown.
        io: access to the catalog's files.

    Attributes:
        names_have_refs: whether a name may end in a reference ("orders@feature/x").
        commits_together: whether `commit_together` changes several tables in one commit.
    """

    names_have_refs: ClassVar[bool] = False
    commits_together: ClassVar[bool] = False

    def __init__(self, name: str, properties: Mapping[str, str], *, io: FileIO) -> None:
        self.name = name
        self.properties: Mapping[str, str] = dict(properties)
        self.io = io

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"

    def missing(self) -> str | None:
        """Return, in words, which part of the catalog itself does not exist and is created by the first change."""
        return None

    def why_missing(self, table: TableId) -> str | None:
        """Return what only this catalog knows about why it has no such table, in words."""
        return None

    def kind_of_name(self, table: TableId) -> str | None:
        """Return what else than a table has a name, in words ("a view"); it costs a request, for errors alone."""
        return None

    def some_names(self, above: Namespace) -> Iterable[str]:
        """Return names of namespaces, or of tables in a namespace, by a request or two: for suggestions to a person."""
        return ()

    def create_namespace(
        self, namespace: str | Namespace, properties: Mapping[str, str] | None = None, *, if_not_exists: bool = False
    ) -> None:
        """Create a namespace; `AlreadyExistsError` if its name is a table's, or is there, unless `if_not_exists`."""
        namespace = self.levels_of(namespace)
        self.check_new_namespace(namespace)
        is_new = self._create_namespace(namespace, stored_properties(namespace, properties))
        if not is_new and not if_not_exists:
            raise AlreadyExistsError(f"namespace {join_levels(namespace)} exists already in catalog {self.name}")

    @abstractmethod
    def _create_namespace(self, namespace: Namespace, properties: dict[str, str]) -> bool:
        """Create a namespace; return False if there is one of that name already."""

    def ensure_namespace(self, namespace: str | Namespace) -> None:
        """Create a namespace if it is not there; who may neither look nor create one learns later whether it is."""
        may_look = True
        try:
            if self.namespace_exists(namespace):
                return
        except StorageError as error:
            if not error.is_denied:
                raise
            may_look = False
        try:
            self.create_namespace(namespace, if_not_exists=True)
        except StorageError as error:
            if may_look or not error.is_denied:
                raise

    @abstractmethod
    def drop_namespace(self, namespace: str | Namespace) -> None:
        """Remove an empty namespace; `InvalidInputError` if it is not empty."""

    @abstractmethod
    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]:
        """Return the namespaces one level below the parent (or the outermost), sorted, each with all its levels."""

    @abstractmethod
    def namespace_exists(self, namespace: str | Namespace) -> bool:
        """Tell whether there is such a namespace."""

    @abstractmethod
    def load_namespace_properties(self, namespace: str | Namespace) -> Mapping[str, str]:
        """Return the properties of a namespace."""

    def update_namespace_properties(
        self, namespace: str | Namespace, updates: Mapping[str, str] | None = None, removals: Iterable[str] = ()
    ) -> None:
        """Set and remove properties of a namespace; removing one that does not exist is no error."""
        namespace = self.levels_of(namespace)
        new, old = stored_properties(namespace, updates), frozenset(removals)
        if both := sorted(old & set(new)):
            raise InvalidInputError(
                f"property '{both[0]}' of namespace {join_levels(namespace)} is both set and removed"
            )
        self._update_namespace(namespace, new, old)

    @abstractmethod
    def _update_namespace(self, namespace: Namespace, new: dict[str, str], old: frozenset[str]) -> None:
        """Set the new properties of a namespace and remove the old ones."""

    def namespace_of(self, table: str | TableId) -> Namespace:
        """Return the namespace that a table is in, as this catalog names it."""
        return self.id_of(table).namespace

    @abstractmethod
    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]:
        """Return the tables directly in a namespace, sorted."""

    @abstractmethod
    def table_exists(self, table: str | TableId) -> bool:
        """Tell whether there is such a table."""

    @abstractmethod
    def load(self, table: str | TableId) -> TableState:
        """Return the table's current state."""

    def reload(self, state: TableState) -> TableState:
        """Return the current state of the table that was loaded; `TableReplacedError` if another one has its name."""
        found = self.load(state.table)
        check_same_table(found.metadata, state.metadata.table_uuid, state.table)
        return found

    def remember_states(self) -> None:
        """From now on, return the same state again from `load` while the table's pointer has not moved."""

    def limit_reads(self, check: Callable[[], None] | None = None) -> None:
        """From now on, read metadata files of limited size alone: for processes that do the work of others, too.

        Args:
            check: called before each request to a store; raises what ends the work that sends it.
        """

    @abstractmethod
    def create(self, table: str | TableId, metadata: TableMetadata) -> TableState:
        """Create a table from its first metadata; `AlreadyExistsError` if the name is taken."""

    @abstractmethod
    def commit(self, base: TableState, change: Change) -> TableState:
        """Apply a change to exactly the state it was made for, in one try.

        Raises:
            CommitConflictError: the table is no longer in the base's state; nothing was changed.
            CommitUnknownError: the outcome is unknown; the change may have landed.
        """

    def commit_together(self, changes: Sequence[tuple[TableState, Change]]) -> tuple[TableState, ...]:
        """Apply changes to several tables, to exactly the states they were made for: all of them or none; as `commit`.

        Raises:
            UnsupportedError: the catalog commits one table at a time.
        """
        raise UnsupportedError(f"catalog {self.name} cannot change several tables in one commit")

    def attempts(self, table: TableId) -> AbstractContextManager[None]:
        """Return a context for the attempts at one commit: a catalog with a queue of writers keeps a place in it."""
        return nullcontext()

    @abstractmethod
    def drop_table(self, table: str | TableId, *, purge: bool = False) -> None:
        """Remove a table from the catalog; `purge` requests the deletion of its files, too."""

    @abstractmethod
    def rename_table(self, table: str | TableId, to: str | TableId) -> None:
        """Give a table another name, perhaps in another namespace; its files are not moved."""

    @abstractmethod
    def register_table(self, table: str | TableId, metadata_location: str) -> TableState:
        """Bring an existing table into the catalog by its metadata file."""

    @abstractmethod
    def default_location(self, table: str | TableId) -> str:
        """Return the location of a new table of this name, unless its creator gives another; no trailing slash.

        Empty if a server chooses the location: then the metadata given to `create` has an empty one.
        """

    def new_location(self, table: str | TableId) -> str:
        """Return a location for a new table of this name in which no other table is; as of `default_location`."""
        return self.default_location(table)

    def id_of(self, table: str | TableId) -> TableId:
        """Return the id of a table; `InvalidInputError` for a name that this catalog does not accept."""
        found = TableId.of(table)
        check_names((*found.namespace, found.name), may_have_ref=self.names_have_refs)
        self.check_held(found.namespace, found.name)
        return found

    def levels_of(self, namespace: str | Namespace) -> Namespace:
        """Return the levels of a namespace; `InvalidInputError` for a name that this catalog does not accept."""
        found = parse_namespace(namespace)
        check_names(found, may_have_ref=self.names_have_refs)
        self.check_held(found)
        return found

    def check_held(self, namespace: Namespace, *name: str) -> None:
        """Raise `InvalidInputError` for a namespace, or the name of a table in it, that this catalog cannot hold."""

    # -- shared checks and errors ------------------------------------------------------------------------------------

    def _unknown_table(self, table: TableId) -> NotFoundError:
        text = f"there is no table {table} in catalog {self.name}; check the names of table, namespace and catalog"
        error = NotFoundError(text)
        error.is_unknown_name = True
        return error

    def _unknown_namespace(self, namespace: Namespace) -> NotFoundError:
        text = (
            f"there is no namespace {join_levels(namespace)} in catalog {self.name}; create it first or check the name"
        )
        error = NotFoundError(text)
        error.is_unknown_name = True
        return error

    def _no_table(self, table: TableId) -> NotFoundError:
        """Return the error for a name that is missing, or that something else has."""
        kind = self._other_kind(table)
        return self._unknown_table(table) if kind is None else self.not_a_table(table, kind)

    def not_a_table(self, table: TableId, kind: str) -> NotFoundError:
        """Return the error for a name that something else than a table has."""
        return NotFoundError(f"{table} in catalog {self.name} is {kind}, expected a table; name a table")

    def _existing_table(self, table: TableId) -> AlreadyExistsError:
        return AlreadyExistsError(self._taken(table))

    def _existing_target(self, table: TableId, to: TableId) -> AlreadyExistsError:
        return AlreadyExistsError(f"cannot rename {table}: {self._taken(to).removeprefix('table ')}")

    def _taken(self, table: TableId) -> str:
        kind = self._other_kind(table)
        taken = f"{table} exists already in catalog {self.name}"
        head = f"table {taken}" if kind is None or kind.startswith("a table") else taken
        return head if kind is None else f"{head}: it is {kind}; give the new table another name"

    def _other_kind(self, table: TableId) -> str | None:
        try:
            return self.kind_of_name(table)
        except IcebergError:
            return None  # whatever fails here, the first error is the one to tell

    def _not_empty(self, namespace: Namespace, kind: str, name: str) -> InvalidInputError:
        """Return the error for a namespace to drop; `kind` is "table", "namespace", or what only other engines drop."""
        own = kind in ("table", "namespace")
        to_do = "drop that first" if own else "drop that first, with the engine that has made it"
        return InvalidInputError(f"namespace {join_levels(namespace)} is not empty: it holds {kind} {name}; {to_do}")

    def _changed_by_another(self, table: TableId, detail: str) -> CommitConflictError:
        return CommitConflictError(f"table {table} in catalog {self.name} was changed by another writer: {detail}")
