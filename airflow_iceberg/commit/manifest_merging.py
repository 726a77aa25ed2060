"""Manifest merging: which small manifests a commit merges, so that they remain few and most commits remain fast.

Here: the choice, from the rows of the manifest list alone. Not here: writing the merged manifests (`snapshot_writer`).

Differs from Java: Java merges whatever fits into 8 MiB once there are 100 manifests, and the older ones whenever two of
them fit together: on a table of 100,000 files some commits of ten rows rewrite all its metadata. Here a commit merges
only manifests of its own size (within a factor of 8), so that its cost follows what it adds: a hundred small manifests
become one of the next size, a hundred of these one of the size after that, up to the target. Each entry is rewritten a
few times in its life, and a table has fewer than `min_count` manifests of each of a few sizes, besides full ones. See
docs/adr/0012.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_iceberg.format.manifests.entries import ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties

# Differs from Java: sizes of manifests. The smallest is up to 8 KiB, one to a few files; the next is 8 times larger.
SMALLEST_BYTES, SIZE_FACTOR = 8 * 1024, 8


@dataclass(frozen=True, kw_only=True, slots=True)
class MergePolicy:
    """The table's properties `commit.manifest.*`.

    Attributes:
        target_size_bytes: the size of a merged manifest; manifests larger than half of it are not merged.
        min_count: the number of manifests of a size that are merged, unless fewer fill one of the target size.
    """

    enabled: bool = TableProperties.manifest_merge_enabled.default
    target_size_bytes: int = TableProperties.manifest_target_size_bytes.default
    min_count: int = TableProperties.manifest_min_count_to_merge.default

    @classmethod
    def of(cls, metadata: TableMetadata) -> MergePolicy:
        """Read the policy of a table.

        Raises:
            InvalidInputError: a property is not a number.
        """
        properties = TableProperties.of(metadata.properties)
        # No two manifests fit into 0 bytes, and two or more are enough if none are: as in Java.
        target = properties.manifest_target_size_bytes
        return cls(
            enabled=properties.manifest_merge_enabled and target > 0,
            target_size_bytes=target or TableProperties.manifest_target_size_bytes.default,
            min_count=max(2, properties.manifest_min_count_to_merge),
        )


def choose_bins(
    manifests: Sequence[ManifestFile], touched: Iterable[str], policy: MergePolicy
) -> list[tuple[ManifestFile, ...]]:
    """Return the manifests to merge, each tuple into one: at most one tuple for each spec, content and size.

    Args:
        manifests: all manifests of the new snapshot, newest first.
        touched: paths of the manifests that this commit writes; only manifests of their sizes are merged.
    """
    if not policy.enabled:
        return []
    mine = frozenset(touched)
    groups: dict[tuple[int, int, int], list[ManifestFile]] = {}
    for manifest in manifests:
        if manifest.manifest_length <= policy.target_size_bytes // 2 and manifest.key_metadata is None:
            groups.setdefault(_group(manifest), []).append(manifest)
    wanted = {_group(manifest) for manifest in manifests if manifest.manifest_path in mine}
    return [bin for key, group in groups.items() if key in wanted and (bin := _oldest_bin(group, policy))]


def _group(manifest: ManifestFile) -> tuple[int, int, int]:
    size, steps = SMALLEST_BYTES, 0
    while manifest.manifest_length > size:
        size, steps = size * SIZE_FACTOR, steps + 1
    return manifest.partition_spec_id, int(manifest.content), steps


def _oldest_bin(group: Sequence[ManifestFile], policy: MergePolicy) -> tuple[ManifestFile, ...]:
    """Return the oldest manifests that fill one of the target size, or all if there are enough of them."""
    chosen: list[ManifestFile] = []
    total = 0
    for manifest in reversed(group):
        if chosen and total + manifest.manifest_length > policy.target_size_bytes:
            return tuple(reversed(chosen)) if len(chosen) > 1 else ()
        chosen.append(manifest)
        total += manifest.manifest_length
    return tuple(reversed(chosen)) if len(chosen) >= policy.min_count else ()
