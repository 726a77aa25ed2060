"""What an attempt of a commit keeps for the next ones, and what its content depends on.

A commit is made again on each newer base. What an attempt has read or written is used again, but only if nothing has
changed that it was made from: the format version, the partition spec, the schema, first row ids, the files themselves.
All that is kept is kept in a `Kept`, under a key of all that its content depends on; and the metadata that manifests
depend on is a `Basis`: who makes a manifest gets that, and not the metadata, so that it cannot depend on more.

Not here: files that were staged before the first attempt (`staged`), and what is worked out anew on each base: the
parent, the branch, sequence numbers, the manifest list, summaries, which files are removed and which manifests merged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.storage.base import FileIO

T = TypeVar("T")


class Kept(Generic[T]):
    """Things that were made once, by all that they depend on."""

    def __init__(self) -> None:
        self._things: dict[tuple[Hashable, ...], T] = {}

    def of(self, *depends_on: Hashable, make: Callable[[], T], still: Callable[[T], bool] = lambda _: True) -> T:
        """Return what was made from the same before; make it if there is no such thing.

        Args:
            still: whether a thing can be used although something else has changed; if not, it is made again.
        """
        thing = self._things.get(depends_on)
        if thing is None or not still(thing):
            thing = self._things[depends_on] = make()
        return thing


@dataclass(frozen=True, eq=False, slots=True)
class Basis:
    """What manifests of one partition spec depend on in the metadata. Equal ones of a `Bases` are one object.

    No property decides the codec of manifests, or how many entries they have.

    Attributes:
        table_uuid: that of another table is no reason to keep anything.
        format_version: decides the fields of an entry: sequence numbers from 2 on, row ids from 3 on.
        spec: the spec itself: a number may be used again after its spec was removed.
        schema: a schema with the source columns of the spec, also of one that only old manifests know: it decides the
            types of partition values, and is stored in the manifest.
        folder: where metadata files are written; a property may move them.
    """

    table_uuid: str | None
    format_version: int
    spec: PartitionSpec
    schema: Schema
    folder: str


class Bases:
    """The bases of the attempts of one commit."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._known: Kept[Basis] = Kept()
        self._of_specs: dict[int, Basis] = {}
        self._metadata: TableMetadata | None = None

    def of(self, metadata: TableMetadata, spec_id: int) -> Basis:
        """Return what the table gives the manifests of a spec.

        Raises:
            NotFoundError: no such spec.
            StorageError: a manifest cannot be read that may know a source column which no schema has.
        """
        if metadata is not self._metadata:
            self._metadata, self._of_specs = metadata, {}
        if spec_id not in self._of_specs:
            self._of_specs[spec_id] = self._look(metadata, spec_id)
        return self._of_specs[spec_id]

    def _look(self, metadata: TableMetadata, spec_id: int) -> Basis:
        parts = (
            metadata.table_uuid,
            metadata.format_version,
            metadata.spec(spec_id),
            recover_sources(self._io, metadata, spec_id).schema_of_spec(spec_id),
            metadata_folder(metadata),
        )
        return self._known.of(*parts, make=lambda: Basis(*parts))


class SameFiles:
    """Files as a part of a key: all that is known about each, in their order."""

    def __init__(self, files: tuple[DataFile, ...]) -> None:
        self._files = files

    def __hash__(self) -> int:
        return hash(tuple(file.identity for file in self._files))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameFiles) and self._files == other._files


def metadata_folder(metadata: TableMetadata) -> str:
    """Return the location of a table's metadata files."""
    return (TableProperties.of(metadata.properties).metadata_path or f"{metadata.location}/metadata").rstrip("/")
