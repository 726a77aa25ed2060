"""Not one call outside of a local warehouse, in every catalog: links at every level, and every spelling of a path.

The calls are those of the operating system (`support.local_calls`), and what the kernel tells of them
(`support.kernel_watch`): of libraries and other processes, too.
"""

import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg import operators as operators_package
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.table import Table
from tests.catalogs import places
from tests.services.iceberg_rest import IcebergRest
from tests.support.gate_verbs import HARMLESS, OPERATIONS, OPERATORS, SPOTTED, TRIED, Spot, public_verbs, refused
from tests.support.kernel_watch import IS_THERE, KernelWatch
from tests.support.linked_lake import FORGED, LINKED, SPACES, SPELLINGS, TARGETS, THROUGH, Attack, Lake
from tests.support.sampling import ALL, SEED

LOCAL: dict[str, Any] = {
    "sql": places.sqlite,
    "hadoop": places.local,
    "memory": lambda request, path: {"type": "memory"},
    "rest": lambda request, path: {"type": "stand-in"},
}
SERVED = {"glue": places.glue, "nessie": places.nessie, "hive": places.hive("2_3_10", places.LOCKS)}


def attacks() -> list[list[Attack]]:
    """Return each link, each forged location in each spelling, each forged namespace, and these with links."""
    links = [Attack(linked=linked, through=through) for linked, through in product(LINKED, THROUGH)]
    forged = [
        Attack(forged=forged, target=target, spelling=spelling, through=through)
        for forged, target, spelling, through in product(FORGED, TARGETS, SPELLINGS, THROUGH)
    ]
    both = [
        Attack(linked=linked, forged=forged, spelling=spelling)
        for linked, forged, spelling in product(LINKED, FORGED, SPELLINGS)
    ]
    spaces = [
        Attack(space=space, target=target, spelling=spelling, through=through)
        for space, target, spelling, through in product(SPACES, TARGETS, SPELLINGS, THROUGH)
    ]
    linked_spaces = [
        Attack(space=space, linked=linked, target=target, spelling=spelling)
        for space, linked, target, spelling in product(SPACES, LINKED, TARGETS[2:], SPELLINGS)
    ]
    return [links, [*forged, *both], spaces, linked_spaces]


def chosen(seed: str, count: int) -> Iterator[tuple[Attack, str]]:
    """Yield cases, of each kind of attack as many."""
    chance = random.Random(f"{SEED} {seed}")
    kinds = attacks()
    for number in range(count if not ALL else count * 10):
        attack, operation = chance.choice(kinds[number % len(kinds)]), chance.choice(sorted(OPERATIONS))
        if operation in SPOTTED and attack.forged is None and attack.space is None:
            attack = replace(attack, target=chance.choice(TARGETS), spelling=chance.choice(SPELLINGS))
        yield attack, operation


def all_spaces(lake: Lake) -> Lake:
    """Check that a catalog expresses each of the forged namespaces, with a table in it that can be read."""
    for space in SPACES:
        lake.reset()
        name, _ = lake.carry_out(Attack(space=space))
        assert (name == "db.t") == (space == "below")
        Table.load(lake.opened("file://{}"), name).scan().to_arrow()
    return lake


# Parts of operations that are refused to honest tables, too.
RIGHTLY_REFUSED = {
    "names": r"table db\.t exists already|^UnsupportedError",
    "orphans in parts": "is not below the table's",
    "refs": "has no snapshot with wap.id",
    "take own": r"orphan\.parquet|list of files to add is empty",
    "take place": r"that the table has already|gc\.enabled=false",
}


def tried(lake: Lake, cases: Any) -> list[str]:
    with closing(lake):
        return [wrong for attack, operation in cases for wrong in lake.wrongs(attack, operation)]


# One of each kind; the first ones for every change of this package.
WORST = (
    (Attack(linked="namespace"), "purge"),
    (Attack(linked="data"), "orphans"),
    (Attack(linked="a data file"), "compact"),
    (Attack(forged="location", target="a link to foreign", spelling="FILE://LOCALHOST{}"), "purge"),
    (Attack(forged="write.data.path", target="foreign", spelling="{}/x/.."), "append"),
    (Attack(forged="location", target="links into victim"), "orphans"),
    (Attack(forged="data file", target="a link to own", spelling="file://{}/./"), "orphans"),
    (Attack(forged="manifest list", target="own", spelling="//{}", through="outer/warehouse"), "expire"),
    (Attack(space="below"), "purge"),
    (Attack(target="a link to foreign"), "take place"),
    (Attack(space="location", target="victim", spelling="file://{}"), "orphans"),
    (Attack(space="name=value", spelling="/.{}"), "expire"),
    (Attack(space="name", linked="data"), "purge"),
    (Attack(target="foreign", spelling="//{}"), "set statistics"),
    (Attack(space="below"), "expire"),
)


@pytest.mark.parametrize("kind", ["memory", "rest"])
def test_the_worst_of_them(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    some = WORST[:9:3] if kind == "rest" else WORST[:9]
    assert tried(Lake(tmp_path / "home", LOCAL[kind](request, tmp_path)), some) == []


@pytest.mark.costly
@pytest.mark.parametrize("kind", LOCAL)
def test_no_call_is_outside(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "home", LOCAL[kind](request, tmp_path))
    wrong = tried(all_spaces(lake), [*WORST, *chosen(kind, 60)])
    assert wrong == [], "\n".join(wrong[:20])


@pytest.mark.services
@pytest.mark.parametrize("kind", SERVED)
def test_with_a_server(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "home", SERVED[kind](request, tmp_path / "home"))
    wrong = tried(all_spaces(lake), [*WORST, *chosen(kind, 60)])
    assert wrong == [], "\n".join(wrong[:20])


@pytest.mark.services
def test_with_the_server_of_iceberg_java() -> None:
    """It reads and writes metadata files itself, and follows links: what this process does is looked at."""
    server = IcebergRest().start()
    try:
        lake = Lake(server.directory, {"type": "rest", "uri": server.uri})
        wrong = tried(all_spaces(lake), [*WORST, *chosen("java", 60)])
    finally:
        server.stop()
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
            refused.clear()
            try:
                OPERATIONS[operation](Table.load(lake.opened("file://{}", through), "db.t"), honest_spot(lake))
            except Exception as error:
                failed.append(f"{through}, {operation}: {type(error).__name__}: {error}")
            if kind == "sql":  # the others do not have all verbs
                expected = RIGHTLY_REFUSED.get(operation, "^$")
                failed += [f"{operation}: {each}" for each in refused if not re.search(expected, each)]
    assert failed == [], "\n".join(failed)


def honest_spot(lake: Lake) -> Spot:
    """Put files into a folder that the connection trusts, and no table is in."""
    folder = lake.warehouse / "landing"
    shutil.copytree(lake.folder / "data" / "day=b", folder / "data" / "day=b")
    names = [str(path.relative_to(folder)) for path in folder.rglob("*.parquet")]
    return Spot(location=folder.as_uri(), names=tuple(names))


def test_every_verb_is_tried_or_says_why_not() -> None:
    """Who adds a verb to tables, catalogs or operators puts it into `support.gate_verbs`."""
    verbs = public_verbs()
    assert {verb for verb in verbs if (verb in TRIED) == (verb in HARMLESS)} == set(), "in none, or in both"
    assert {*TRIED, *HARMLESS} - {*verbs} == set(), "there is no such verb"
    operators = {name for name in operators_package.__all__ if name.endswith("Operator") or name.startswith("iceberg")}
    assert operators == {*OPERATORS}
    assert {*TRIED.values(), *OPERATORS.values()} - {*OPERATIONS} == set(), "there is no such operation"


@pytest.mark.costly
def test_each_verb_is_in_its_operation(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The list above is true: each operation calls the verbs that it stands for."""
    missing = set(TRIED)
    for kind in ("sql", "hadoop", "rest"):  # some have verbs of their own
        lake = Lake(tmp_path / kind, LOCAL[kind](request, tmp_path))
        with closing(lake), pytest.MonkeyPatch.context() as patch:
            seen = _recorded(patch)
            for operation in sorted({TRIED[verb] for verb in missing}):
                lake.reset()
                _, spot = lake.carry_out(Attack())
                seen.clear()
                with suppress(IcebergError):
                    OPERATIONS[operation](Table.load(lake.opened("file://{}"), "db.t"), spot)
                missing -= {verb for verb in seen if TRIED.get(verb) == operation}
    assert missing == set()


def _recorded(patch: pytest.MonkeyPatch) -> list[str]:
    """Let each public verb note that it was called."""
    seen: list[str] = []

    def noting(verb: str, found: Any) -> Any:
        if isinstance(found, property):
            return property(noting(verb, found.fget), found.fset)
        if isinstance(found, classmethod):
            return classmethod(noting(verb, found.__func__))

        @wraps(found)
        def call(*args: Any, **options: Any) -> Any:
            seen.append(verb)
            return found(*args, **options)

        return call

    for verb, owners in public_verbs().items():
        for owner in {base for each in owners for base in each.__mro__ if verb.rpartition(".")[2] in vars(base)}:
            name = verb.rpartition(".")[2]
            patch.setattr(owner, name, noting(verb, vars(owner)[name]))
    return seen


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
