"""The `metadata` directory of a Hadoop catalog's table: which version is the newest, its spellings, and the hint.

A version has one of three names: `v<N>.metadata.json`, `v<N>.gz.metadata.json` and, from old writers,
`v<N>.metadata.json.gz`. `version-hint.text` saves a listing and is not reliable: it may be old, too new, or missing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass

from airflow_iceberg.catalogs.base import TableState
from airflow_iceberg.catalogs.metadata_file import read_uuid
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.requirements import replaced
from airflow_iceberg.redaction import said
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.directories import open_directory

log = logging.getLogger(__name__)

_VERSION = re.compile(r"v([0-9]{1,18})(?:\.metadata\.json|\.gz\.metadata\.json|\.metadata\.json\.gz)")
_PLAIN, _GZIP, _OLD_GZIP = ".metadata.json", ".gz.metadata.json", ".metadata.json.gz"
_HINT = "version-hint.text"
# A number and white space; others can write there.
_MOST_HINT_BYTES = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """One version of a table: its number and the location of its file."""

    version: int
    location: str


class MetadataDirectory:
    """The versions in one table's metadata directory.

    Args:
        location: location of the directory, without a slash at the end.

    Attributes:
        is_local: whether the directory is on this machine, where Iceberg Java commits by a rename that replaces.
        is_conditional: whether the store creates files by a condition, which a server may ignore, and lists by prefix.
        answers_are_final: whether a file that does not exist after a failed call cannot appear later.
    """

    def __init__(self, io: FileIO, location: str) -> None:
        self._io = io
        self.location = location
        with open_directory(io, location, "open") as (store, _):
            self.is_local = store.is_local
            self.is_conditional = store.is_conditional
            self.answers_are_final = store.answers_are_final

    def location_of(self, version: int, *, is_gzip: bool) -> str:
        """Return the location of a new version."""
        return f"{self.location}/v{version}{_GZIP if is_gzip else _PLAIN}"

    def spellings(self, version: int) -> tuple[str, ...]:
        """Return the files of this version: one, none, or, after an accident, more."""
        return tuple(self._each_spelling(version))

    def is_there(self, version: int, *, other_than: str | None = None) -> bool:
        """Tell whether there is a file of this version, other than the one at `other_than`."""
        return next(self._each_spelling(version, other_than=other_than), None) is not None

    def _each_spelling(self, version: int, *, other_than: str | None = None) -> Iterator[str]:
        """Yield the files of a version; on HDFS each one costs a request, which `other_than` saves."""
        names = [f"v{version}{suffix}" for suffix in (_PLAIN, _GZIP, _OLD_GZIP)]
        locations = [location for name in names if (location := f"{self.location}/{name}") != other_than]
        if self.is_conditional:  # an object store: one listing by prefix instead of three requests
            with open_directory(self._io, self.location, "list") as (store, path):
                found = {f"{self.location}/{name}" for name in store.names(path, f"v{version}.")}
            yield from (location for location in locations if location in found)
        else:
            yield from (location for location in locations if self._io.exists(location))

    def is_surely_last(self, version: int, *, hint: int | None, witness: str) -> bool:
        """Tell whether a version without a next one is the newest, and not one before a hole.

        Old versions are deleted oldest first, after the hint was written. So if the hint is not a later version, and a
        file exists that would have been deleted first, none was deleted after it. False means that it is not known, as
        without a hint: then use `newest`.

        Args:
            hint: the hint, just read.
            witness: a file of this version, or of the one before it.
        """
        return hint is not None and hint <= version and self._io.exists(witness)

    def is_of(self, state: TableState, location: str) -> bool:
        """Whether there is a metadata file at a location.

        Raises:
            TableReplacedError: it is that of another table.
        """
        expected = state.metadata.table_uuid
        try:
            found = read_uuid(self._io, location)
        except NotFoundError:
            return False
        if expected and (found or "").lower() != expected.lower():
            raise replaced(state.table, found=found, expected=expected)
        return True

    def newest(self, *, at_least: Version | None = None) -> Version | None:
        """Return the newest version: from the hint, or from a listing, and forward from there.

        Args:
            at_least: a version that surely exists, to save requests.
        Raises:
            FormatError: there are two files of the newest version.
        """
        hint = self.read_hint()
        found = self._file_of(hint) if hint is not None else None
        found = found or self._newest_listed()
        if found is not None and at_least is not None and at_least.version > found.version:
            found = at_least
        while found is not None and (following := self._file_of(found.version + 1)):
            found = following
        return found

    def write_hint(self, version: int, *, last: int | None) -> None:
        """Write this version into the hint, unless `last`, the hint after the commit, is newer; errors are logged."""
        try:
            if (last or 0) < version:
                self._replace_hint(str(version).encode("ascii"))
        except (IcebergError, OSError) as error:
            log.warning(
                "could not write %s/%s, readers will look for the newest version: %s", self.location, _HINT, said(error)
            )

    def forget_checksum(self, location: str) -> None:
        """Delete the checksum file `.x.crc` that Hadoop's local file system may have left for a file `x` of this name.

        Hadoop refuses to read a file with another checksum. A file without one is read unchecked.
        """
        if self.is_local:
            directory, _, name = location.rpartition("/")
            self._io.delete([f"{directory}/.{name}.crc"])

    def two_spellings(self, version: int) -> FormatError:
        """Return the error for a version of two files."""
        names = " and ".join(name.rpartition("/")[2] for name in self.spellings(version))
        return FormatError(
            f"version {version} of the table is both {names}: two writers committed at once while the compression "
            "codec was changed; compare the two and move the one whose change may be lost out of the directory",
            path=self.location,
        )

    def _file_of(self, version: int) -> Version | None:
        found = self.spellings(version)
        if len(found) > 1:
            raise self.two_spellings(version)
        return Version(version=version, location=found[0]) if found else None

    def _newest_listed(self) -> Version | None:
        with open_directory(self._io, self.location, "list") as (store, path):
            versions = [version_of(name) for name in store.names(path, "v")]
        newest = max((version for version in versions if version is not None), default=None)
        return self._file_of(newest) if newest is not None else None

    def read_hint(self) -> int | None:
        """Return the version in the hint, or None if there is none."""
        try:
            text = self._io.read(f"{self.location}/{_HINT}", length=_MOST_HINT_BYTES).strip()
        except NotFoundError:
            return None
        except IcebergError as error:
            log.warning("could not read %s/%s: %s", self.location, _HINT, error)
            return None
        return int(text) if text.isdigit() and len(text) <= 18 else None

    def _replace_hint(self, data: bytes) -> None:
        with open_directory(self._io, self.location, "write the hint in") as (store, path):
            store.replace(f"{path}/{_HINT}", data)
        self.forget_checksum(f"{self.location}/{_HINT}")


def version_of(name: str) -> int | None:
    """Return the version in a file's name, or None if it has none."""
    match = _VERSION.fullmatch(name)
    return int(match[1]) if match else None


def base_version(base: TableState) -> int:
    """Return the version that a state of a table is; `InvalidInputError` for one of another catalog."""
    if not isinstance(base.token, int):
        raise InvalidInputError(
            f"{base.metadata_location} is not a version of a Hadoop catalog's table, load the table from it"
        )
    return base.token
