"""Eight processes and one table, on every catalog against its real service: 1,000 appends make 1,000 snapshots.

The whole takes minutes and runs with `make stress`. A short form runs with the other tests: one of each way to commit,
those of its other stores and versions with `make stress` too.
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
        short: commits of each writer in the form that is short.
    """

    properties: Maker
    marks: tuple[str, ...] = ("services",)
    short: int = 5


OTHER = ("services", "long")
PLACES = {
    "sqlite": Place(properties=places.sqlite, marks=()),
    "hadoop-local": Place(properties=places.local, marks=()),
    "postgresql": Place(properties=places.postgresql),
    "mariadb": Place(properties=places.mariadb, marks=OTHER),
    "hadoop-hdfs": Place(properties=places.hdfs, short=3),
    "hadoop-webhdfs": Place(properties=places.webhdfs, short=2, marks=OTHER),
    "hadoop-s3": Place(properties=places.s3),
    "hadoop-gcs": Place(properties=places.gcs, marks=OTHER),
    "hadoop-adls": Place(properties=places.adls, marks=OTHER),
    "rest": Place(properties=places.rest),
    "rest-seaweedfs": Place(properties=places.rest_seaweedfs, marks=OTHER),
    "nessie": Place(properties=places.nessie),
    "glue": Place(properties=places.glue),
    "hive-4-locks": Place(properties=places.hive("4", LOCKS), short=2, marks=OTHER),
    "hive-4-no-locks": Place(properties=places.hive("4", NO_LOCKS)),
    "hive-2.3.10-locks": Place(properties=places.hive("2_3_10", LOCKS), short=3, marks=OTHER),
    "hive-2.3.10-no-locks": Place(properties=places.hive("2_3_10", NO_LOCKS), marks=OTHER),
    "hive-2.3.9-locks": Place(properties=places.hive("2_3_9", LOCKS), short=3, marks=OTHER),
}


def sizes() -> Iterator[Any]:
    """A short form of each race, and the whole."""
    for name, place in PLACES.items():
        # Those of one server run on one worker.
        server = name.removesuffix("-locks").removesuffix("-no")
        marks = [*(getattr(pytest.mark, mark) for mark in place.marks), pytest.mark.xdist_group(f"races-{server}")]
        yield pytest.param(name, place.short, id=f"{name}-{place.short}", marks=marks)
        yield pytest.param(name, ALL, id=f"{name}-{ALL}", marks=[*marks, pytest.mark.long])


class TestEightWriters:
    """Each of eight processes appends to one table: no row is lost, none is doubled, no file is left over."""

    @pytest.mark.sample(2)
    @pytest.mark.parametrize(("place", "commits"), list(sizes()))
    def test_every_append_lands_once(self, request, tmp_path, place, commits):
        table = race(PLACES[place].properties(request, tmp_path), commits=commits, table=f"db.t{uuid.uuid4().hex[:8]}")
        assert len(table.snapshots()) == WRITERS * commits
