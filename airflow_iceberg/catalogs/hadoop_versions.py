"""The `metadata` directory of a Hadoop catalog's table: which version is the newest, its spellings, and the hint.

Lives here: names of files and what may be concluded from them. Not here: the commit (`hadoop`).

A version has one of three names: `v<N>.metadata.json`, `v<N>.gz.metadata.json` and, from old writers,
`v<N>.metadata.json.gz`. `version-hint.text` saves a listing and promises nothing: it may lag, run back, or be gone.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from airflow_iceberg.errors import FormatError, IcebergError, NotFoundError
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

_VERSION = re.compile(r"v([0-9]{1,18})(?:\.metadata\.json|\.gz\.metadata\.json|\.metadata\.json\.gz)")
_PLAIN, _GZIP, _OLD_GZIP = ".metadata.json", ".gz.metadata.json", ".metadata.json.gz"
_HINT = "version-hint.text"


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """One version of a table: its number and the location of its file."""

    version: int
    location: str


class MetadataDirectory:
    """The versions in one table's metadata directory.

    Args:
        io: how files are reached.
        location: of the directory, without a slash at the end.
        new_uuid: for the name of a temporary hint.

    Attributes:
        is_local: the directory is on this machine, where Iceberg Java commits by a rename that replaces.
        answers_are_final: a file that isn't there after a call has failed won't come later.
    """

    def __init__(self, io: FileIO, location: str, *, new_uuid: Callable[[], uuid.UUID] = uuid.uuid4) -> None:
        self._io = io
        self._location = location
        self._new_uuid = new_uuid
        self._filesystem, self._path = io.filesystem(location)
        protocol = self._filesystem.protocol
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        self.is_local = "file" in protocols
        # When a call on these has failed, nothing of it is still on its way.
        self.answers_are_final = bool(protocols & {"file", "memory"})

    def location_of(self, version: int, *, is_gzip: bool) -> str:
        """Return where a new version is put."""
        return f"{self._location}/v{version}{_GZIP if is_gzip else _PLAIN}"

    def spellings(self, version: int) -> tuple[str, ...]:
        """Return the files that claim to be this version: one, none, or, after an accident, more."""
        names = (f"{self._location}/v{version}{suffix}" for suffix in (_PLAIN, _GZIP, _OLD_GZIP))
        return tuple(name for name in names if self._io.exists(name))

    def newest(self) -> Version | None:
        """Return the newest version: from the hint, or from a listing, and forward from there.

        Raises:
            FormatError: two files claim to be the newest version.
        """
        hint = self._read_hint()
        found = self._file_of(hint) if hint is not None else None
        found = found or self._newest_listed()
        while found is not None and (following := self._file_of(found.version + 1)):
            found = following
        return found

    def write_hint(self, version: int) -> None:
        """Let the hint say this version, unless it is ahead already. Best effort: the commit has happened before."""
        try:
            if (self._read_hint() or 0) < version:
                self._replace_hint(str(version).encode("ascii"))
        except (IcebergError, OSError) as error:
            log.warning(
                "could not write %s/%s, readers will look for the newest version: %s", self._location, _HINT, error
            )

    def forget_checksum(self, location: str) -> None:
        """Remove the checksum file that Hadoop's local file system may have left for a file of this name.

        Hadoop keeps a checksum of a local file `x` in `.x.crc` and refuses to read an `x` that doesn't fit. A file
        without one is read unchecked, so none is better than an old one.
        """
        if self.is_local:
            directory, _, name = location.rpartition("/")
            self._io.delete([f"{directory}/.{name}.crc"])

    def two_spellings(self, version: int) -> FormatError:
        """Return the error for a version that two files claim to be."""
        names = " and ".join(name.rpartition("/")[2] for name in self.spellings(version))
        return FormatError(
            f"version {version} of the table is both {names}: two writers committed at once while the compression "
            "codec was changed; compare the two and move the one whose change may be lost out of the directory",
            path=self._location,
        )

    def _file_of(self, version: int) -> Version | None:
        found = self.spellings(version)
        if len(found) > 1:
            raise self.two_spellings(version)
        return Version(version=version, location=found[0]) if found else None

    def _newest_listed(self) -> Version | None:
        try:
            paths = self._filesystem.ls(self._path, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        versions = [version_of(str(path).rpartition("/")[2]) for path in paths]
        newest = max((version for version in versions if version is not None), default=None)
        return self._file_of(newest) if newest is not None else None

    def _read_hint(self) -> int | None:
        try:
            text = self._io.read(f"{self._location}/{_HINT}").strip()
        except NotFoundError:
            return None
        except IcebergError as error:
            log.warning("could not read %s/%s: %s", self._location, _HINT, error)
            return None
        return int(text) if text.isdigit() and len(text) <= 18 else None

    def _replace_hint(self, data: bytes) -> None:
        hint = f"{self._path}/{_HINT}"
        if not self.is_local:
            self._filesystem.pipe_file(hint, data)  # one request replaces the whole object
            return
        temporary = f"{self._path}/{self._new_uuid()}-version-hint.temp"
        self._filesystem.pipe_file(temporary, data)
        self._filesystem.mv(temporary, hint)  # within a directory this is rename(), which replaces in one step
        self.forget_checksum(f"{self._location}/{_HINT}")


def version_of(name: str) -> int | None:
    """Return the version that a file's name says, or None for every other file."""
    match = _VERSION.fullmatch(name)
    return int(match[1]) if match else None
