"""Not one call outside of a local warehouse, in every catalog: links at every level, and every spelling of a path.

The calls are those of the operating system (`support.local_calls`), and what the kernel tells of them
(`support.kernel_watch`): of libraries and other processes, too.
"""

import random
import subprocess
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.table import Table
from tests.catalogs import places
from tests.support.kernel_watch import IS_THERE, KernelWatch
from tests.support.linked_lake import FORGED, LINKED, OPERATIONS, SPELLINGS, TARGETS, THROUGH, Attack, Lake
from tests.support.sampling import ALL, SEED

LOCAL: dict[str, Any] = {
    "sql": places.sqlite,
    "hadoop": places.local,
    "memory": lambda request, path: {"type": "memory"},
    "rest": lambda request, path: {"type": "stand-in"},
}
SERVED = {"glue": places.glue, "nessie": places.nessie, "hive": places.hive("2_3_10", places.LOCKS)}


def attacks() -> list[Attack]:
    """Return each link, each forged location in each spelling, and both together."""
    alone = [Attack(linked=linked, through=through) for linked, through in product(LINKED, THROUGH)]
    forged = [
        Attack(forged=forged, target=target, spelling=spelling, through=through)
        for forged, target, spelling, through in product(FORGED, TARGETS, SPELLINGS, THROUGH)
    ]
    both = [
        Attack(linked=linked, forged=forged, spelling=spelling)
        for linked, forged, spelling in product(LINKED, FORGED, SPELLINGS)
    ]
    return [*alone, *forged, *both]


def chosen(seed: str, count: int) -> Iterator[tuple[Attack, str]]:
    """Yield cases, a link alone in every third."""
    chance = random.Random(f"{SEED} {seed}")
    everything, links = attacks(), [each for each in attacks() if each.forged is None]
    for number in range(count if not ALL else count * 10):
        yield chance.choice(everything if number % 3 else links), chance.choice(sorted(OPERATIONS))


def tried(lake: Lake, cases: Any) -> list[str]:
    with closing(lake):
        return [wrong for attack, operation in cases for wrong in lake.wrongs(attack, operation)]


# One of each kind, for every change of this package.
WORST = (
    (Attack(linked="namespace"), "purge"),
    (Attack(linked="data"), "orphans"),
    (Attack(linked="a data file"), "compact"),
    (Attack(forged="location", target="a link to foreign", spelling="FILE://LOCALHOST{}"), "purge"),
    (Attack(forged="write.data.path", target="foreign", spelling="{}/x/.."), "append"),
    (Attack(forged="location", target="links into victim"), "orphans"),
    (Attack(forged="data file", target="a link to own", spelling="file://{}/./"), "orphans"),
    (Attack(forged="manifest list", target="own", spelling="//{}", through="outer/warehouse"), "expire"),
)


@pytest.mark.parametrize("kind", ["memory", "rest"])
def test_the_worst_of_them(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    assert tried(Lake(tmp_path / "home", LOCAL[kind](request, tmp_path)), WORST[::2] if kind == "rest" else WORST) == []


@pytest.mark.costly
@pytest.mark.parametrize("kind", LOCAL)
def test_no_call_is_outside(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "home", LOCAL[kind](request, tmp_path))
    wrong = tried(lake, [*WORST, *chosen(kind, 40)])
    assert wrong == [], "\n".join(wrong[:20])


@pytest.mark.services
@pytest.mark.parametrize("kind", SERVED)
def test_with_a_server(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "home", SERVED[kind](request, tmp_path / "home"))
    wrong = tried(lake, [*WORST, *chosen(kind, 60)])
    assert wrong == [], "\n".join(wrong[:20])


@pytest.mark.costly
@pytest.mark.parametrize("kind", LOCAL)
def test_every_operation_works_without_an_attack(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Otherwise nothing would be proven above: also where a link is above the warehouse, or the warehouse itself."""
    failed = []
    lake = Lake(tmp_path / "home", LOCAL[kind](request, tmp_path))
    with closing(lake):
        for through, operation in product(THROUGH if kind == "sql" else THROUGH[:1], OPERATIONS):
            lake.reset()
            try:
                OPERATIONS[operation](Table.load(lake.opened("file://{}", through), "db.t"))
            except Exception as error:
                failed.append(f"{through}, {operation}: {type(error).__name__}: {error}")
    assert failed == []


@pytest.mark.skipif(not IS_THERE, reason="the kernel does not tell")
def test_the_kernel_tells_of_other_programs(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").write_text("x")
    watch = KernelWatch(tmp_path)
    with watch.watching():
        pass
    assert watch.seen == []
    with watch.watching():
        subprocess.run(["cat", tmp_path / "inner" / "a"], check=True, capture_output=True)
    assert f"open {tmp_path}/inner/a" in watch.seen
