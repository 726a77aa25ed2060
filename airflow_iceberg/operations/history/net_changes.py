"""What the snapshots of a run have changed in the end: the files that they added and removed, without what they undid.

Files of an earlier run of the same task that its later run has replaced count as its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from airflow_iceberg.commit.conflicts import ChangedFiles
from airflow_iceberg.commit.runs.names import token_of
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.format.manifests.entries import EntryStatus, ManifestContent, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.operations.history.targets import Targets
from airflow_iceberg.plan.deletes import referenced_file
from airflow_iceberg.storage.base import FileIO

Identity = tuple[str, int | None]
Entries = dict[Identity, ManifestEntry]


@dataclass(kw_only=True, slots=True)
class NetChanges:
    """The files that a run has added and removed, by their identities.

    Attributes:
        added, removed: data files.
        added_deletes, removed_deletes: delete files of data files that are not the run's own.
    """

    added: Entries = field(default_factory=dict)
    removed: Entries = field(default_factory=dict)
    added_deletes: Entries = field(default_factory=dict)
    removed_deletes: Entries = field(default_factory=dict)

    @property
    def only_adds(self) -> bool:
        """Whether the run has changed no rows of others."""
        return not (self.removed or self.added_deletes or self.removed_deletes)


def net_changes(io: FileIO, metadata: TableMetadata, targets: Targets, files: ChangedFiles) -> NetChanges:
    """Return what a run has changed in the end.

    Raises:
        IncompatibleChangeError: the snapshot before one that removed files has expired.
    """
    net = NetChanges()
    own: set[str] = set()
    for snapshot in targets.snapshots:
        own |= {entry.data_file.file_path for entry in files.of(snapshot, EntryStatus.ADDED, ManifestContent.DATA)}
        for content, added, removed in (
            (ManifestContent.DATA, net.added, net.removed),
            (ManifestContent.DELETES, net.added_deletes, net.removed_deletes),
        ):
            gone = {entry.data_file.identity for entry in files.of(snapshot, EntryStatus.DELETED, content)}
            others = {identity for identity in gone if added.pop(identity, None) is None}
            removed |= _entries_before(io, metadata, snapshot, others, content)
            for entry in files.of(snapshot, EntryStatus.ADDED, content):
                if removed.pop(entry.data_file.identity, None) is None:
                    added[entry.data_file.identity] = entry
    own |= {path for path, _ in net.removed if token_of(path) in targets.tokens}
    for identity in [one for one in net.removed if one[0] in own]:
        del net.removed[identity]
    for deletes in (net.added_deletes, net.removed_deletes):
        for identity in [one for one, entry in deletes.items() if referenced_file(entry.data_file) in own]:
            del deletes[identity]
    return net


def _entries_before(
    io: FileIO, metadata: TableMetadata, snapshot: Snapshot, wanted: Collection[Identity], content: ManifestContent
) -> Entries:
    """Return the entries of removed files as they were: entries of removed files may lack numbers and row ids."""
    if not wanted:
        return {}
    parent = metadata.snapshot(snapshot.parent_snapshot_id or 0)
    if parent is None:
        raise IncompatibleChangeError(
            f"snapshot {snapshot.snapshot_id} has removed files, and the snapshot before it has expired, so that they "
            f"cannot be restored; nothing was changed; write the rows again"
        )
    before = [entry for entry in live_entries(io, parent, content) if entry.data_file.identity in wanted]
    found = {entry.data_file.identity: entry for entry in before}
    if len(found) < len(before):
        raise IncompatibleChangeError(
            f"snapshot {snapshot.snapshot_id} has removed files that the snapshot before it had twice, so that it is "
            f"not known how often their rows were there; nothing was changed; write the rows again"
        )
    missing = [path for path, offset in wanted if (path, offset) not in found]
    if missing:
        raise IncompatibleChangeError(
            f"snapshot {snapshot.snapshot_id} says that it has removed file {missing[0]}, which the snapshot before it "
            f"does not have; nothing was changed"
        )
    return {identity: found[identity] for identity in wanted}


def live_entries(io: FileIO, snapshot: Snapshot, content: ManifestContent) -> Iterator[ManifestEntry]:
    """Yield the live files of a snapshot."""
    for manifest in read_manifests(io, snapshot):
        if manifest.content is content and manifest.may_have_live_files:
            yield from (entry for entry in read_entries(io, manifest) if entry.is_live)
