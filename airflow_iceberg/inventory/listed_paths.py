"""Where manifests list some paths, found without making objects of their entries.

The bytes of a manifest without its container hold each path as it is: a search of them takes a tenth of the time of
decoding. It may find a path too often, as the start of a longer one or in a deleted entry, and never too seldom. Not
here: what it means that a table lists a file several times (`commit.attempts.places`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from airflow_iceberg.format.manifests.columns import read_columns, unpack
from airflow_iceberg.format.manifests.entries import DataFile, ManifestFile
from airflow_iceberg.inventory.limited import manifest_limits
from airflow_iceberg.inventory.manifests import read_columns as read_all_columns
from airflow_iceberg.storage.base import FileIO

# With more paths than this a manifest is decoded, which is quicker then than a search for each.
MOST_SEARCHED = 12


def count_paths(io: FileIO, manifest: ManifestFile, paths: Collection[str]) -> Counter[str]:
    """Count how often a manifest may list each path: at least as often as it does.

    Raises:
        FormatError, StorageError, NotFoundError: the manifest cannot be read.
    """
    unpacked = unpack(io.read(manifest.manifest_path), manifest, manifest_limits(io))
    if len(paths) <= MOST_SEARCHED:
        texts = {path: path.encode() for path in paths}
        blocks = [block for _, block in unpacked.blocks]
        return Counter({path: n for path, text in texts.items() if (n := sum(block.count(text) for block in blocks))})
    found: Counter[str] = Counter()
    for part in read_columns([unpacked]):
        listed = [entry.data_file.file_path for entry in part[1]] if isinstance(part, tuple) else part.file_path
        if not frozenset(paths).isdisjoint(listed):
            found.update(path for path in listed if path in paths)
    return found


def find_files(io: FileIO, manifests: Iterable[ManifestFile], paths: Collection[str]) -> Iterator[DataFile]:
    """Yield the live files with some paths, as often as manifests list them.

    Raises:
        FormatError, StorageError, NotFoundError: a manifest cannot be read.
    """
    for part in read_all_columns(io, manifests):
        if isinstance(part, tuple):
            yield from (e.data_file for e in part[1] if e.is_live and e.data_file.file_path in paths)
        else:
            rows = [row for row in np.flatnonzero(part.is_live).tolist() if part.file_path[row] in paths]
            yield from part.files(np.array(rows, np.int64))
