"""A process that is killed at a chosen step of its I/O, as by the kernel: no exception, no clean-up, half a file.

    mortal.arm(17)              # the 17th step from now on is the process's last
    mortal.count()              # or: live, and count them
    mortal.steps()
    mortal.lose_a_reply("after")  # or: never hear whether the next commit has landed, which it has

A step is what a store or a catalog does: each read, listing and question, each file that is created (before it is
written, when half is written, when all of it is written under another name, when it has its name), copied (half of it,
all of it), written by a job, removed, and each swap of the pointer (before and after). The switches are put into the
classes of this process alone; there is no way back.
"""

import errno
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

_VERSION = re.compile(r"/v\d+(\.gz)?\.metadata\.json$")

_lock = threading.Lock()
_count = 0
_kinds: Counter[str] = Counter()
_die_at: int | None = None
_lost_reply: str | None = None
_is_installed = False


def arm(die_at: int | None) -> None:
    """Die at that step from now on; None: do not die any more."""
    global _die_at
    if die_at is not None:
        count()
    _die_at = die_at


def count() -> None:
    global _count, _is_installed
    if not _is_installed:
        _install()
        _is_installed = True
    _count = 0
    _kinds.clear()


def lose_a_reply(when: str | None) -> None:
    """Lose the answer to the next swap of a pointer, or creation of a metadata file, "before" or "after" it is done."""
    global _lost_reply
    if when is not None:
        count()
    _lost_reply = when


def steps() -> int:
    """Return the number of steps since `arm` or `count`."""
    return _count


def kinds() -> dict[str, int]:
    return dict(_kinds)


def _step(kind: str) -> bool:
    global _count
    with _lock:
        _count += 1
        _kinds[kind] += 1
        return _count == _die_at


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(1)


def _or_die(kind: str) -> None:
    if _step(kind):
        _die()


def _before(owner: Any, name: str, kind: str) -> None:
    real = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        _or_die(kind)
        return real(*args, **kwargs)

    setattr(owner, name, call)


def _around(owner: Any, name: str, kind: str) -> None:
    real = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        _or_die(f"before {kind}")
        found = real(*args, **kwargs)
        _or_die(f"after {kind}")
        return found

    setattr(owner, name, call)


def _install() -> None:
    import pyarrow as pa

    from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
    from airflow_iceberg.data.write.file_layout import FileLayout
    from airflow_iceberg.errors import CommitUnknownError
    from airflow_iceberg.storage.stores import local

    _before(local.LocalStore, "read", "read")
    _before(local.LocalStore, "walk", "list")
    _before(local.LocalStore, "is_file", "look")
    _around(local.LocalStore, "_delete_file", "delete")
    _before(local, "open_in", "create")
    # Only a Hadoop catalog commits by a file: one of another catalog, which has no version in its name, is no commit.
    _unheard(local, "_link", OSError(errno.EIO, "the reply was lost"), lambda path: bool(_VERSION.search(path)))
    _around(local, "_link", "link")
    local._write_all = _torn(local._write_all)
    _around(local.LocalStore, "copy_file", "copy")
    local.shutil.copyfileobj = _copied
    FileLayout.open_sink = _watched(FileLayout.open_sink, pa)
    _unheard(SqlCatalog, "swap_pointer", CommitUnknownError("the reply was lost"), lambda _: True)
    _around(SqlCatalog, "swap_pointer", "swap")
    _before(SqlCatalog, "read_pointer", "pointer")


def _unheard(owner: Any, name: str, error: Exception, concerns: Callable[[Any], bool]) -> None:
    """Let calls fail whose reply is to be lost; their last argument says which these are."""
    real = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        global _lost_reply
        when = _lost_reply if concerns(args[-1]) else None
        if when is None:
            return real(*args, **kwargs)
        _lost_reply = None
        if when == "after":
            real(*args, **kwargs)
        raise error

    setattr(owner, name, call)


def _torn(real: Callable[[int, bytes], None]) -> Callable[[int, bytes], None]:
    def write(descriptor: int, data: bytes) -> None:
        if _step("half a file"):
            real(descriptor, data[: len(data) // 2])
            _die()
        real(descriptor, data)

    return write


def _copied(source: Any, target: Any, length: int = 0) -> None:
    data = source.read()
    target.write(data[: len(data) // 2])
    target.flush()
    _or_die("half a copy")
    target.write(data[len(data) // 2 :])


def _watched(real: Callable[..., Any], pa: Any) -> Callable[..., Any]:
    """Count when a data file is opened, and when it is closed: killed before that, it has no footer."""
    from airflow_iceberg.data.write.variant_footer import AnnotatingSink

    class Sink(AnnotatingSink):
        def close(self) -> None:
            if not self.closed:
                _or_die("half a data file")
                super().close()
                _or_die("a data file")

    def open_sink(self: Any, location: str) -> Any:
        _or_die("new data file")
        return pa.PythonFile(Sink(real(self, location), ()), mode="w")

    return open_sink
