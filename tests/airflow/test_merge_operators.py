"""Merges and updates under `dag.test()`, in this process."""

import json

import pyarrow as pa
import pytest

from airflow_iceberg.operators import IcebergMergeOperator, IcebergUpdateOperator
from tests.airflow.conftest import Lake, dying, operators

merge = operators(IcebergMergeOperator, task_id="merge", spark_conn_id=None)
update = operators(IcebergUpdateOperator, task_id="update", spark_conn_id=None)
CLAUSES = [
    "when matched and source.op = 'd' then delete",
    "when matched and source.n > $least then update set n = source.n",
    "when not matched then insert (id, n) values (source.id, source.n)",
]


@pytest.fixture
def table(lake: Lake) -> Lake:
    made = lake.create(schema={"id": "long", "n": "long"})
    made.append(pa.table({"id": range(10), "n": range(10)}))
    return lake


def numbers(lake: Lake) -> dict[int, int]:
    return {row["id"]: row["n"] for row in lake.load().scan().to_arrow().to_pylist()}


class TestMerges:
    """A source changes the rows that it matches, and the task says how many."""

    @pytest.mark.costly
    def test_of_files_with_templates_in_all_words(self, table, run_task):
        path = table.folder / "feed.csv"
        path.write_text("id,n,op\n1,0,d\n2,20,u\n3,1,u\n77,770,i\n")
        run = run_task(
            merge,
            files=str(path),
            on=["{{ params.key }}"],
            clauses=CLAUSES,
            clause_params={"least": "{{ params.least | int }}"},
            mode="{{ params.mode }}",
            params={"key": "id", "least": 1, "mode": "merge-on-read"},
            snapshot_properties={"day": "{{ ds }}"},
        )
        result = run.result("merge")
        counts = [result[name] for name in ("outcome", "added_records", "updated_records", "deleted_records")]
        assert counts == ["committed", 1, 1, 1]
        assert numbers(table) == {**{n: n for n in range(10) if n != 1}, 2: 20, 77: 770}
        assert table.load().current_snapshot().summary["day"] == "2026-01-01"
        assert not table.staged()

    @pytest.mark.services
    def test_an_upsert_of_a_query_over_an_input(self, table, run_task):
        table.create("s.new", {"id": "long", "n": "long"}).append(pa.table({"id": [5, 50], "n": [500, 5]}))
        run = run_task(merge, sql="select * from new", inputs={"new": "s.new"}, on=["id"], upsert=True)
        result = run.result("merge")
        assert (result["added_records"], result["updated_records"]) == (1, 1)
        assert list(json.loads(table.load().current_snapshot().summary["airflow.inputs"])) == ["new"]
        assert numbers(table) == {**{n: n for n in range(10)}, 5: 500, 50: 5}

    @pytest.mark.services
    def test_a_task_that_died_after_its_commit_finds_it(self, table, run_task):
        dies = dying(IcebergMergeOperator, lambda: table.load().append(pa.table({"id": [60], "n": [60]})))
        options = {"task_id": "merge", "table": "s.t", "spark_conn_id": None, "retries": 1}
        words = {"sql": "select 3 as id", "on": ["id"], "clauses": "when matched then update set n = target.n + 1"}
        result = run_task(dies, **words, **options).result("merge")
        assert (result["outcome"], result["updated_records"]) == ("found", 1)
        assert numbers(table) == {**{n: n for n in range(10)}, 3: 4, 60: 60}

    @pytest.mark.services
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ({"upsert": True}, "exactly one of files, sql and python_callable is needed, got none"),
            ({"sql": "select 1 as id"}, "a merge needs either clauses or upsert=True, and not both"),
            (
                {"sql": "select 1 as id", "upsert": True},
                "needs all columns of the table in the source, which lacks 'n'",
            ),
            ({"sql": "select 1 as id, 2 as n from nope", "upsert": True}, "nope"),
            ({"sql": "select null::bigint as id, 2 as n", "upsert": True}, "a null key"),
        ],
    )
    def test_what_goes_wrong_fails_at_once(self, table, run_task, words, message):
        run = run_task(merge, on=["id"], retries=2, **words)
        assert run.state == "failed"
        assert message in str(run.failures)
        assert len(table.load().snapshots()) == 1


class TestUpdates:
    """Rows get new values, once."""

    @pytest.mark.services
    def test_with_templates_and_an_input(self, table, run_task):
        table.create("s.blocked", {"k": "long"}).append(pa.table({"k": [1, 2, 3]}))
        run = run_task(
            update,
            set={"n": "n + $more"},
            where="id in (select k from blocked) and id > $least",
            sql_params={"more": 100, "least": "{{ params.least | int }}"},
            inputs={"blocked": "s.blocked"},
            params={"least": 1},
        )
        result = run.result("update")
        assert (result["outcome"], result["updated_records"], result["carried_records"]) == ("committed", 2, 8)
        assert numbers(table) == {**{n: n for n in range(10)}, 2: 102, 3: 103}

    @pytest.mark.services
    def test_a_value_of_a_placeholder_is_never_sql(self, table, run_task):
        run = run_task(
            update, set={"n": "0"}, where="id = $id", sql_params={"id": "{{ params.id }}"}, params={"id": "0 or 1=1"}
        )
        assert run.state == "failed"
        assert numbers(table) == {n: n for n in range(10)}

    @pytest.mark.services
    def test_a_task_that_died_after_its_commit_finds_it(self, table, run_task):
        dies = dying(IcebergUpdateOperator, lambda: None)
        options = {"task_id": "update", "table": "s.t", "spark_conn_id": None, "retries": 1}
        result = run_task(dies, set={"n": "n + 1"}, where="id = 3", **options).result("update")
        assert (result["outcome"], result["updated_records"]) == ("found", 1)
        assert numbers(table)[3] == 4
