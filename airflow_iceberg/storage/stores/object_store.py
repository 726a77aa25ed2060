"""`ObjectStore`: keys, directories that are only prefixes, and a creation that happens once.

Each store adds its few requests (`s3`, `gcs`, `adls`). They are sent through the client of the fsspec driver, since
fsspec's own methods cache listings, send more requests, and report less about failures.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import fsspec.asyn

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.storage.stores.store import (
    ExcessError,
    ExpiredError,
    Location,
    RefusedError,
    Store,
    UnclearError,
    UnreachableError,
)

# The name of a text in each created object by which its creator recognises it.
CREATION_KEY = "airflow-iceberg-creation"
_TRIES = 6
_READ_TRIES = 3
# Of the names of a directory, and what an entry takes beside its name.
_MOST_HELD_BYTES, _ENTRY_BYTES = 256 << 20, 150


class BusyError(OSError):
    """Another conditional request for this key is running: nothing was changed, retry."""


class RangeError(OSError):
    """The range begins at or after the end of the object."""


ERROR_OF_STATUS: Mapping[int, type[OSError]] = {
    404: FileNotFoundError,
    409: BusyError,
    412: FileExistsError,
    416: RangeError,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One object, or, below a delimiter, a prefix that objects have in common (key ends with a slash, no size)."""

    key: str
    size_bytes: int = 0
    modified_ms: int | None = None
    is_prefix: bool = False


class ObjectStore(Store):
    """A store of objects in buckets; paths are "bucket/key"."""

    is_conditional = True
    # For a request with all that its library makes of it, where answers have no limit of time of their own.
    _whole_s: float | None = None
    _opened: tuple[int, Mapping[str, str], Any] | None = None

    # -- the requests of each store --------------------------------------------------------------------------------

    @abstractmethod
    def _open(self, properties: Mapping[str, str]) -> Any:
        """Return a new fsspec file system for these properties, which is not shared."""

    @abstractmethod
    async def _get(self, bucket: str, key: str, offset: int, length: int | None) -> bytes: ...

    @abstractmethod
    async def _put(self, bucket: str, key: str, data: bytes, creation: str | None) -> None:
        """Write an object; with a `creation` only if there is none, and that text is stored with it."""

    @abstractmethod
    async def _head(self, bucket: str, key: str) -> Mapping[str, str] | None:
        """Return the texts that are stored with an object, keys in lower case, or None if there is no such object."""

    @abstractmethod
    async def _page(
        self, bucket: str, prefix: str, *, delimiter: str, limit: int | None, token: str | None
    ) -> tuple[list[Entry], str | None]:
        """Return a page of the objects whose keys begin with a prefix, and the token of the next page, if any."""

    @abstractmethod
    async def _delete(self, bucket: str, keys: Sequence[str]) -> Mapping[str, Exception]:
        """Delete objects; return the errors of those that could not be deleted."""

    @abstractmethod
    async def _mark_directory(self, bucket: str, key: str) -> None:
        """Write the marker of an empty directory; `key` has no slash at its end."""

    def _marker_of(self, key: str) -> str:
        """Return the key of a directory's marker."""
        return f"{key}/"

    @abstractmethod
    def _translate(self, error: Exception, bucket: str) -> Exception:
        """Return the error as one of the standard library or of `store`."""

    # -- the file system -------------------------------------------------------------------------------------------

    @classmethod
    def path_of(cls, location: Location) -> str:
        if not location.authority:
            raise InvalidInputError(f"'{location.text}' names no bucket: expected {location.scheme}://bucket/path")
        return f"{location.authority}/{location.path.removeprefix('/')}".removesuffix("/")

    def filesystem(self) -> Any:
        """Return the driver's file system; a new one in a forked child, and for newer credentials."""
        properties = self._settings.current()
        with self._lock:
            opened = self._opened
            if opened is None or opened[0] != os.getpid() or opened[1] is not properties:
                opened = self._opened = (os.getpid(), properties, self._open(properties))
            return opened[2]

    def _call(self, bucket: str, request: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Send a request and wait for its answer; retry it with newer credentials if they have expired."""
        before = self._settings.current()
        try:
            return self._sent(bucket, request)
        except ExpiredError:
            if not self._settings.can_renew:
                raise
            self._settings.renew(before)
            return self._sent(bucket, request)

    def _sent(self, bucket: str, request: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        loop = self.filesystem().loop

        async def in_time() -> Any:
            async with asyncio.timeout(self._whole_s):
                return await request()

        try:
            return fsspec.asyn.sync(loop, in_time)
        except (KeyboardInterrupt, SystemExit):
            raise
        except Exception as error:
            translated = self._translate(error, bucket)
            if translated is error:
                raise
            raise translated from error

    # -- files -----------------------------------------------------------------------------------------------------

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        """Return the bytes of an object; retry if the connection breaks."""
        bucket, key = split(path)
        if length == 0:
            if not self.is_file(path):
                raise FileNotFoundError(path)
            return b""
        for attempt in range(_READ_TRIES):
            try:
                found: bytes = self._call(bucket, lambda: self._get(bucket, key, offset, length))
                return found
            except RangeError:
                return b""
            except UnclearError as error:
                if attempt == _READ_TRIES - 1 or isinstance(error, UnreachableError | ExcessError):
                    raise
                _wait(attempt)
        raise AssertionError("unreachable")

    def create(self, path: str, data: bytes) -> None:
        """Write an object if there is none of that name; if the answer is lost, find out whether it was written.

        Each try is the same conditional request with the same text, so that a retry is safe: if an earlier one took
        effect, the later one is refused, and the existing object has our text.
        """
        bucket, key = split(path)
        creation = uuid.uuid4().hex
        is_unclear = False
        for attempt in range(_TRIES):
            try:
                self._call(bucket, lambda: self._put(bucket, key, data, creation))
                return
            except FileExistsError:
                # The refusal may be the echo of our own request, which a client or a proxy has repeated.
                if self._is_ours(path, data, creation, is_unclear):
                    return
                raise
            except BusyError:
                _wait(attempt)
            except RefusedError as error:
                if is_unclear:
                    raise UnclearError(*error.args) from error
                raise
            except UnreachableError as error:
                if attempt > 0 and not is_unclear:
                    raise UnclearError(*error.args) from error
                _wait(attempt)
            except UnclearError as error:
                is_unclear = True
                if self._has_landed(path, data, creation):
                    return
                if attempt == _TRIES - 1 or isinstance(error, ExcessError):
                    raise UnclearError(*error.args) from error
                _wait(attempt)
        raise UnclearError(f"other requests for it were under way all the time, tried {_TRIES} times")

    def _has_landed(self, path: str, data: bytes, creation: str) -> bool:
        try:
            return self._is_ours(path, data, creation, True)
        except OSError:
            return False

    def _is_ours(self, path: str, data: bytes, creation: str, by_bytes: bool) -> bool:
        """Tell whether the object is the one that we sent; raise `FileExistsError` if it is another writer's."""
        bucket, key = split(path)
        texts = self._call(bucket, lambda: self._head(bucket, key))
        if texts is None:
            return False
        found = texts.get(CREATION_KEY)
        # Only if the store doesn't keep texts, its bytes are compared.
        if found == creation or (found is None and by_bytes and self.read(path, 0, None) == data):
            return True
        raise FileExistsError(path)

    def replace(self, path: str, data: bytes) -> None:
        bucket, key = split(path)
        self._call(bucket, lambda: self._put(bucket, key, data, None))

    def is_file(self, path: str) -> bool:
        bucket, key = split(path)
        return bool(key) and self._call(bucket, lambda: self._head(bucket, key)) is not None

    def walk(self, path: str) -> Iterator[tuple[str, int, int | None]]:
        bucket, key = split(path)
        prefix = f"{key}/" if key else ""
        for page in self._each_page(bucket, prefix):
            for entry in page:
                name = entry.key.removeprefix(prefix)
                if name and not name.endswith("/"):
                    yield name, entry.size_bytes, entry.modified_ms

    def delete(self, paths: Sequence[str]) -> Mapping[str, Exception]:
        failures: dict[str, Exception] = {}
        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            bucket, key = split(path)
            by_bucket.setdefault(bucket, []).append(key)
        for bucket, keys in by_bucket.items():
            try:
                failed = self._call(bucket, lambda b=bucket, k=keys: self._delete(b, k))  # type: ignore[misc]
            except OSError as error:
                failed = dict.fromkeys(keys, error)
            failures.update({f"{bucket}/{key}": error for key, error in failed.items()})
        return failures

    # -- directories -----------------------------------------------------------------------------------------------

    def names(self, path: str, prefix: str) -> list[str]:
        bucket, key = split(path)
        base = f"{key}/" if key else ""
        entries = _held(self._each_page(bucket, base + prefix, delimiter="/"))
        return [entry.key.removeprefix(base) for entry in entries if not entry.is_prefix]

    def children(self, path: str) -> list[tuple[str, bool]]:
        bucket, key = split(path)
        base = f"{key}/" if key else ""
        found: dict[str, bool] = {}
        for entry in _held(self._each_page(bucket, base, delimiter="/")):
            name = entry.key.removeprefix(base)
            if name.rstrip("/"):
                is_directory = entry.is_prefix or name.endswith("/")
                found[name.rstrip("/")] = found.get(name.rstrip("/"), False) or is_directory
        return sorted(found.items())

    def is_directory(self, path: str) -> bool:
        bucket, key = split(path)
        if not key:
            with suppress(FileNotFoundError, RefusedError):
                next(iter(self._each_page(bucket, "", limit=1)), None)
                return True
            return False
        return any(page for page in self._each_page(bucket, f"{key}/", limit=1)) or self._is_marked(bucket, key)

    def _is_marked(self, bucket: str, key: str) -> bool:
        return False

    def make_directory(self, path: str) -> None:
        """Write a marker, as Hadoop's file systems for object stores do: an empty prefix does not exist otherwise."""
        bucket, key = split(path)
        parts = key.split("/")
        for depth in range(1, len(parts) + 1):
            inner = "/".join(parts[:depth])
            if depth == len(parts) or not self.is_directory(f"{bucket}/{inner}"):
                self._call(bucket, lambda k=inner: self._mark_directory(bucket, k))  # type: ignore[misc]

    def remove_directory(self, path: str) -> None:
        bucket, key = split(path)
        self._delete_all(bucket, [self._marker_of(key)])

    def remove_tree(self, path: str) -> None:
        bucket, key = split(path)
        keys = [entry.key for page in self._each_page(bucket, f"{key}/") for entry in page]
        # Deepest first: where directories are real, only an empty one can be deleted.
        self._delete_all(bucket, [*sorted(keys, key=lambda each: -each.count("/")), self._marker_of(key)])

    def _delete_all(self, bucket: str, keys: Sequence[str]) -> None:
        for failure in self.delete([f"{bucket}/{key}" for key in keys]).values():
            raise failure

    def _each_page(
        self, bucket: str, prefix: str, *, delimiter: str = "", limit: int | None = None
    ) -> Iterator[list[Entry]]:
        token: str | None = None
        while True:
            before = token
            page, token = self._call(
                bucket,
                lambda after=token: self._page(bucket, prefix, delimiter=delimiter, limit=limit, token=after),  # type: ignore[misc]
            )
            yield page
            if token is None:
                return
            if token == before:
                raise ExcessError("the listing does not end: its next page is the same again; check the store's server")


def _held(pages: Iterable[list[Entry]]) -> Iterator[Entry]:
    """Yield the entries of a listing that is held in memory as a whole, of a size that it may have.

    Raises:
        ExcessError: it is larger: a server may send pages without an end.
    """
    left = _MOST_HELD_BYTES
    for page in pages:
        left -= sum(_ENTRY_BYTES + len(entry.key) for entry in page)
        if left < 0:
            raise ExcessError(
                f"the listing has names of more than {_MOST_HELD_BYTES} bytes; keep fewer files in a folder, or check "
                f"the store's server"
            )
        yield from page


def split(path: str) -> tuple[str, str]:
    """Return (bucket, key) of "bucket/key"."""
    bucket, _, key = path.partition("/")
    return bucket, key


def _wait(attempt: int) -> None:
    time.sleep(min(0.1 * 2**attempt, 2.0))


async def gather_failures(
    keys: Sequence[str], remove: Callable[[str], Coroutine[Any, Any, None]]
) -> dict[str, Exception]:
    """Run a request for each key, some at a time, and return the errors; raise `ExpiredError` at once."""
    at_once = asyncio.Semaphore(16)
    failures: dict[str, Exception] = {}

    async def one(key: str) -> None:
        async with at_once:
            try:
                await remove(key)
            except ExpiredError:
                raise
            except OSError as error:
                failures[key] = error

    await asyncio.gather(*(one(key) for key in keys))
    return failures
