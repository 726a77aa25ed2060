"""The part of this package that runs on a cluster, as one zip for `--py-files`.

The zip has no Airflow module, no catalog and no commit engine: a job cannot commit. The same sources give the same
bytes, and the name has a hash of them, so that a zip is built once and never replaced while a process reads it.

Executors run what is in the zip. So it lies in a folder that only this user can enter, and one that is there already is
used only if it has the right bytes.
"""

import atexit
import functools
import hashlib
import io
import logging
import os
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import airflow_iceberg
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.redaction import said

log = logging.getLogger(__name__)

ROOT = Path(airflow_iceberg.__file__).parent
# What the layer table lets `jobs` import.
MODULES = ("__init__.py", "errors.py", "py.typed")
FOLDERS = ("redaction", "format", "expressions", "plan", "storage", "inventory", "data", "jobs")
# The earliest time that a zip can hold: the bytes must not depend on when the package was installed.
EPOCH = (1980, 1, 1, 0, 0, 0)
READABLE = 0o644 << 16


def build_zip(directory: str | os.PathLike[str]) -> Path:
    """Return the zip in a directory; zip and directory are created if missing, also by several processes at once.

    Raises:
        InvalidInputError: other users can write to the directory, and so put another zip in its place.
        OSError: the directory cannot be written.
    """
    folder = Path(directory)
    data = zip_bytes()
    path = folder / f"airflow_iceberg_core-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(folder)
    if _has(path, data):
        return path
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".airflow_iceberg_core-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp gives 0600; on a cluster another user may read the zip.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def private_zip() -> Path:
    """Return the zip in a folder of this process, which is removed when the process ends."""
    return build_zip(_folder_of(os.getpid()))


@functools.cache
def _folder_of(process: int) -> str:
    folder = tempfile.mkdtemp(prefix="airflow-iceberg-")

    def remove() -> None:
        # Forked children call this, too.
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _check_owner(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise InvalidInputError(
            f"{folder} is not a folder that only its owner, the user of this process, can write to: another user could "
            f"put other code there for the executors; use another folder, or chmod 700"
        )


def _has(path: Path, data: bytes) -> bool:
    """Whether the file exists and is no link, and has these bytes."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return file.read(len(data) + 1) == data
    except OSError:
        return False


def zip_bytes() -> bytes:
    """Return the zip; the same bytes for the same sources."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _sources():
            info = zipfile.ZipInfo(f"airflow_iceberg/{path.relative_to(ROOT).as_posix()}", date_time=EPOCH)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, READABLE
            archive.writestr(info, path.read_bytes())
    return buffer.getvalue()


def main_program() -> Path:
    """Return the path of the driver program, for spark-submit."""
    return ROOT / "jobs" / "main.py"


def archive() -> Path | None:
    """Return the zip that this package was imported from, None for a folder."""
    return ROOT.parent if ROOT.parent.is_file() else None


def ship(spark: Any) -> None:
    """Send this package to the workers, unless spark-submit has done so.

    On classic Spark a package that was itself imported from a zip came by `--py-files`, which the workers have too.
    """
    own = archive()
    if own is not None and not is_connect(spark):
        return
    path = str(own or private_zip())
    if is_connect(spark):
        _ship_by_connect(spark, path)
    else:
        spark.sparkContext.addPyFile(path)


def _ship_by_connect(spark: Any, path: str) -> None:
    add = getattr(spark, "addArtifacts", None) or spark.addArtifact
    try:
        add(path, pyfile=True)
    except Exception as error:  # noqa: BLE001 - what Connect raises here depends on its version
        # The session has it already; it is the same, since its name has a hash of the contents.
        log.info("not shipped again: %s", said(error))


def is_connect(spark: Any) -> bool:
    """Return whether a session is a Spark Connect client, which has no SparkContext."""
    return ".connect." in type(spark).__module__


def _sources() -> list[Path]:
    files = [ROOT / name for name in MODULES if (ROOT / name).exists()]
    for folder in FOLDERS:
        files.extend((ROOT / folder).rglob("*.py"))
    return sorted(files)
