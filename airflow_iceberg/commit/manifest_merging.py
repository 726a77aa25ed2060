"""Which small manifests a commit puts together, so that their number stays bounded and most commits stay fast.

Here: the choice, from the rows of the manifest list alone. Not here: writing the merged manifests (`snapshot_writer`).

Iceberg Java merges whatever fits into 8 MiB once 100 manifests are there, and the older ones whenever two of them fit
together: on a table of 100,000 files some commits of ten rows rewrite all its metadata. Here a commit touches only
manifests of the size of its own (within a factor of 8), so that its cost follows what it adds: a hundred small ones
become one of the next size, a hundred of these one of the size after that, up to the target. Every entry is rewritten
a few times in its life, and a table has fewer than `min_count` manifests of each of a few sizes, besides full ones.
See docs/adr/0012.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_iceberg.format.manifests.entries import ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties

# Manifests of up to 8 KiB, of one to a few files each, are the smallest size; each size is 8 times the one before.
SMALLEST_BYTES, SIZE_FACTOR = 8 * 1024, 8


@dataclass(frozen=True, kw_only=True, slots=True)
class MergePolicy:
    """The table's properties `commit.manifest.*`.

    Attributes:
        target_size_bytes: how large a merged manifest becomes; larger ones than half of it are left alone.
        min_count: so many manifests of a size are merged, unless fewer make a full one.
    """

    enabled: bool = TableProperties.manifest_merge_enabled.default
    target_size_bytes: int = TableProperties.manifest_target_size_bytes.default
    min_count: int = TableProperties.manifest_min_count_to_merge.default

    @classmethod
    def of(cls, metadata: TableMetadata) -> MergePolicy:
        """Read the policy of a table.

        Raises:
            InvalidInputError: a property is no number, or below 1.
        """
        properties = TableProperties.of(metadata.properties)
        return cls(
            enabled=properties.manifest_merge_enabled,
            target_size_bytes=properties.manifest_target_size_bytes,
            min_count=max(2, properties.manifest_min_count_to_merge),
        )


def choose_bins(
    manifests: Sequence[ManifestFile], touched: Iterable[str], policy: MergePolicy
) -> list[tuple[ManifestFile, ...]]:
    """Return the manifests to merge, each tuple into one: at most one bin for each spec, content and size.

    Args:
        manifests: all of the new snapshot, newest first.
        touched: paths of those that this commit writes; only manifests of their sizes are looked at.
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
