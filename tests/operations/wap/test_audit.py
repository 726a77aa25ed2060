"""Audits: each is decided on one snapshot, and shows the first offending rows."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.wap.audit import AuditRequest, audit
from airflow_iceberg.operations.wap.audits import (
    Freshness,
    NoRows,
    NullShare,
    PythonAudit,
    RowCount,
    RowCountChange,
    SchemaUnchanged,
    UniqueShare,
)
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import new_table

NOW = datetime.now(UTC)
SCHEMA = {"id": "long", "name": "string", "at": "timestamptz", "day": "date"}


def rows(*ids, name="x", at=NOW):
    count = len(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([name] * count, pa.string()),
            "at": pa.array([at] * count, pa.timestamp("us", "UTC")),
            "day": pa.array([at.date()] * count, pa.date32()),
        }
    )


@pytest.fixture
def table(tmp_path):
    made = new_table(tmp_path, schema=SCHEMA)
    made.append(rows(1, 2, 3, 4))
    made.create_branch("wap")
    return made


def report(table, *audits, **more):
    return audit(Work(table), AuditRequest(audits=audits, **{"branch": "wap", **more}))


def one(table, check, **more):
    made = report(table, check, **more)
    [result] = made.audits
    assert result.passed == made.passed
    return result


class TestEachAudit:
    """It passes, or it fails and says what was found."""

    def test_sql_that_returns_no_row(self, table):
        check = NoRows("select id from audited where id > $most", params={"most": 4})
        assert one(table, check).passed
        table.append(rows(*range(5, 25)), branch="wap")
        failed = one(table, check)
        assert (failed.passed, failed.found, len(failed.rows)) == (False, "more than 10 offending rows", 10)
        assert all(row["id"] > 4 for row in failed.rows)

    @pytest.mark.costly
    def test_sql_over_main_and_inputs(self, table):
        table.append(rows(4, 5), branch="wap")
        new = NoRows("select a.id from audited a anti join main m on a.id = m.id anti join known k on a.id = k.id")
        assert not one(table, NoRows("select id from audited except select id from main")).passed
        known = Input(open=lambda: Table.load(table.catalog, "db.t"), ref="wap", row_filter="id = 5")
        assert one(table, new, inputs={"known": known}).passed

    @pytest.mark.parametrize("where", [
        "audited <> b",
        "audited is distinct from b",
        "md5(audited::varchar) <> md5(b::varchar)",
        "to_json(audited) <> to_json(b)",
        "not exists (select 1 where audited = b)",
    ])  # fmt: skip
    def test_sql_that_compares_rows_as_values(self, table, where):
        table.append(rows(4, name="other"), branch="wap")
        failed = one(table, NoRows(f"select audited.id from audited join main b on audited.id = b.id where {where}"))
        assert (failed.passed, failed.rows) == (False, ({"id": 4},))

    @pytest.mark.parametrize("joins", [
        "(main m left join audited a on a.id = m.id and a.name = 'y')",
        "(audited x full join main m on x.id = m.id) left join (audited a join main n on a.id > n.id + 9) on true",
    ])  # fmt: skip
    def test_sql_with_joins_in_brackets(self, table, joins):
        assert not one(table, NoRows(f"select m.id from {joins} where a.id is null")).passed

    def test_the_number_of_rows(self, table):
        table.append(rows(5), branch="wap")
        assert one(table, RowCount(min=5, max="5")).found == "5 rows, expected at least 5 and at most 5"
        assert not one(table, RowCount(max=4)).passed
        assert one(table, RowCount(min=1, max=1, row_filter="id = :id", predicate_params={"id": 5})).passed

    def test_the_number_of_rows_compared_with_main(self, table):
        table.append(rows(5), branch="wap")
        assert one(table, RowCountChange(min=0, max=0.25)).passed
        failed = one(table, RowCountChange(max=0.2))
        assert failed.found == "5 rows, 4 in main: a change of +0.25, expected at most 0.2"

    def test_the_number_of_rows_of_a_table_that_was_empty(self, tmp_path):
        empty = new_table(tmp_path, schema=SCHEMA)
        assert one(empty, RowCountChange(max=0), branch=None).passed
        assert one(empty, RowCount(max=0), branch=None).passed
        assert one(empty, NullShare("id"), branch=None).passed
        assert one(empty, UniqueShare("id"), branch=None).passed
        assert one(empty, NoRows("select * from audited"), branch=None).passed
        assert not one(empty, Freshness("at", max_age=timedelta(hours=1)), branch=None).passed

    def test_the_share_of_nulls(self, table):
        table.append(rows(5, name=None), branch="wap")
        assert one(table, NullShare("name", max=0.2)).passed
        failed = one(table, NullShare("name"))
        assert failed.found == "1 of 5 rows have null in 'name' (0.2), expected at most 0"
        assert [row["id"] for row in failed.rows] == [5]
        assert one(table, NullShare("id")).passed

    @pytest.mark.parametrize("told", [-1, -5, 6])
    def test_statistics_that_cannot_be_are_not_believed(self, table, told):
        table.create_branch("other")
        table.append(rows(5, 6, 7, 8, 9, name=None), branch="other")
        field_id = table.schema().find_field("name").id
        files = [task.file for task in table.scan(ref="other").plan_files()]
        [written] = [file for file in files if file.null_value_counts[field_id]]
        lies = replace(written, null_value_counts={**written.null_value_counts, field_id: told})
        settings = table.commit_settings(branch="wap")
        table.commit(AppendFiles(table.io, [lies], settings, written_schema=table.schema()))
        assert one(table, NullShare("name")).found.startswith("5 of 9 rows have null")

    def test_nulls_that_were_deleted_do_not_count(self, tmp_path):
        properties = {"write.delete.mode": "merge-on-read"}
        table = new_table(tmp_path, schema=SCHEMA, properties=properties)
        table.append(pa.concat_tables([rows(1, name=None), rows(2)]))
        table.delete("id = 1")
        assert one(table, NullShare("name"), branch=None).passed

    @pytest.mark.costly
    def test_the_share_of_keys_that_are_unique(self, table):
        table.append(rows(4, None, None), branch="wap")
        assert one(table, UniqueShare("id", min=0.8)).passed
        failed = one(table, UniqueShare(["id"]))
        assert failed.found == "4 different keys (id) in 5 rows (0.8), expected at least 1"
        assert failed.rows == ({"id": 4, "rows": 2},)
        assert one(table, UniqueShare(["id", "name"], min=0.8)).passed

    @pytest.mark.parametrize("column", ["at", "day"])
    def test_freshness(self, tmp_path, column):
        table = new_table(tmp_path, schema=SCHEMA)
        table.append(rows(1, at=NOW - timedelta(days=9)))
        assert not one(table, Freshness(column, max_age=timedelta(days=3)), branch=None).passed
        assert one(table, Freshness(column, max_age=timedelta(days=10)), branch=None).passed
        with pytest.raises(InvalidInputError, match="column 'id' is of type long, expected a timestamp or a date"):
            one(table, Freshness("id", max_age=timedelta(1)), branch=None)

    def test_the_schema(self, table):
        assert one(table, SchemaUnchanged()).passed
        before = table.metadata.current_schema_id
        new = rows(5).append_column("price", pa.array([1.5]))
        table.append(new, branch="wap", schema_evolution="add_columns")
        failed = one(table, SchemaUnchanged(), schema_id=before)
        assert failed.found == "the schema has changed: price: nothing became double (id 5)"
        assert not one(table, SchemaUnchanged()).passed
        assert one(table, SchemaUnchanged(), schema_id=table.metadata.current_schema_id).passed

    @pytest.mark.parametrize(
        ("answer", "found"),
        [
            (True, None),
            (None, None),
            ([], None),
            (False, "the function returned False"),
            ("too few", "too few"),
            ([{"id": 7}], "1 offending row"),
            (pa.table({"id": [7]}), "1 offending row"),
        ],
    )
    def test_a_function_of_the_scan(self, table, answer, found):
        seen = []
        result = one(table, PythonAudit(lambda scan, **kwargs: seen.append((scan.count(), kwargs)) or answer))
        assert (result.passed, seen) == (found is None, [(4, {})])
        assert found in (None, result.found)

    def test_a_function_by_its_name(self, table):
        assert one(table, PythonAudit("tests.operations.wap.test_audit:count_of", op_kwargs={"wanted": 4})).passed
        with pytest.raises(InvalidInputError, match="cannot import"):
            one(table, PythonAudit("tests.operations.wap.test_audit:nothing"))


def count_of(scan, wanted):
    return scan.count() == wanted


class TestWhatIsAudited:
    """One snapshot, which the report names."""

    def test_the_head_of_the_branch_when_the_audit_began(self, table):
        table.append(rows(5), branch="wap")
        head = table.refs["wap"].snapshot_id
        other = Table.load(table.catalog, "db.t")

        def writes(scan):
            other.append(rows(6), branch="wap")
            return scan.count() == 5

        made = report(table, PythonAudit(writes), NoRows("select * from audited where id = 6"), RowCount(max=5))
        assert made.passed
        assert (made.snapshot_id, made.to_xcom()["snapshot_id"]) == (head, str(head))

    def test_without_the_branch_the_snapshot_that_this_run_has_published(self, table):
        key = OperationKey(dag_id="d", run_id="r", task_id="load")
        done = table.append(rows(5), operation_key=key)
        table.append(rows(6))
        table.refresh()
        work = Work(table, operation_key=OperationKey(dag_id="d", run_id="r", task_id="audit"))
        assert audit(work, AuditRequest(audits=[RowCount(min=5)], branch="gone")).snapshot_id == done.snapshot_id
        with pytest.raises(NotFoundError, match=r"no branch 'gone' \(of the table, not of its catalog\)"):
            report(table, RowCount(min=1), branch="gone")


class TestTheReport:
    """A table for the log and for XCom: small, plain, without secrets."""

    def test_in_the_log_and_in_xcom(self, table):
        made = report(table, RowCount(min=1, name="some rows"), NoRows("select id from audited where id = 1"))
        sql = "NoRows('select id from audited where id = 1')"
        assert made.lines() == [
            f"passed  {'some rows':<{len(sql)}}  4 rows, expected at least 1",
            f"FAILED  {sql}  1 offending row",
            f'{sql}: {{"id": 1}}',
        ]
        xcom = json.loads(json.dumps(made.to_xcom()))
        assert (xcom["passed"], xcom["branch"], xcom["audits"][1]["rows"]) == (False, "wap", [{"id": 1}])
        assert "| some rows | passed | 4 rows, expected at least 1 |" in xcom["report"]

    @pytest.mark.costly
    def test_rows_are_few_and_short_and_show_no_secret(self, table):
        sql = (
            "select 's3cr3t-s3cr3t' as password, 'https://u:hunter2hunter2@h/x' as url, repeat('a', 100000) as long, "
            "'a'::blob as b, 9007199254740993::bigint as big, 'nan'::double as f, [1, 2] as l from range(50)"
        )
        result = one(table, NoRows(sql), sample_rows=20)
        text = json.dumps(result.rows)
        assert "s3cr3t" not in text
        assert "hunter2" not in text
        assert len(text) < 9000
        first = result.rows[0]
        assert (first["b"], first["big"], first["f"], first["l"]) == ("61", "9007199254740993", "nan", "[1, 2]")
        assert one(table, NoRows(sql), sample_rows=0).rows == ()

    def test_control_characters_are_not_shown(self, table):
        found = one(table, PythonAudit(lambda scan: "wrong:\x1b[31m\n\x07 x")).found
        assert found == "wrong:\N{REPLACEMENT CHARACTER}[31m \N{REPLACEMENT CHARACTER} x"

    def test_a_failing_audit_does_not_end_the_others(self, table):
        made = report(table, RowCount(min=9), RowCount(min=1), RowCount(max=1))
        assert [result.passed for result in made.audits] == [False, True, False]
        assert len(made.failed) == 2


class TestBadAudits:
    """A wrong audit is one clear error, and not a failed audit."""

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: RowCount(), "neither min nor max"),
            (lambda: NoRows(" "), "expected SQL"),
            (lambda: UniqueShare([]), "has no column"),
            (lambda: Freshness("at", max_age=timedelta(-1)), "not negative"),
            (lambda: PythonAudit("module"), "expected 'package.module:function'"),
            (lambda: AuditRequest(audits=()), "audits has none"),
            (lambda: AuditRequest(audits=["select 1"]), "audits has 'select 1'"),
            (lambda: AuditRequest(audits=[RowCount(min=1)], inputs={"audited": None}), "cannot be named 'audited'"),
        ],
    )
    def test_before_anything_is_read(self, make, message):
        with pytest.raises(InvalidInputError, match=message):
            make()

    @pytest.mark.parametrize(
        ("check", "message"),
        [
            (NoRows("delete from audited"), "expected one query that returns rows"),
            (NoRows("select nothing from audited"), "column 'nothing' is not known: 'audited' has "),
            (NoRows("select * from unknown_table"), "unknown_table"),
            (RowCount(min="many"), "min is 'many', expected a number"),
            (NullShare("name", max=5), r"max is 5, expected a share from 0 to 1, such as 0\.05 for 5 %"),
            (NullShare("name", max="-0.1"), "max is '-0.1', expected a share from 0 to 1"),
            (NullShare("name", max=None), "max is None, expected a share from 0 to 1"),
            (UniqueShare("id", min=95), r"min is 95, expected a share from 0 to 1, such as 0\.95 for 95 %"),
            (UniqueShare("id", min=float("inf")), "min is inf, expected a share from 0 to 1"),
            (NullShare("nothing"), "no column 'nothing'"),
            (UniqueShare("nothing"), "no column 'nothing'"),
        ],
    )
    def test_when_it_is_made(self, table, check, message):
        with pytest.raises((InvalidInputError, NotFoundError), match=message):
            one(table, check)
