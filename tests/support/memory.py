"""A FileIO and a catalog in memory, and wrappers that lose replies, let rivals in and crash, by script.

    catalog = FaultyCatalog(MemoryCatalog(), [Fault.LAND_THEN_UNKNOWN, Fault.CONFLICT])

The first swap lands but raises `CommitUnknownError`, before the second another writer commits, all others proceed.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem

from airflow_iceberg.catalogs.base import Namespace, TableId, TableState, child_namespaces, parse_namespace
from airflow_iceberg.catalogs.pointer import Pointer, PointerCatalog
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata.updates import Change, SetProperties
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.stores.memory import MemoryStore
from airflow_iceberg.storage.stores.store import parse_location


class SimulatedCrash(BaseException):
    """The process died here: no `except Exception` may see it."""


class MemoryFileIO(FileIO):
    """Files under memory://, in a dictionary of this object's own.

    Attributes:
        found: what checks of a table found, by their name, with the version and the files that they saw.
    """

    def __init__(self) -> None:
        self._filesystem = MemoryFileSystem(skip_instance_cache=True)
        # Older versions of fsspec have no argument for it.
        self._filesystem.store, self._filesystem.pseudo_dirs = {}, [""]
        self.found: dict[str, tuple[str, dict[str, Any], Any]] = {}
        self._creating = threading.Lock()

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        try:
            content: bytes = self._filesystem.cat_file(self._path(location))
        except FileNotFoundError as error:
            raise NotFoundError(f"cannot read {location}: there is no such file") from error
        return content[offset : None if length is None else offset + length]

    def create(self, location: str, data: bytes) -> None:
        path = self._path(location)
        with self._creating:
            if self._filesystem.exists(path):
                raise AlreadyExistsError(f"cannot create {location}: it exists already")
            self._filesystem.pipe_file(path, data)

    def list(self, prefix: str) -> Iterator[FileStatus]:
        root = self._path(prefix).rstrip("/")
        for path, info in self._filesystem.find(root or "/", detail=True).items():
            if path != root:
                location = f"{prefix.rstrip('/')}/{path[len(root) + 1 :]}"
                yield FileStatus(location=location, size_bytes=info["size"], modified_ms=int(info["created"] * 1000))

    def delete(self, locations: Iterable[str]) -> None:
        for location in locations:
            with suppress(FileNotFoundError, KeyError):
                self._filesystem.rm_file(self._path(location))

    def exists(self, location: str) -> bool:
        return bool(self._filesystem.isfile(self._path(location)))

    def filesystem(self, location: str) -> tuple[Any, str]:
        return self._filesystem, self._path(location)

    @property
    def files(self) -> dict[str, Any]:
        """The files as objects, by path: an equal dictionary later has the very same files."""
        return dict(self._filesystem.store)

    def locations(self, prefix: str = "memory:///") -> tuple[str, ...]:
        return tuple(sorted(status.location for status in self.list(prefix)))

    def copy(self) -> MemoryFileIO:
        """Return another one with the same files; what is made or removed in the one is not seen in the other."""
        other = MemoryFileIO()
        other._filesystem.store = dict(self._filesystem.store)
        other._filesystem.pseudo_dirs = list(self._filesystem.pseudo_dirs)
        other.found = dict(self.found)
        return other

    def _path(self, location: str) -> str:
        found = parse_location(location)
        if found.scheme != "memory":
            raise UnsupportedError(f"{location} is not in memory")
        return MemoryStore.path_of(found)


class MemoryCatalog(PointerCatalog):
    """Pointers in a dictionary, swapped under a lock; tables are under memory://warehouse unless told otherwise."""

    def __init__(
        self,
        name: str = "memory",
        *,
        io: FileIO | None = None,
        warehouse: str = "memory://warehouse",
        namespaces: Iterable[str] = ("db",),
        now_ms: Callable[[], int] | None = None,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        super().__init__(name, {"warehouse": warehouse}, io=io or MemoryFileIO(), now_ms=now_ms, new_uuid=new_uuid)
        self._lock = threading.RLock()
        self._pointers: dict[TableId, str] = {}
        self._properties: dict[Namespace, dict[str, str]] = {parse_namespace(name): {} for name in namespaces}

    def read_pointer(self, table: TableId) -> Pointer | None:
        location = self._pointers.get(table)
        return None if location is None else Pointer(metadata_location=location)

    def swap_pointer(self, table: TableId, *, expected: Pointer | None, new: str) -> Pointer:
        with self._lock:
            found = self._pointers.get(table)
            if expected is None and found is not None:
                raise self._existing_table(table)
            if expected is not None and found is None:
                raise self._unknown_table(table)
            if expected is not None and found != expected.metadata_location:
                raise CommitConflictError(f"table {table} in catalog {self.name} was changed by another writer")
            self._pointers[table] = new
            return Pointer(metadata_location=new)

    def _create_namespace(self, namespace, properties):
        with self._lock:
            is_new = not self.namespace_exists(namespace)
            if is_new:
                self._properties[namespace] = properties
            return is_new

    def drop_namespace(self, namespace: str | Namespace) -> None:
        levels = self._require_namespace(namespace)
        with self._lock:
            if self.list_tables(levels) or self.list_namespaces(levels):
                raise InvalidInputError(f"namespace {'.'.join(levels)} is not empty")
            self._properties.pop(levels, None)

    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]:
        above = self._require_namespace(parent) if parent else ()
        return child_namespaces(above, self._all_namespaces())

    def namespace_exists(self, namespace: str | Namespace) -> bool:
        levels = parse_namespace(namespace)
        return any(found[: len(levels)] == levels for found in self._all_namespaces())

    def load_namespace_properties(self, namespace: str | Namespace) -> Mapping[str, str]:
        return dict(self._properties.get(self._require_namespace(namespace), {}))

    def _update_namespace(self, namespace, new, old):
        levels = self._require_namespace(namespace)
        with self._lock:
            kept = {key: value for key, value in self._properties.get(levels, {}).items() if key not in old}
            self._properties[levels] = kept | new

    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]:
        levels = self._require_namespace(namespace)
        return tuple(sorted(table for table in self._pointers if table.namespace == levels))

    def drop_pointer(self, table: TableId) -> None:
        with self._lock:
            if self._pointers.pop(table, None) is None:
                raise self._unknown_table(table)

    def rename_table(self, table: str | TableId, to: str | TableId) -> None:
        table, to = self.id_of(table), self.id_of(to)
        self._require_namespace(to.namespace)
        with self._lock:
            if table not in self._pointers:
                raise self._unknown_table(table)
            if to in self._pointers:
                raise self._existing_target(table, to)
            self._pointers[to] = self._pointers.pop(table)

    def default_location(self, table: str | TableId) -> str:
        table = self.id_of(table)
        return "/".join((self.properties["warehouse"], *table.namespace, table.name))

    def _all_namespaces(self) -> set[Namespace]:
        return {*self._properties, *(table.namespace for table in self._pointers)}


class Fault(Enum):
    """What happens at one swap of a `FaultyCatalog`."""

    PROCEED = auto()
    """Nothing: it works."""
    CONFLICT = auto()
    """The rival commits first, so ours loses."""
    FAIL = auto()
    """`StorageError` before anything is sent; nothing landed."""
    LAND_THEN_UNKNOWN = auto()
    """It lands, the reply is lost."""
    LAND_THEN_RIVAL_THEN_UNKNOWN = auto()
    """It lands, the rival commits on top, our reply is lost."""
    LAND_THEN_RIVAL_THEN_CONFLICT = auto()
    """It lands, the rival commits on top, and a client that repeated the request itself hears "conflict"."""
    LAND_THEN_CONFLICT = auto()
    """It lands, and a client that repeated the request itself hears "conflict" from its own echo."""
    LOSE_THEN_UNKNOWN = auto()
    """It doesn't land, and the reply is lost."""
    RIVAL_THEN_UNKNOWN = auto()
    """The rival commits first, ours doesn't land, and the reply is lost."""
    CRASH_BEFORE = auto()
    """`SimulatedCrash` after the metadata file was written, before the swap."""
    CRASH_AFTER = auto()
    """`SimulatedCrash` right after the swap."""
    LAND_LATE = auto()
    """The answer takes longer than we wait: the request is on its way still, and is done some calls later."""


class Late:
    """Requests that are on their way longer than their sender waits.

    Args:
        after: how many other requests go before each.
    """

    def __init__(self, after: int) -> None:
        self._after = after
        self._waiting: list[tuple[int, Callable[[], object]]] = []
        self._gone = 0

    def add(self, request: Callable[[], object]) -> None:
        self._waiting.append((self._gone + self._after, request))

    def let_one_go(self) -> None:
        self._arrive(self._gone)
        self._gone += 1

    def arrive(self) -> None:
        self._arrive(None)

    def _arrive(self, until: int | None) -> None:
        due = [each for each in self._waiting if until is None or each[0] <= until]
        self._waiting = [each for each in self._waiting if each not in due]
        for _, request in due:
            with suppress(IcebergError):  # a refusal reaches nobody
                request()


Rival = Callable[[PointerCatalog, TableId], None]

_rivals = itertools.count(1)


def set_a_property(catalog: PointerCatalog, table: TableId) -> None:
    """Be the simplest rival: commit a property that nobody else sets."""
    change = Change(updates=(SetProperties(updates={f"rival-{next(_rivals)}": "was here"}),), requirements=())
    catalog.commit(catalog.load(table), change)


def _inner(name: str) -> Any:
    """Return the method that does what the one of the inner catalog does."""
    return lambda self, *args, **options: getattr(self.inner, name)(*args, **options)


class FaultyCatalog(PointerCatalog):
    """A pointer catalog whose swaps and loads go wrong by script; beyond the script's end all is well.

    Args:
        inner: where tables really are; any `PointerCatalog` with a swap of its own (not Hadoop).
        script: one fault a swap. To create, drop or rename a table is a swap too, unless it is done through `inner`.
        rival: called with the inner catalog when another writer is to commit.
        loads: one fault a `load`: PROCEED, FAIL or CRASH_BEFORE.
        late_after: how many loads and swaps a request that is late lets go before it.

    Attributes:
        swaps: the metadata locations of all swaps that were asked for (none of drops and renames), with the fault each
            met.
        load_count: how often the table was loaded.
    """

    def __init__(
        self,
        inner: PointerCatalog,
        script: Iterable[Fault] = (),
        *,
        rival: Rival = set_a_property,
        loads: Iterable[Fault] = (),
        late_after: int = 1,
    ) -> None:
        super().__init__(inner.name, inner.properties, io=inner.io, now_ms=inner._now_ms, new_uuid=inner._new_uuid)
        self.inner = inner
        self.late = Late(late_after)
        self.swaps: list[tuple[str, Fault]] = []
        self.load_count = 0
        self._script = iter(tuple(script))
        self._loads = iter(tuple(loads))
        self._rival = rival

    read_pointer, default_location, list_tables = map(_inner, ("read_pointer", "default_location", "list_tables"))
    _create_namespace, drop_namespace = _inner("_create_namespace"), _inner("drop_namespace")
    list_namespaces, namespace_exists = _inner("list_namespaces"), _inner("namespace_exists")
    load_namespace_properties = _inner("load_namespace_properties")
    _update_namespace = _inner("_update_namespace")

    def load(self, table: str | TableId) -> TableState:
        self.load_count += 1
        self.late.let_one_go()
        fault = next(self._loads, Fault.PROCEED)
        if fault is Fault.FAIL:
            raise StorageError(f"catalog {self.name} cannot be reached")
        if fault is Fault.CRASH_BEFORE:
            raise SimulatedCrash(f"loading {table}")
        return self.inner.load(table)

    def swap_pointer(self, table: TableId, *, expected: Pointer | None, new: str) -> Pointer:
        return self._send(table, new, lambda: self.inner.swap_pointer(table, expected=expected, new=new))

    def _send(self, table: TableId, what: str, request: Callable[[], Any]) -> Any:
        fault = next(self._script, Fault.PROCEED)
        self.swaps.append((what, fault))
        self.late.let_one_go()
        self._before(fault, table)
        if fault is Fault.LAND_LATE:
            self.late.add(request)
            raise CommitUnknownError("no answer in time")
        if fault in (Fault.LOSE_THEN_UNKNOWN, Fault.RIVAL_THEN_UNKNOWN):
            raise CommitUnknownError("the reply was lost")
        answer = request()
        self._after(fault, table)
        return answer

    def _before(self, fault: Fault, table: TableId) -> None:
        if fault is Fault.FAIL:
            raise StorageError(f"catalog {self.name} cannot be reached")
        if fault is Fault.CRASH_BEFORE:
            raise SimulatedCrash("before the swap")
        if fault in (Fault.CONFLICT, Fault.RIVAL_THEN_UNKNOWN):
            self._rival(self.inner, table)

    def _after(self, fault: Fault, table: TableId) -> None:
        if fault is Fault.CRASH_AFTER:
            raise SimulatedCrash("after the swap")
        if fault in (Fault.LAND_THEN_RIVAL_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_CONFLICT):
            self._rival(self.inner, table)
        if fault in (Fault.LAND_THEN_CONFLICT, Fault.LAND_THEN_RIVAL_THEN_CONFLICT):
            raise CommitConflictError("the echo of our own swap")
        if fault in (Fault.LAND_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_UNKNOWN):
            raise CommitUnknownError("the reply was lost")

    def drop_pointer(self, table: TableId) -> None:
        self._send(table, "", lambda: self.inner.drop_pointer(table))

    def rename_table(self, table: str | TableId, to: str | TableId) -> None:
        self._send(TableId.of(table), "", lambda: self.inner.rename_table(table, to))


class FileFault(Enum):
    """What happens to one call of a `FaultyFileIO`."""

    FAIL = auto()
    """`StorageError`, nothing was done."""
    DO_THEN_FAIL = auto()
    """`StorageError` although it was done."""
    MISSING = auto()
    """`NotFoundError`, as from a store that lags (read) or by somebody who cleaned up."""
    RIVAL_THEN_FAIL = auto()
    """Somebody else creates the file with other bytes, and our call fails with `StorageError`."""
    LATE = auto()
    """`StorageError`, since no answer came in time; it is done some calls later."""
    TORN_THEN_FAIL = auto()
    """Half of the bytes are written (create), and the call fails with `StorageError`."""
    CRASH_BEFORE = auto()
    """`SimulatedCrash`, nothing was done."""
    CRASH_AFTER = auto()
    """`SimulatedCrash` right after it was done."""


@dataclass(kw_only=True)
class FileRule:
    """Which calls go wrong, and how.

    Attributes:
        call: "read", "create", "delete", "list" or "exists".
        fault: what happens.
        matching: a text that the location must contain.
        skip: so many matching calls go well first.
        times: so many go wrong then; None: all of them.
    """

    call: str
    fault: FileFault
    matching: str = ""
    skip: int = 0
    times: int | None = 1


class FaultyFileIO(FileIO):
    """A FileIO whose calls go wrong by rules.

    Args:
        late_after: how many calls a request that is late lets go before it.

    Attributes:
        rules: may be changed at any time.
        calls: (call, location) of all calls so far, `filesystem` left out.
    """

    def __init__(self, inner: FileIO, rules: Iterable[FileRule] = (), *, late_after: int = 1) -> None:
        self.inner = inner
        self.rules = list(rules)
        self.late = Late(late_after)
        self.calls: list[tuple[str, str]] = []

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self._call("read", location, lambda: self.inner.read(location, offset=offset, length=length))

    def create(self, location: str, data: bytes) -> None:
        half = data[: len(data) // 2]
        create = self.inner.create
        self._call("create", location, lambda: create(location, data), half=lambda: create(location, half))

    def list(self, prefix: str) -> Iterator[FileStatus]:
        return self._call("list", prefix, lambda: iter(tuple(self.inner.list(prefix))))

    def delete(self, locations: Iterable[str]) -> None:
        for location in locations:
            self._call("delete", location, lambda location=location: self.inner.delete([location]))

    def exists(self, location: str) -> bool:
        return bool(self._call("exists", location, lambda: self.inner.exists(location)))

    def filesystem(self, location: str) -> tuple[Any, str]:
        return self.inner.filesystem(location)

    def _call(self, call: str, location: str, do: Callable[[], Any], half: Callable[[], Any] = lambda: None) -> Any:
        self.calls.append((call, location))
        self.late.let_one_go()
        fault = self._fault(call, location)
        if fault is FileFault.LATE:
            self.late.add(do)
        if fault is FileFault.CRASH_BEFORE:
            raise SimulatedCrash(f"before {call} {location}")
        if fault is FileFault.MISSING:
            raise NotFoundError(f"cannot {call} {location}: there is no such file")
        if fault is FileFault.RIVAL_THEN_FAIL:
            self.inner.create(location, b'{"written": "by somebody else"}')
        if fault is FileFault.TORN_THEN_FAIL:
            half()
        not_done = (FileFault.FAIL, FileFault.LATE, FileFault.RIVAL_THEN_FAIL, FileFault.TORN_THEN_FAIL)
        result = do() if fault not in not_done else None
        if fault is FileFault.CRASH_AFTER:
            raise SimulatedCrash(f"after {call} {location}")
        if fault is not None:
            raise StorageError(f"cannot {call} {location}: the reply was lost")
        return result

    def _fault(self, call: str, location: str) -> FileFault | None:
        for rule in self.rules:
            if rule.call != call or rule.matching not in location or rule.times == 0:
                continue
            if rule.skip > 0:
                rule.skip -= 1
                continue
            if rule.times is not None:
                rule.times -= 1
            return rule.fault
        return None
