"""HDFS by its own protocol: `hdfs://` and `viewfs://`, through hdfs-native (no Java, no libhdfs).

A file is created under a temporary name in the same directory, closed, and renamed without overwriting: the rename is
one step of the NameNode, which refuses it if the target exists. Kerberos tickets are found as Hadoop's own clients find
them (`KRB5CCNAME`); Hadoop's settings come from `HADOOP_CONF_DIR` or as properties `hdfs.config.<name>`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, cast
from weakref import WeakValueDictionary

from fsspec import AbstractFileSystem
from hdfs_native import Client, WriteOptions
from hdfs_native.fsspec import HdfsFileSystem

from airflow_iceberg.errors import IcebergError, UnsupportedError
from airflow_iceberg.storage.stores.name_nodes import require_own
from airflow_iceberg.storage.stores.renaming import RenamingStore
from airflow_iceberg.storage.stores.store import DeniedError, RefusedError, UnclearError

_CONFIG = "hdfs.config."
_USER = "HADOOP_USER_NAME"
# By default the driver retries a NameNode that refuses connections for six minutes, as if there were another one.
_ATTEMPTS = "dfs.client.failover.max.attempts"
_ATTEMPTS_AT_ONE = "5"  # with growing pauses, some ten seconds: as Hadoop's own client
_CONNECT_SECONDS = 20.0
# The driver's threads, started on first use, do not exist in a forked child, where every call would wait forever.
_used_by: int | None = None
# For the same reason a child must never delete a client: it would wait for these threads. The garbage collector may do
# so at any time; so the child keeps all that exist at the fork.
_filesystems: WeakValueDictionary[int, _FileSystem] = WeakValueDictionary()
_kept: list[_FileSystem] = []
_lock = threading.Lock()


class _FileSystem(HdfsFileSystem):  # type: ignore[misc]
    """The driver's file system, with paths taken literally: its own reads them as URLs and cuts at "#" and "?".

    Args:
        url: the URL of the NameNode or name service; None for the default of Hadoop's settings.
        config: Hadoop's settings, over those of `HADOOP_CONF_DIR`.
    """

    def __init__(self, url: str | None, config: Mapping[str, str], **options: Any) -> None:
        # Not the driver's own, which opens a client for a host and a port; a name service may be in our settings alone.
        AbstractFileSystem.__init__(self, **options)
        self.host, self.port = url, None
        self.client = Client(url, dict(config) or None)
        with _lock:
            _filesystems[id(self)] = self  # not a set: two of the same address are equal

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = str(path)
        if not text.startswith("/") and "://" in text:
            text = "/" + text.partition("://")[2].partition("/")[2]
        return text.rstrip("/") or "/"

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        # The size of an upload's blocks is none of HDFS; its parents must be there, as on a local disk.
        options.pop("block_size", None)
        if mode == "wb" and (parent := path.rpartition("/")[0]):
            with _translated():
                self.client.mkdirs(parent, 0o755, True)
        with _translated():
            return _File(super()._open(path, mode, **options))


class _File:
    """A file of the driver that is read or written in parts, with the standard library's errors."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file, name)
        if not callable(found):
            return found

        def guarded(*arguments: Any, **options: Any) -> Any:
            with _translated():
                return found(*arguments, **options)

        return guarded

    def __len__(self) -> int:
        return len(self._file)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HdfsStore(RenamingStore):
    """Files of one HDFS: of a host and port, of a name service in Hadoop's settings, or of a default."""

    _opened: Any = None

    def filesystem(self) -> Any:
        global _used_by
        with self._lock:
            if _used_by not in (None, os.getpid()):
                raise RefusedError(
                    "hdfs:// was used by this process's parent before it forked, which its driver does not survive: "
                    "use webhdfs://, or do not touch hdfs:// before the fork"
                )
            if self._opened is None:
                _used_by = os.getpid()
                self._opened = self._open()
            return self._opened

    def _open(self) -> Any:
        properties = self._settings.current()
        scheme, _, authority = self._instance.partition("://")
        require_own(scheme, authority, properties, ("hdfs.kerberos_ticket",))
        host, _, port = authority.partition(":")
        host = host or properties.get("hdfs.host", "")
        port = port or (properties.get("hdfs.port", "") if not authority else "")
        self._act_as(properties.get("hdfs.user"))
        if ticket := properties.get("hdfs.kerberos_ticket"):
            os.environ.setdefault("KRB5CCNAME", ticket)
        config = {key.removeprefix(_CONFIG): value for key, value in properties.items() if key.startswith(_CONFIG)}
        if host and port:  # one NameNode: a name service has no port
            _require_listener(host, int(port))
            config.setdefault(_ATTEMPTS, _ATTEMPTS_AT_ONE)
        url = f"{scheme}://{host}{f':{port}' if port else ''}" if host else f"{scheme}://"
        with _translated():
            return _FileSystem(url if host else None, config, skip_instance_cache=True)

    def _act_as(self, user: str | None) -> None:
        """Set the user, which the driver takes from the environment alone, so that a process is one user of HDFS."""
        if user and os.environ.setdefault(_USER, user) != user:
            raise UnsupportedError(
                f"hdfs.user is '{user}' but this process is '{os.environ[_USER]}' ({_USER}) on HDFS already: hdfs:// "
                "supports one user for each process, use webhdfs:// for several"
            )

    @property
    def _client(self) -> Any:
        return self.filesystem().client

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        try:
            with _translated(), self._client.read(path) as file:
                size = len(file)
                end = size if length is None else min(size, offset + length)
                return cast(bytes, file.read_range(offset, end - offset)) if end > offset else b""
        except FileNotFoundError:
            if self.is_directory(path):
                raise IsADirectoryError(f"{path} is a directory") from None
            raise

    def _write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        with _translated(), self._client.create(path, WriteOptions(overwrite=overwrite, create_parent=True)) as file:
            file.write(data)

    def _give_name(self, temporary: str, path: str) -> None:
        with _translated():
            self._client.rename(temporary, path, False)

    def replace(self, path: str, data: bytes) -> None:
        temporary = self._temporary_name(path)
        try:
            self._write(temporary, data)
            with _translated():
                self._client.rename(temporary, path, True)
        except OSError:
            self._remove_quietly(temporary)
            raise

    def _remove(self, path: str) -> None:
        with _translated():
            self._client.delete(path, False)

    def walk(self, path: str) -> Iterator[tuple[str, int, int | None]]:
        if not self.is_directory(path):
            return
        base = path.rstrip("/") + "/"
        with _translated():
            for each in self._client.list_status(path, True):
                if not each.isdir:
                    yield each.path.removeprefix(base), each.length, each.modification_time

    def is_file(self, path: str) -> bool:
        found = self._status(path)
        return found is not None and not found.isdir

    def is_directory(self, path: str) -> bool:
        found = self._status(path)
        return found is not None and bool(found.isdir)

    def _status(self, path: str) -> Any:
        try:
            with _translated():
                return self._client.get_file_info(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def children(self, path: str) -> list[tuple[str, bool]]:
        if not self.is_directory(path):
            return []
        with _translated():
            found = self._client.list_status(path, False)
            return sorted((each.path.rpartition("/")[2], bool(each.isdir)) for each in found)

    def make_directory(self, path: str) -> None:
        with _translated():
            self._client.mkdirs(path, 0o755, True)

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError), _translated():
            self._client.delete(path, True)


def _require_listener(host: str, port: int) -> None:
    """Raise `RefusedError` if no server listens there; called before the first use."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except socket.gaierror:
        raise  # the name is wrong, which `fsspec_io` reports
    except OSError as error:
        raise RefusedError(
            f"no NameNode answers at {host}:{port}: {error.strerror or error}; expected the port of its RPC (8020 or "
            "9000 as a rule), which is another than that of its web pages"
        ) from error


class _translated:  # noqa: N801 - used like a function
    """Turn what the driver raises into the standard library's errors, or into an unclear one."""

    def __enter__(self) -> None: ...

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, StopIteration | IcebergError):
            return
        if isinstance(error, OSError) and type(error) is not OSError:
            if isinstance(error, ConnectionError | TimeoutError):
                raise UnclearError(str(error)) from error
            return
        text = str(error).partition("\n")[0]
        for words, kind in _REMOTE.items():
            if words in str(error):
                raise kind(text) from error
        raise UnclearError(text) from error


# Exceptions of the NameNode, by the name of their class in the driver's message.
_REMOTE: Mapping[str, type[OSError]] = {
    "AccessControlException": DeniedError,
    "FileAlreadyExistsException": FileExistsError,
    "ParentNotDirectoryException": NotADirectoryError,
    "FileNotFoundException": FileNotFoundError,
    "SafeModeException": RefusedError,
    "QuotaExceededException": RefusedError,
    "PathIsNotEmptyDirectoryException": RefusedError,
}


def _before_fork() -> None:
    _lock.acquire()  # until the fork is done: the end of another thread's fork must not empty the list
    _kept.extend(_filesystems.values())


def _after_fork_in_parent() -> None:
    _kept.clear()
    _lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_lock.release)
