"""Inputs for a target: samples of `corpus`, changed by what knows their form.

An input is told by its target, the seed and its number alone, so that a finding can be made again.
"""

import gzip
import json
import random
from functools import cache
from pathlib import Path

from airflow_iceberg.format.avro.container import MAGIC as AVRO
from airflow_iceberg.table import Table
from tests.fuzz.containers import BOMB_SIZES, bomb, mutate_avro, mutate_vector
from tests.fuzz.documents import dumped, mutate_bytes, mutate_document
from tests.support import golden

HERE = Path(__file__).parent
BYTES_ALONE = 0.15
"""Share of inputs that are changed without regard to their form."""


@cache
def corpus(target: str) -> tuple[bytes, ...]:
    if target == "table":
        return tuple(_files_of_tables())
    return tuple(path.read_bytes() for path in sorted((HERE / "corpus" / target).iterdir()))


def _files_of_tables() -> list[bytes]:
    """Return the files of metadata of the reference tables as they are, with the names that say where they belong."""
    found = []
    for name, known in sorted(golden.tables().items()):
        if known.is_refused:
            continue
        table = Table.from_metadata(known.metadata_location, known.properties, io=known.io)
        locations = [table.metadata_location]
        if (snapshot := table.current_snapshot()) is not None:
            locations += [snapshot.manifest_list, *table.inspect.manifests()["path"].to_pylist()]
        for location in filter(None, locations):
            content = known.io.read(location)
            if len(content) < 20_000:
                found.append(f"{name}:{location.rpartition('/')[2]}".encode() + b"\0" + content)
    return found


def crashers(target: str) -> tuple[Path, ...]:
    """Return the inputs that once broke a rule."""
    folder = HERE / "crashers" / target
    return tuple(sorted(folder.iterdir())) if folder.is_dir() else ()


def make_input(target: str, seed: int, number: int) -> bytes:
    chance = random.Random(f"{target} {seed} {number}")
    samples = corpus(target)
    return mutate(target, chance.choice(samples), chance, chance.choice(samples))


def mutate(target: str, data: bytes, chance: random.Random, other: bytes = b"") -> bytes:
    """Return a sample changed in one of the ways that fit the target."""
    if target == "table":
        place, _, content = data.partition(b"\0")
        form = "metadata" if place.endswith(b".json") else "manifest"
        return place + b"\0" + mutate(form, content, chance, other.partition(b"\0")[2])
    if chance.random() < BYTES_ALONE:
        return mutate_bytes(data, chance, other)
    if target == "metadata":
        return _mutate_metadata(data, chance, other)
    if target == "vector":
        return mutate_vector(data, chance, other)
    if data[:4] == AVRO:
        return mutate_avro(data, chance, other)
    return mutate_bytes(data, chance, other)


def _mutate_metadata(data: bytes, chance: random.Random, other: bytes) -> bytes:
    try:
        document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (ValueError, OSError, EOFError, RecursionError):
        return mutate_bytes(data, chance, other)
    result = dumped(mutate_document(document, chance), chance)
    if chance.random() < 0.05:
        result = gzip.compress(result, 1)
        if chance.random() < 0.05:
            result += bomb("gzip", chance.choice(BOMB_SIZES))
    return result
