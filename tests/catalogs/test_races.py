"""Eight processes and one table, on every catalog against its real service: 1,000 appends make 1,000 snapshots.

Where a thousand commits take minutes, the short form runs with the other tests, and the whole with `make stress`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.catalogs import places
from tests.catalogs.hive_contract import NO_LOCKS
from tests.catalogs.places import LOCKS, Maker
from tests.catalogs.races import WRITERS, race

ALL = 125  # commits of each writer


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a race is run.

    Attributes:
        properties: makes those of a catalog without tables, from the test's request and directory.
        marks: of its tests.
        short: commits of each writer that run with the other tests; None: all of them do.
        of_all: marks of the whole thousand.
    """

    properties: Maker
    marks: tuple[str, ...] = ("services",)
    short: int | None = None
    of_all: tuple[str, ...] = ()


PLACES = {
    "sqlite": Place(properties=places.sqlite, marks=(), short=10, of_all=("services",)),
    "hadoop-local": Place(properties=places.local, marks=(), short=10, of_all=("services",)),
    "postgresql": Place(properties=places.postgresql),
    "mariadb": Place(properties=places.mariadb, short=40, of_all=("long",)),
    "hadoop-hdfs": Place(properties=places.hdfs, short=12, of_all=("long",)),
    "hadoop-webhdfs": Place(properties=places.webhdfs, short=5, of_all=("long",)),
    "hadoop-s3": Place(properties=places.s3, short=12, of_all=("long",)),
    "hadoop-gcs": Place(properties=places.gcs, short=12, of_all=("long",)),
    "hadoop-adls": Place(properties=places.adls, short=12, of_all=("long",)),
    "rest": Place(properties=places.rest, short=20, of_all=("long",)),
    "rest-seaweedfs": Place(properties=places.rest_seaweedfs, short=12, of_all=("long",)),
    "nessie": Place(properties=places.nessie),
    "glue": Place(properties=places.glue),
    "hive-4-locks": Place(properties=places.hive("4", LOCKS), short=8, of_all=("long",)),
    "hive-4-no-locks": Place(properties=places.hive("4", NO_LOCKS)),
    "hive-2.3.10-locks": Place(properties=places.hive("2_3_10", LOCKS), short=8, of_all=("long",)),
    "hive-2.3.10-no-locks": Place(properties=places.hive("2_3_10", NO_LOCKS), short=12, of_all=("long",)),
    "hive-2.3.9-locks": Place(properties=places.hive("2_3_9", LOCKS), short=3, of_all=("long",)),
}


def sizes() -> Iterator[Any]:
    """A short form of each race that needs one, and the whole."""
    for name, place in PLACES.items():
        # Those of one server run on one worker.
        server = name.removesuffix("-locks").removesuffix("-no")
        marks = [*(getattr(pytest.mark, mark) for mark in place.marks), pytest.mark.xdist_group(f"races-{server}")]
        if place.short is not None:
            yield pytest.param(name, place.short, id=f"{name}-{place.short}", marks=marks)
        whole = [getattr(pytest.mark, mark) for mark in place.of_all]
        yield pytest.param(name, ALL, id=f"{name}-{ALL}", marks=[*marks, *whole, pytest.mark.slow])


class TestEightWriters:
    """Each of eight processes appends to one table: no row is lost, none is doubled, no file is left over."""

    @pytest.mark.sample(2)
    @pytest.mark.parametrize(("place", "commits"), list(sizes()))
    def test_every_append_lands_once(self, request, tmp_path, place, commits):
        table = race(PLACES[place].properties(request, tmp_path), commits=commits, table=f"db.t{uuid.uuid4().hex[:8]}")
        assert len(table.snapshots()) == WRITERS * commits
