"""Others upgrade and alter a table between the plan of work, its commit, and the attempts of it: for every operation.

The cases and what must be true are in `tests.support.meanwhile`. Not here: rows that others change (`test_conflicts`,
`commit.test_concurrent_changes`), and rewrites whose job is overtaken by an upgrade (`test_upgraded_meanwhile`).
"""

import random

import pyarrow as pa
import pytest

from airflow_iceberg.errors import StalePlanError
from airflow_iceberg.table import Table
from tests.support.meanwhile import NAME, OURS, THEIRS, Case, check_table
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog
from tests.support.sampling import ALL, SEED, some

STEPS = [(1, "upgrade to 2"), (1, "upgrade to 3"), (2, "upgrade to 3")]
WHEN = {
    "after the load": {"before": 1},
    "during the job": {"during": 1},
    "at the first attempt": {"attempts": 1},
    "after a lost race": {"attempts": 2},
    "after a lost answer": {"lost": 1},
}


def made(version: int, upgrade: str, ours: str, when: str, layout: str | None = None) -> Case:
    """Return the case of an upgrade at a time; before one that meets the second attempt, others append."""
    work, what = OURS[ours], WHEN[when]
    layout = layout or work.layouts[0]
    others = {name: (upgrade,) for name in ("before", "during") if name in what}
    swaps = [(Fault.CONFLICT, "append to p = 2"), (Fault.CONFLICT, upgrade)][-what.get("attempts", 0) :]
    swaps = swaps if "attempts" in what else []
    swaps += [(Fault.LAND_THEN_RIVAL_THEN_UNKNOWN, upgrade)] if "lost" in what else []
    return Case(version=version, layout=layout, ours=ours, merge_at=3, attempts=tuple(swaps), **others)


class TestTheMinimalExamples:
    """A task has loaded a table of version 1, and then another writer upgrades it: the table stays readable."""

    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize(
        "change",
        [
            lambda table: table.delete("id = 1"),
            lambda table: table.delete("p = 1"),
            lambda table: table.overwrite(rows([7], 1), "p = 1"),
            lambda table: table.overwrite(rows([7], 1), "id = 1", check_filter=False),
            lambda table: table.dynamic_partition_overwrite(rows([7], 1)),
            lambda table: table.append(rows([7], 1)),
        ],
        ids=["delete", "delete of files", "overwrite", "overwrite of rows", "dynamic overwrite", "append"],
    )
    def test_the_table_is_read(self, version, change):
        schema, properties = {"id": "long", "p": "long", "v": "long"}, {"format-version": "1"}
        table = Table.create(MemoryCatalog(), NAME, schema=schema, partition_by=["p"], properties=properties)
        for first in (0, 10, 20):
            table.append(pa.concat_tables([rows([first + 1], 1), rows([first + 2], 2)]))
        old = Table.load(table.catalog, NAME)
        table.alter([{"upgrade_format_version": version}])
        change(old)
        table.refresh()
        kept = {2, 12, 22} & set(table.scan().to_arrow()["id"].to_pylist())
        assert kept == {2, 12, 22}
        check_table(table)

    def test_rows_of_a_branch_of_before_the_upgrade_keep_their_row_ids_or_are_not_published(self):
        """Main has given them row ids since; the files of the branch would give them others."""
        case = Case(version=2, layout="none", ours="publish changed rows", before=("upgrade to 3", "append"))
        assert "new row ids" in case.run(MemoryCatalog())
        assert case.done == ["upgrade to 3", "append", case.done[-1]]

    @pytest.mark.parametrize("others", [("upgrade to 3",), ("append",), ("append", "upgrade to 3")])
    def test_what_carries_no_rows_is_published(self, others):
        case = Case(version=2, layout="p", ours="publish", before=others)
        assert case.run(MemoryCatalog()) == "done"

    def test_a_branch_and_main_that_gave_the_same_rows_different_row_ids(self):
        """Each gives ids to the rows of before the upgrade with its first commit."""
        case = Case(version=2, layout="none", ours="publish changed rows of version 3", before=("append",))
        assert "have other row ids" in case.run(MemoryCatalog())


def rows(numbers, p):
    columns = {"id": numbers, "p": [p] * len(numbers), "v": numbers}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


class TestAnUpgradeMeanwhile:
    """Every operation, at each time: right on the newest version, planned again, or refused; never unreadable."""

    @pytest.mark.sample(40)
    @pytest.mark.parametrize("when", WHEN)
    @pytest.mark.parametrize(("version", "upgrade"), STEPS)
    @pytest.mark.parametrize("ours", OURS)
    def test_it(self, ours, version, upgrade, when):
        if version < OURS[ours].lowest:
            pytest.skip("its format version has no such operation")
        made(version, upgrade, ours, when).run(MemoryCatalog())


@pytest.mark.generated
class TestWhateverOthersChange:
    """Upgrades, columns, fields, orders, properties, refs, maintenance and rows, at random times."""

    @pytest.mark.parametrize("ours", some(OURS, 3))
    def test_it(self, ours):
        for number in range(40 if ALL else 1):
            case = Case.drawn(random.Random(f"{SEED} {ours} {number}"), ours)
            try:
                case.run(MemoryCatalog())
            except Exception as error:
                error.add_note(repr(case))
                raise


class TestWhatASpecMeansMeanwhile:
    """Files were written by a spec that was removed while the job ran: its number may be that of another spec now."""

    def test_they_are_not_committed(self):
        catalog = MemoryCatalog()
        table = Table.create(catalog, NAME, schema={"id": "long", "name": "string"})
        table.append(pa.table({"id": [1], "name": ["a"]}))
        table.alter([{"add_partition_field": "name"}])

        def rival(inner, _):
            other = Table.load(inner, NAME)
            other.alter([{"drop_partition_field": "name"}])
            THEIRS["expire"].do(other.refresh(), {})
            assert [spec.spec_id for spec in other.refresh().metadata.partition_specs] == [0]
            other.alter([{"add_partition_field": "bucket(4, id)"}])
            assert other.metadata.default_spec_id == 1

        ours = Table.load(FaultyCatalog(catalog, [Fault.CONFLICT], rival=rival), NAME)
        with pytest.raises(StalePlanError, match="another one has its number now"):
            ours.append(pa.table({"id": [2], "name": ["b"]}))
        assert table.refresh().scan().to_arrow().to_pylist() == [{"id": 1, "name": "a"}]


class TestAServerThatAppliesChangesToItsNewestState:
    """No requirement of REST names the format version: a change is sent with all that tells of it."""

    @pytest.mark.parametrize("others", ["upgrade to 2", "upgrade to 3", "v is required"])
    @pytest.mark.parametrize("ours", ["append", "delete"])
    def test_the_change_is_made_again_or_refused(self, ours, others):
        attempts = ((Fault.CONFLICT, others),)
        ended = Case(version=1, layout="p", ours=ours, attempts=attempts, is_server=True).run(MemoryCatalog())
        assert ended == "done" or (others == "v is required" and "became required" in ended)


class TestRestoredFilesThatExpireMeanwhile:
    """An undo restores files of an older snapshot; an expiry may delete them between two of its attempts."""

    @pytest.mark.parametrize("is_server", [False, True], ids=["pointer", "server"])
    def test_it_is_refused(self, is_server):
        expiry = {"attempts": ((Fault.CONFLICT, "expire"),), "is_server": is_server}
        case = Case(version=2, layout="p", ours="undo of changed rows", **expiry)
        assert not case.run(MemoryCatalog()).startswith("done")


class TestChangesOverAnUpgrade:
    """A manifest of before the upgrade gets row ids in a later list: its rows are known by them from then on."""

    def test_an_update_after_it_is_an_update(self):
        table = Table.create(
            MemoryCatalog(), NAME, schema={"id": "long", "v": "long"}, properties={"format-version": "2"}
        )
        table.append(pa.table({"id": [0], "v": [0]}))
        start = table.current_snapshot().snapshot_id
        table.append(pa.table({"id": [1, 2], "v": [1, 2]}))
        table.alter([{"upgrade_format_version": 3}])
        table.append(pa.table({"id": [3], "v": [3]}))
        table.update({"v": "v + 10"}, "id = 1", mode="copy-on-write")
        changes = table.changes(start, mode="changelog", compute_updates=True).read_all().to_pylist()
        found = [(row["_change_type"], row["v"]) for row in changes if row["id"] == 1]
        assert found == [("insert", 1), ("update_before", 1), ("update_after", 11)]
