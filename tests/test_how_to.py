"""The how-to pages tell one story about one table; their snippets run here as they are, in the order of the navigation.

Only the paths of the pages, /landing and /data, are those of a temporary folder. Whatever a snippet defines, the next
one can use. DAGs run through `dag.test()`, without Spark; the page about Spark alone starts one.
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import DAG

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.table import Table
from tests.support.airflow_home import register, xcom
from tests.support.paimon_writer import PaimonBuilder
from tests.test_docs import DOCS, FENCE, PAGES, ROOT

DAY = datetime(2026, 1, 1, tzinfo=UTC)
ORDER = re.findall(r"- how-to/([\w-]+)\.md", (ROOT / ".ci" / "mkdocs.yml").read_text())
SPARK = "read-in-a-spark-job"
# Variables of templates that a run without a logical date does not have.
UNDEFINED = re.compile(r"(?<![.|\w])(?:ds|ts|ds_nodash|ts_nodash\w*|logical_date|data_interval_\w+|prev_\w+_success)\b")


def snippets(page: str) -> list[str]:
    blocks = FENCE.findall((DOCS / "how-to" / f"{page}.md").read_text())
    return [code for language, code in blocks if language == "python"]


@dataclass
class Story:
    """What the snippets have made so far."""

    folder: Path
    told: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)

    @property
    def warehouse(self) -> str:
        return f"file://{self.folder}/data/warehouse"

    @property
    def table(self) -> Any:
        return Table.load(load_catalog("prod", type="hadoop", warehouse=self.warehouse), "sales.orders")

    def count(self, row_filter: str | None = None) -> int:
        return int(self.table.scan(row_filter).count())

    def tell(self, page: str) -> None:
        """Run the snippets of all pages up to this one that did not run yet."""
        for each in ORDER[: ORDER.index(page) + 1]:
            if each not in self.told and each != SPARK:
                for number, code in enumerate(snippets(each)):
                    self.run(f"{each}_{number}", self.here(code))
                self.told.append(each)

    def here(self, code: str) -> str:
        return (
            code.replace('"/landing/', f'"{self.folder}/landing/')
            .replace("file:///data/", f"file://{self.folder}/data/")
            .replace("sqlite:////data/", f"sqlite:///{self.folder}/data/")
        )

    def run(self, name: str, code: str) -> None:
        """Run a snippet; then the DAG that it ends with, or the tasks that it defined outside of a DAG."""
        with DAG(f"how_to_{name}", schedule=None) as dag:
            value = self.value_of(name, code)
        if isinstance(value, dict):
            self.check_result(value)
        elif isinstance(value, DAG):
            self.run_dag(value)
        if dag.task_ids:
            self.run_dag(dag)

    def value_of(self, name: str, code: str) -> Any:
        """Run a snippet and return the value of its last line, None if that is no expression."""
        tree = ast.parse(code)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), self.names)
        return last and eval(compile(ast.Expression(last.value), name, "eval"), self.names)

    def run_dag(self, dag: Any) -> None:
        known = {"quarantine": (self.results.get("clean") or {}).get("quarantine")}
        conf = {param: known[param] for param in dag.params if param in known}
        register(dag)
        run = dag.test(logical_date=DAY, run_after=DAY, run_conf=conf)
        assert run.state == "success", dag.dag_id
        self.results = {task_id: xcom(run, task_id) for task_id in dag.task_ids} | {
            name: result for name, result in self.results.items() if name not in dag.task_ids
        }

    def check_result(self, shown: dict[str, Any]) -> None:
        """The page shows what a task returns: one of those that ran last has returned such a thing."""
        results = [result for result in self.results.values() if isinstance(result, dict)]
        found = next(result for result in results if set(result) == set(shown))
        for name, value in shown.items():
            assert value is None or found[name] is None or type(value) is type(found[name]), name


@pytest.fixture(scope="module")
def story(airflow_db: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    story = Story(folder=tmp_path_factory.mktemp("how-to"))
    landing = story.folder / "landing" / "orders" / "2026-01-01"
    landing.mkdir(parents=True)
    (story.folder / "data").mkdir()
    numbers = range(1, 301)
    columns = {
        "id": list(numbers),
        "day": [date(2026, 1, 1)] * 300,
        "customer_id": [number % 20 for number in numbers],
        "status": ["new"] * 300,
        "amount": [Decimal(number) for number in numbers],
    }
    pq.write_table(pa.table(columns), landing / "part-0.parquet")
    write_feeds(story)
    allowed = {"allowed-locations": [f"{story.folder}/landing"]}
    iceberg = {"conn_type": "iceberg_catalog", "extra": {"type": "hadoop", "warehouse": story.warehouse, **allowed}}
    lake = {
        "conn_type": "iceberg_catalog",
        "host": f"sqlite:///{story.folder}/data/lake.db",
        "extra": {"type": "sql", "catalog_name": "lake", "warehouse": story.warehouse, **allowed},
    }
    paimon = {"conn_type": "paimon", "extra": {"warehouse": str(story.folder / "paimon")}}
    finance = {**iceberg, "extra": {"type": "hadoop", "warehouse": f"file://{story.folder}/finance"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT", json.dumps(iceberg))
        patch.setenv("AIRFLOW_CONN_FINANCE", json.dumps(finance))
        make_rates(finance["extra"])
        patch.setenv("AIRFLOW_CONN_LAKE_CATALOG", json.dumps(lake))
        patch.setenv("AIRFLOW_CONN_PAIMON_DEFAULT", json.dumps(paimon))
        yield story


def make_rates(connection: dict[str, str]) -> None:
    """Make the table of the other connection; only the branch that the page reads has the right rates."""
    catalog = load_catalog("finance", **connection)
    catalog.create_namespace("fx")
    table = Table.create(catalog, "fx.rates", schema={"day": "date", "currency": "string", "rate": "decimal(9,4)"})
    table.append(pa.table({"day": [DAY.date()], "currency": ["CHF"], "rate": [Decimal("100")]}))
    table.create_branch("audited")
    table.append(pa.table({"day": [DAY.date()], "currency": ["USD"], "rate": [Decimal("0.85")]}), branch="audited")


def write_feeds(story: Story) -> None:
    """Make the sources of the page about merges: a feed of CSV files, and two tables."""
    folder = story.folder / "landing" / "changes"
    folder.mkdir(parents=True)
    lines = [f"{n},{n % 3},{'paid' if n <= 5 else 'new'},{n}.50,{'d' if n == 10 else 'u'}" for n in range(1, 11)]
    (folder / "1.csv").write_text("\n".join(["id,customer_id,status,amount,op", *lines]))
    catalog = load_catalog("prod", type="hadoop", warehouse=story.warehouse)
    for namespace in ("feeds", "crm"):
        catalog.create_namespace(namespace)
    columns = {"id": "long", "customer_id": "long", "status": "string", "amount": "decimal(9, 2)"}
    changes = Table.create(catalog, "feeds.changes", schema={**columns, "op": "string", "number": "long"})
    ids, ops = [1, 1, 20, 21], ["u", "u", "u", "d"]
    changes.append(
        pa.table(
            {"id": ids, "customer_id": [1] * 4, "status": ["new", "paid", "new", "new"], "amount": [Decimal(7)] * 4}
            | {"op": ops, "number": [1, 2, 3, 4]}
        )
    )
    Table.create(catalog, "crm.vips", schema={"id": "long"}).append(pa.table({"id": [1]}))


def write_paimon(folder: Path) -> None:
    """Make the Paimon table of the page, of seven snapshots with rows of the day."""
    table = PaimonBuilder(
        load_file_io(),
        f"{folder}/paimon/db.db/orders",
        fields={"id": "BIGINT", "dt": "DATE"},
        partition_keys=["dt"],
        primary_keys=["dt", "id"],
    )
    for number in range(7):
        table.commit([table.add(f"f{number}", partition=((DAY.date() - date(1970, 1, 1)).days,), rows=1)])


class TestTheStory:
    """One table, from its first load to its maintenance."""

    def test_it_is_loaded(self, story):
        story.tell("load-a-table")
        assert story.count() == 300
        assert story.results["load"]["added_records"] == 300

    def test_its_rows_are_changed(self, story):
        story.tell("change-rows")
        assert story.results["reload"]["deleted_records"] == 285  # the others were deleted by the page's first DAG
        assert (story.count("day = DATE '2026-01-01'"), story.count("day = DATE '2026-01-02'")) == (300, 2)
        assert story.count("channel = 'shop'") == 1

    def test_another_table_is_made_from_it(self, story):
        story.tell("read-iceberg-tables")
        read = story.results["add_up"]["inputs"]
        assert read["orders"]["snapshot-id"] == str(story.table.current_snapshot().snapshot_id)
        assert (read["rates"]["catalog"], read["rates"]["table"]) == ("finance", "fx.rates")
        rows = Table.load(story.table.catalog, "sales.revenue").scan().to_arrow().to_pylist()
        orders = story.table.scan("day = DATE '2026-01-01'").to_arrow().to_pylist()
        assert sum(row["orders"] for row in rows) == len(orders) == 300
        assert sum(row["euros"] for row in rows) == sum(row["amount"] for row in orders) * Decimal("0.85")

    def test_a_feed_is_merged(self, story):
        story.tell("merge-rows")
        table = Table.load(story.table.catalog, "sales.live_orders")
        found = {row["id"]: (row["status"], row["amount"]) for row in table.scan().to_arrow().to_pylist()}
        assert sorted(found) == [1, 2, 3, 5, 6, 7, 8, 9, 20]
        assert found[1] == ("closed", Decimal("14.00"))
        assert (found[2], found[3]) == (("paid", Decimal("2.50")), ("new", Decimal("4.50")))
        assert story.results["close"]["updated_records"] == 2

    def test_functions_write_a_table(self, story):
        story.tell("write-from-a-function")
        rows = Table.load(story.table.catalog, "sales.returns").scan().to_arrow().to_pylist()
        reasons = {row["order_id"]: row["reason"].partition("_")[0] for row in rows}
        assert reasons == {1: "lost", 2: "late", 11: "broken", 21: "broken", 99: "manual"}
        assert story.results["correct"]["added_records"] > 0

    def test_its_schema_is_altered(self, story):
        story.tell("alter-a-table")
        names = [column.name for column in story.table.schema().fields]
        assert names == ["id", "day", "customer_id", "state", "amount", "currency", "channel"]
        assert [column.name for column in story.table.spec().fields] == ["day_month"]
        assert story.count("state = 'new'") == 300

    def test_it_is_waited_for(self, story):
        story.tell("wait-for-a-snapshot")
        assert story.results["report"] == 200
        assert story.results["new_orders"]["snapshot_id"] == str(story.table.current_snapshot().snapshot_id)

    def test_its_commits_are_reacted_to(self, story):
        story.tell("react-to-commits")
        assert story.results["day"]["rows"] == 300
        assert story.results["react"] == []  # `dag.test()` runs without an event

    def test_it_is_maintained(self, story):
        story.tell("wait-for-a-snapshot")
        orphan = Path(story.table.location.removeprefix("file://")) / "data" / "left-by-a-killed-job.parquet"
        orphan.write_bytes(b"rows")
        os.utime(orphan, (1_700_000_000,) * 2)
        story.tell("maintain-a-table")
        assert story.results["restore"]["restored_files"] == 1
        assert orphan.exists()
        assert story.count() == 302

    def test_it_is_used_in_python(self, story):
        story.tell("tables-in-python")
        assert story.count() == 305

    def test_existing_files_join_a_table(self, story):
        for number in (30, 31):
            path = story.folder / "landing" / "history" / f"day=2025-12-{number}" / "part-0.parquet"
            path.parent.mkdir(parents=True)
            pq.write_table(pa.table({"id": [number, number + 100], "amount": [Decimal("1.00"), None]}), path)
        (story.folder / "landing" / "history" / "_SUCCESS").write_bytes(b"")
        story.tell("add-existing-files")
        history = story.names["table"]
        assert sorted(history.scan().to_arrow()["id"].to_pylist()) == [30, 31, 130, 131]
        assert history.metadata_location.endswith("/v3.metadata.json")

    def test_its_changes_are_loaded(self, story):
        story.tell("load-changes")
        journal = Table.load(load_catalog("prod", type="hadoop", warehouse=story.warehouse), "sales.journal")
        assert journal.scan("change = 'insert'").count() == story.count()
        assert story.results["journal"]["inputs"]["orders"]["mode"] == "changelog"
        before = story.table.scan(snapshot_id=story.names["first"]).count()
        changes = story.table.changes(story.names["first"], mode="changelog").read_all()["_change_type"].to_pylist()
        assert changes.count("insert") - changes.count("delete") == story.count() - before

    def test_a_branch_is_published_and_rolled_back(self, story):
        story.tell("load-changes")
        before = story.count()
        story.tell("branches-and-tags")
        assert story.results["look"]["disappearing"]["snapshot_count"] == 1
        assert (story.results["back"]["outcome"], story.count()) == ("committed", before)
        assert story.table.refs.keys() >= {"main", "v1", "last_good"}

    def test_a_run_is_undone(self, story):
        story.tell("load-changes")
        story.tell("undo-a-run")
        assert (story.names["would"].removed_records, story.names["undone"].removed_records) == (2, 2)
        assert story.names["refunds"].scan().to_arrow()["id"].to_pylist() == [3]
        assert story.results["undo"]["outcome"] == "nothing"

    def test_rows_are_audited_before_they_are_published(self, story):
        story.tell("write-audit-publish")
        payments = Table.load(load_catalog("prod", type="hadoop", warehouse=story.warehouse), "sales.payments")
        assert payments.scan().count() == 300
        assert set(payments.refs) == {"main"}
        assert story.results["publish"]["how"] == "found"

    def test_another_table_is_waited_for(self, story):
        write_paimon(story.folder)
        story.tell("wait-for-paimon")
        assert story.results["new_orders"]["snapshot_id"] == "7"

    @pytest.mark.spark
    @pytest.mark.slow
    def test_it_is_read_in_a_spark_job(self, story):
        story.tell(SPARK)
        page = "\n".join(story.here(code) for code in snippets(SPARK))
        program = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
{page}
print("counted", frame.count())
spark.stop()
"""
        # The workers are to run in this environment, and not with the first Python of the path.
        environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        expected = story.count("day >= '2026-01-01' and amount > 10")
        assert f"counted {expected}" in done.stdout

    def test_every_page_is_told(self):
        assert sorted(ORDER) == sorted(path.stem for path in (DOCS / "how-to").glob("*.md"))


def shown_templates() -> list[tuple[str, str]]:
    examples = [*(ROOT / "dags_examples").glob("*.py"), *(ROOT / "airflow_iceberg").rglob("*.py")]
    return [
        (str(path.relative_to(ROOT)), template)
        for path in [*PAGES, *examples]
        for template in re.findall(r"(?<!`)\{\{(.*?)\}\}(?!`)", path.read_text())
    ]


class TestTemplatesWorkInEveryRun:
    """A run that an asset starts has no logical date, so that `ds` and its kin are undefined in it."""

    def test_none_of_them_needs_a_logical_date(self):
        assert any("dag_run.run_after" in template for _, template in shown_templates())
        wrong = [(where, text) for where, text in shown_templates() if UNDEFINED.search(re.sub(r"\|\s*\w+", "", text))]
        assert wrong == []
