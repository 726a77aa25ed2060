"""Not one call outside of a local warehouse of Paimon tables: links at every level, spellings, and forged names."""

import inspect
import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.hooks.paimon import PaimonConfig
from airflow_iceberg.paimon.index_manifests import HASH
from airflow_iceberg.paimon.new_snapshot import PaimonCondition, look
from airflow_iceberg.paimon.system_tables import PaimonInspection
from airflow_iceberg.paimon.table import PaimonTable
from airflow_iceberg.storage import load_file_io
from tests.support.gate_verbs import each_of
from tests.support.kernel_watch import KernelWatch
from tests.support.local_calls import ForeignCallError, LocalCalls
from tests.support.paimon_tables import table as reference
from tests.support.paimon_writer import PaimonBuilder
from tests.support.sampling import ALL, SEED

NAMES = ("dv_append", "refs", "pk_dynamic", "written")
LINKED = (
    "..", ".", "snapshot", "schema", "manifest", "index", "tag", "branch", "bucket-0", "snapshot/LATEST",
    "a snapshot", "a manifest", "a data file",
)  # fmt: skip
FORGED = ("baseManifestList", "deltaManifestList", "changelogManifestList", "indexManifest", "statistics")
# Where a forged name leads, from the folder that it is in, its own file and the same file in the foreign folder.
LEADS = (
    "../../../../foreign/{table}/{file}", "{foreign}/{file}", "/{foreign}/{file}", "%2e%2e/%2e%2e/{file}",
    "x/../../../../../foreign/{table}/{file}", "./../../../../foreign/{table}/{file}", "in/{name}",
)  # fmt: skip
SPELLINGS = ("{}", "file:{}", "file://{}", "FILE://LOCALHOST{}", "//{}", "/.{}", "{}/.", "{}/x/..", "{}/../{name}")
HONEST = ("{}", "file:{}", "file://{}", "//{}", "/.{}")
THROUGH = ("warehouse", "lake", "outer/warehouse")


@dataclass(frozen=True)
class Attack:
    """What an attacker does; see the lists above. The spelling is that of the location by which the table is opened."""

    table: str = "dv_append"
    linked: str | None = None
    forged: str | None = None
    leads: str = LEADS[0]
    spelling: str | None = None
    through: str = "warehouse"


def everything(table: PaimonTable) -> int:
    """Read all that a table has; return how many of its reads have worked."""
    done = each_of(
        table.schema_ids, table.schemas, table.latest_snapshot_id, table.earliest_snapshot_id, table.snapshot_ids,
        table.latest_snapshot, table.tag_names, table.tags, table.branches, lambda: table.has_tag("v1"),
        lambda: look(table, PaimonCondition(), None),
        *(lambda name=name: getattr(table.inspect, name)() for name in dir(PaimonInspection) if name[0] != "_"),
    )  # fmt: skip
    with suppress(IcebergError):
        for name in table.branches():
            done += each_of(lambda name=name: [*table.branch(name).snapshots()])
    with suppress(IcebergError):
        for number in table.snapshot_ids():
            done += _snapshot(table, number)
    return done


def _snapshot(table: PaimonTable, number: int) -> int:
    snapshot = table.snapshot(number)
    done = each_of(
        *(lambda kind=kind: table.manifests(snapshot, kind) for kind in ("base", "delta", "changelog")),
        lambda: table.delta_files(snapshot), lambda: table.changelog_files(snapshot),
        lambda: table.statistics(snapshot), lambda: [*table.read_vectors(table.deletion_vectors(snapshot))],
        lambda: [table.hashes(index) for index in table.index_files(snapshot) if index.index_type == HASH],
    )  # fmt: skip
    with suppress(IcebergError):
        for entry in table.live_files(snapshot):
            done += each_of(lambda entry=entry: table.io.read(table.find_data_file(entry)))
    return done


class Lake:
    """A warehouse of Paimon tables, and the folder `foreign` beside it with the same names and files."""

    def __init__(self, home: Path) -> None:
        self.home, self.warehouse, self.foreign = home, home / "warehouse", home / "foreign"
        (self.warehouse / "db.db").mkdir(parents=True)
        for name in NAMES[:-1]:
            shutil.copytree(reference(name).folder, self.warehouse / "db.db" / name)
        builder = PaimonBuilder(load_file_io(), f"{self.warehouse}/db.db/written", fields={"id": "BIGINT"})
        outside = f"{self.foreign}/db.db/written/bucket-0/a.parquet"
        builder.commit([builder.add("a.parquet"), builder.add("b.parquet", _EXTERNAL_PATH=outside)])
        builder.write("bucket-0/a.parquet", b"x")
        shutil.copytree(self.warehouse, self.foreign)
        shutil.copytree(self.warehouse, home / "backup")
        (home / "lake").symlink_to(self.warehouse)
        (home / "outer").symlink_to(home)

    def opened(self, attack: Attack) -> PaimonTable:
        folder = f"{self.home}/{attack.through}"
        config = PaimonConfig(conn_id="c", warehouse=folder, path=None, properties={})
        spelled = attack.spelling and attack.spelling.format(f"{folder}/db.db/{attack.table}", name=attack.table)
        location = config.location(spelled or f"db.{attack.table}")
        return PaimonTable.load(location, config.gated(location, load_file_io()))

    def wrongs(self, attack: Attack) -> list[str]:
        """Let somebody honest read all of an attacked table; return what was touched in the foreign folder."""
        shutil.rmtree(self.warehouse)
        shutil.copytree(self.home / "backup", self.warehouse)
        shutil.rmtree(self.home / "aside", ignore_errors=True)
        if attack.forged is not None:
            self._forge(attack)
        if attack.linked is not None:
            self._link(attack)
        calls, kernel, raised = LocalCalls(self.foreign), KernelWatch(self.foreign), []
        with ExitStack() as stack:
            stack.enter_context(kernel.watching())
            stack.enter_context(calls.watching())
            try:
                everything(self.opened(attack))
            except (IcebergError, ForeignCallError):
                pass
            except Exception as error:
                raised.append(f"raised {error!r}")
        return [f"{attack}: {each}" for each in (*raised, *calls.touched, *kernel.seen)]

    def _link(self, attack: Attack) -> None:
        folder = self.warehouse / "db.db" / attack.table
        singles = {"a snapshot": "snapshot/snapshot-*", "a manifest": "manifest/*", "a data file": "**/bucket-*/*"}
        linked = attack.linked or "."
        found = sorted(folder.glob(singles[linked])) if linked in singles else [folder / linked]
        place = Path(os.path.normpath(found[0]))
        (self.home / "aside").mkdir()
        if place.exists():
            place.rename(self.home / "aside" / place.name)
        place.symlink_to(self.foreign / place.relative_to(self.warehouse))

    def _forge(self, attack: Attack) -> None:
        table = f"db.db/{attack.table}"
        path = max((self.warehouse / table / "snapshot").glob("snapshot-*"))
        document = json.loads(path.read_text())
        folder = "statistics" if attack.forged == "statistics" else "manifest"
        name = document.get(attack.forged) or document["baseManifestList"]
        facts = {"table": table, "foreign": str(self.foreign / table), "file": f"manifest/{name}", "name": name}
        document[attack.forged or ""] = attack.leads.format(**facts)
        (self.warehouse / table / folder).mkdir(exist_ok=True)
        (self.warehouse / table / folder / "in").symlink_to(self.foreign / table / "manifest")
        path.write_text(json.dumps({key: value for key, value in document.items() if not key.endswith("Size")}))


def attacks() -> Iterator[Attack]:
    links = product(NAMES, LINKED, (None, *SPELLINGS), THROUGH)
    yield from (Attack(table=name, linked=link, spelling=form, through=way) for name, link, form, way in links)
    forged = product(NAMES, FORGED, LEADS, (None, *SPELLINGS))
    yield from (Attack(table=name, forged=what, leads=leads, spelling=form) for name, what, leads, form in forged)


# The first ones are for every change of this package.
WORST = (
    Attack(linked="."),
    Attack(forged="baseManifestList"),
    Attack(linked="index", through="lake"),
    Attack(linked="manifest", spelling="file://{}"),
    Attack(table="refs", forged="statistics", leads="in/{name}"),
    Attack(table="written"),
)


def test_the_worst_of_them(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "home")
    assert [wrong for attack in WORST[:3] for wrong in lake.wrongs(attack)] == []


@pytest.mark.costly
def test_no_call_is_outside(tmp_path: Path) -> None:
    lake, all_of_them = Lake(tmp_path / "home"), [*attacks()]
    some = all_of_them if ALL else random.Random(SEED).sample(all_of_them, 150)
    wrong = [wrong for attack in (*WORST, *some) for wrong in lake.wrongs(attack)]
    assert wrong == [], "\n".join(wrong[:20])


@pytest.mark.costly
def test_an_honest_table_is_read(tmp_path: Path) -> None:
    """Otherwise nothing would be proven above: also through links above the warehouse, and in other spellings."""
    lake = Lake(tmp_path / "home")
    for name in NAMES:
        counts = {
            everything(lake.opened(Attack(table=name, spelling=form, through=way)))
            for form, way in product((None, *HONEST), THROUGH)
        }
        assert len(counts) == 1, name
        assert counts.pop() > 20, name


def test_every_verb_is_tried() -> None:
    """Who adds a verb to Paimon tables adds it to `everything`, or here if it reads nothing by itself."""
    plain = {"load", "schema", "find_snapshot", "tag", "filter_of", "check_partition", "path_rules", "inspect", "stats"}
    plain |= {"data_file_location", "index_file_location"}
    used = set(re.findall(r"\.([a-z]\w*)", inspect.getsource(everything) + inspect.getsource(_snapshot)))
    assert {name for name in dir(PaimonTable) if name[0] != "_"} - used - plain == set()
