"""How a table that exists differs from what was asked for, and what follows from it."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs.base import TableId, TableState
from airflow_iceberg.errors import AlreadyExistsError, CommitUnknownError, InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.operations.create_table import MOST_TOLD, CreateTableRequest, create_table, tell_differences
from airflow_iceberg.operations.reports.table_differences import table_differences
from airflow_iceberg.table import Table
from tests.support.builders import new_catalog

COLUMNS = {"id": "long not null comment 'the number'", "ts": "timestamptz", "p": "struct<x: int, y: list<string>>"}


def described(schema=COLUMNS, *, partition_by=(), sort_by=(), properties=None) -> TableMetadata:
    columns = schema_from_shorthand(schema)
    return new_table_metadata(
        location="memory://t",
        schema=columns,
        spec=spec_from_shorthand(partition_by, columns),
        sort_order=sort_order_from_shorthand(sort_by, columns),
        properties=properties or {},
        table_uuid="u",
        now_ms=1,
    )


def told(there: TableMetadata, asked: TableMetadata, properties=None) -> list[str]:
    return [str(one) for one in table_differences(there, asked, properties or {})]


class TestTheSameTable:
    """Whatever its ids are, and whatever was not asked for."""

    def test_in_all_ways_to_give_its_columns(self):
        schema = schema_from_shorthand(COLUMNS)
        objects = {
            "id": {"type": "bigint", "required": True, "doc": "the number"},
            "ts": "timestamp with time zone",
            "p": "STRUCT<x INT, y: array<varchar(20)>>",
        }
        arrow = pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("ts", pa.timestamp("us", "UTC")),
                pa.field("p", pa.struct([("x", pa.int32()), ("y", pa.large_list(pa.large_string()))])),
            ]
        )
        for given in (COLUMNS, schema, objects, arrow):
            assert told(described(), described(given)) == []

    def test_with_other_ids_of_its_columns(self):
        table = described(partition_by=["day(ts)"], sort_by=["p.x desc"])
        asked = described(partition_by=["day(ts)"], sort_by=["p.x desc"])
        moved = Schema(tuple(replace(one, id=one.id + 100) for one in table.schema().fields[:1]))
        columns = Schema((*moved.fields, *table.schema().fields[1:]))
        other = replace(table, schemas=(columns,), last_column_id=200)
        assert told(other, asked) == []

    def test_with_comments_properties_and_a_version_that_were_not_asked_for(self):
        more = {"write.format.default": "parquet", "format-version": "3"}
        there = described({"id": "long comment 'x'"}, properties=more)
        assert told(there, described({"id": "long"}), {"a.b": "c"}) != []
        assert told(there, described({"id": "long"})) == []

    def test_with_another_spelling_of_a_property(self):
        given = {"write.target-file-size-bytes": "134217728", "write.parquet.compression-codec": "ZSTD"}
        there = described(properties={**given, "write.parquet.compression-codec": "zstd"})
        assert told(there, described(properties=given), given) == []

    def test_with_fields_of_partitions_that_version_1_keeps(self, tmp_path):
        catalog = new_catalog(tmp_path)
        properties = {"format-version": "1"}
        table = Table.create(catalog, "db.t", schema=COLUMNS, partition_by=["id", "day(ts)"], properties=properties)
        table.alter([{"set_partitioning": ["day(ts)", "bucket(4, id)"]}])
        assert len(table.spec().fields) == 3
        for terms in (["day(ts)", "bucket(4, id)"], ["bucket(4, id)", "day(ts)"]):
            assert told(table.metadata, described(partition_by=terms, properties=properties), properties) == []

    def test_with_the_names_that_an_alter_gives_to_partitions(self, tmp_path):
        table = Table.create(new_catalog(tmp_path), "db.t", schema=COLUMNS)
        table.alter([{"add_partition_field": "bucket(16, id)"}])
        assert table.spec().fields[0].name != "id_bucket"
        assert told(table.metadata, described(partition_by=["bucket(16, id)"])) == []


class TestEachDifference:
    """What, where, expected, found, and what to do: the change makes the table what was asked for."""

    # Of an alter; where it is None, none leads there.
    CASES = (
        (
            {"id": "int", "n": "string"},
            {"id": "long", "n": "string"},
            (
                "the type of column 'id': expected long, found int; "
                'widen it with {"change_type": {"name": "id", "type": "long"}}'
            ),
        ),
        (
            {"id": "long"},
            {"id": "int"},
            ("the type of column 'id': expected int, found long; correct the schema: this type cannot become that one"),
        ),
        (
            {"p": "struct<x: int>", "n": "int"},
            {"p": "string", "n": "int"},
            (
                "the type of column 'p': expected string, found struct<x: int>; "
                "correct the schema: this type cannot become that one"
            ),
        ),
        (
            {"id": "long"},
            {"id": "long", "new": "decimal(9, 2) comment 'it'''"},
            (
                "column 'new': expected decimal(9, 2), found none; "
                """add it with {"add_column": {"name": "new", "type": "decimal(9, 2)", "doc": "it'"}}"""
            ),
        ),
        (
            {"id": "long"},
            {"id": "long", "new": "list<struct<x: int not null>> not null"},
            (
                "column 'new': expected list<struct<x: int not null>> not null, found none; add it with "
                '{"add_column": {"name": "new", "type": "list<struct<x: int not null>>", "required": true, '
                '"allow_incompatible": true}} if the table has no rows, or let it be optional'
            ),
        ),
        (
            {"id": "long"},
            {"id": "long", "a.b": "date"},
            (
                "column 'a.b': expected date, found none; "
                'add it with {"add_column": {"name": "`a.b`", "type": "date"}}'
            ),
        ),
        (
            {"id": "long", "a.b": "date not null", "s": "string"},
            {"id": "long", "a.b": "date", "s": "string"},
            'column \'a.b\': expected optional, found required; alter it with {"make_optional": "a.b"}',
        ),
        (
            {"id": "long", "old": "map<string, int>"},
            {"id": "long"},
            (
                "column 'old': expected none, found map<string, int>; "
                'name it in the schema, or drop it with {"drop_column": "old"}'
            ),
        ),
        (
            {"p": "struct<x: int, y: list<struct<z: int>>>"},
            {"p": "struct<x: int, y: list<struct<z: int, `w v`: date>>>"},
            (
                "column 'p.y.element.w v': expected date, found none; "
                'add it with {"add_column": {"name": "p.y.element.w v", "type": "date"}}'
            ),
        ),
        (
            {"m": "map<string, struct<a: int not null>>"},
            {"m": "map<string, struct<a: int>>"},
            'column \'m.value.a\': expected optional, found required; alter it with {"make_optional": "m.value.a"}',
        ),
        (
            {"id": "long"},
            {"id": "long not null"},
            (
                "column 'id': expected required, found optional; correct the schema, or alter it with "
                '{"make_required": {"name": "id", "allow_incompatible": true}} if no row lacks a value'
            ),
        ),
        (
            {"id": "long comment 'a'"},
            {"id": "long comment 'b'"},
            (
                "the comment of column 'id': expected 'b', found 'a'; "
                'set it with {"set_doc": {"name": "id", "doc": "b"}}'
            ),
        ),
        (
            {"a": "int", "b": "int", "c": "int"},
            {"c": "int", "a": "int", "b": "int"},
            (
                "the order of the columns: expected c, a, b, found a, b, c; "
                'move them, beginning with {"move_column": {"name": "c", "first": true}}'
            ),
        ),
        (
            {"p": "struct<a: int, b: int, c: int>"},
            {"p": "struct<a: int, c: int, b: int>"},
            (
                "the order of the fields of 'p': expected a, c, b, found a, b, c; "
                'move them, beginning with {"move_column": {"name": "p.c", "after": "p.a"}}'
            ),
        ),
    )

    def test_of_columns(self, tmp_path):
        catalog, wrong = new_catalog(tmp_path), []
        for number, (there, asked, text) in enumerate(self.CASES):
            table = Table.create(catalog, f"db.t{number}", schema=there)
            found = told(table.metadata, described(asked))
            if found != [text]:
                wrong.append((found, text))
            elif "correct the schema: " not in text:
                table.alter([change_in(text)])
                left = told(table.metadata, described(asked))
                wrong += [(left, "nothing after the change")] if left else []
        assert wrong == []

    def test_of_partitioning_and_order(self, tmp_path):
        table = Table.create(new_catalog(tmp_path), "db.t", schema=COLUMNS, partition_by=["day(ts)"], sort_by=["id"])
        asked = described(partition_by=["truncate(8, id) as part", "day(ts)"], sort_by=["ts desc nulls first"])
        partitioning, order = told(table.metadata, asked)
        assert partitioning == (
            "the partitioning: expected truncate(8, id) as part, day(ts), found day(ts); "
            'alter it with {"set_partitioning": ["truncate(8, id) as part", "day(ts)"]}'
        )
        assert order == (
            "the sort order: expected ts desc nulls first, found id asc nulls first; "
            'alter it with {"set_sort_order": ["ts desc nulls first"]}'
        )
        table.alter([change_in(partitioning), change_in(order)])
        assert told(table.metadata, asked) == []

    def test_of_no_partitioning_and_no_order(self):
        partitioning, order = told(described(partition_by=["id"], sort_by=["id"]), described())
        assert "expected none, found id;" in partitioning
        assert "expected none, found id asc nulls first;" in order

    def test_of_the_name_of_a_partition_field(self, tmp_path):
        table = Table.create(new_catalog(tmp_path), "db.t", schema=COLUMNS, partition_by=["day(ts)"])
        asked = described(partition_by=["day(ts) as d"])
        (text,) = told(table.metadata, asked)
        assert "expected day(ts) as d, found day(ts); rename it with" in text
        table.alter([change_in(text)])
        assert told(table.metadata, asked) == []

    def test_of_a_dropped_partition_column(self, tmp_path):
        table = Table.create(
            new_catalog(tmp_path), "db.t", schema=COLUMNS, partition_by=["id"], properties={"format-version": "1"}
        )
        table.alter([{"drop_partition_field": "id"}, {"drop_column": "id"}])
        (text,) = told(table.metadata, described(partition_by=["day(ts)"]))[-1:]
        assert "expected day(ts), found none;" in text

    def test_of_properties(self):
        given = {"write.format.default": "avro", "owner": "finance", "my.password": "hunter2"}
        there = described(properties={"write.format.default": "parquet", "my.password": "letmein", "other": "x"})
        found = told(there, described(properties=given), given)
        assert found[0] == (
            "property 'write.format.default': expected 'avro', found 'parquet'; "
            'set it with {"set_properties": {"write.format.default": "avro"}}, or leave it out'
        )
        assert "property 'owner': expected 'finance', found no such property;" in found[1]
        assert len(found) == 3
        assert not any("hunter2" in text or "letmein" in text for text in found)

    def test_of_the_format_version(self):
        for there, asked, words in (
            ("1", "2", 'expected 2, found 1; upgrade it with {"upgrade_format_version": 2}'),
            ("3", "2", "expected 2, found 3; ask for format-version 3, since no table becomes older"),
        ):
            given = {"format-version": asked}
            (text,) = told(described(properties={"format-version": there}), described(properties=given), given)
            assert text == f"the format version: {words}"

    def test_a_forged_table_writes_no_line_of_its_own(self):
        forged = described({"id": "long", "a\nERROR b\x1b[2J": {"type": "long", "doc": "x"}})
        long = described({"id": "long", "s": f"struct<{', '.join(f'f{number}: int' for number in range(5000))}>"})
        named = described({"id": "long", "n" * 5000: "int"})
        for there in (forged, long, named):
            (text,) = told(there, described({"id": "long"}))
            assert text.isprintable()
            assert len(text) < 2000


def change_in(text: str) -> dict:
    """Return the change that the text of a difference names."""
    return json.JSONDecoder().raw_decode(text[text.index("{") :])[0]


class TestWhatFollows:
    """A warning for each difference, an error with all of them, or nothing."""

    @pytest.fixture
    def catalog(self, tmp_path):
        catalog = new_catalog(tmp_path)
        Table.create(catalog, "db.t", schema={"id": "long", "old": "int"})
        return catalog

    @staticmethod
    def create(catalog, **request):
        given = {"schema": {"id": "int"}, "if_not_exists": True, **request}
        return create_table(catalog, TableId.parse("db.t"), CreateTableRequest(**given))

    def test_warnings(self, catalog, caplog):
        assert self.create(catalog).metadata.schema().names.keys() == {"id", "old"}
        assert [one.getMessage().partition(": ")[0] for one in caplog.records] == [
            "table db.t exists and was not changed"
        ] * 2

    def test_nothing(self, catalog, caplog):
        self.create(catalog, on_difference="ignore")
        self.create(catalog, schema={"id": "long", "old": "int"}, on_difference="fail")
        assert caplog.records == []

    def test_an_error_that_names_all_of_them(self, catalog):
        with pytest.raises(AlreadyExistsError, match=r"(?s)db\.t exists.*column 'id'.*\| column 'old'.*on_difference"):
            self.create(catalog, on_difference="fail")

    def test_of_many_differences_the_first(self, catalog, caplog):
        many = {f"c{number}": "int" for number in range(MOST_TOLD + 30)}
        self.create(catalog, schema={"id": "long", "old": "int", **many})
        assert len(caplog.records) == MOST_TOLD + 1
        assert caplog.records[-1].getMessage().endswith("and others")

    def test_a_taken_name_is_an_error_as_ever(self, catalog):
        with pytest.raises(AlreadyExistsError):
            self.create(catalog, schema={"id": "long", "old": "int"}, if_not_exists=False, on_difference="ignore")

    def test_an_unknown_word(self):
        with pytest.raises(InvalidInputError, match="unknown on_difference 'stop'; one of warn, fail, ignore"):
            CreateTableRequest(schema={}, on_difference="stop")

    def test_a_table_that_is_wrong_for_itself_is_refused_before(self, catalog):
        with pytest.raises(InvalidInputError, match="needs format version 3"):
            self.create(catalog, schema={"v": "variant"}, on_difference="fail")


class TestALostAnswer:
    """The table that the call has made itself is never another one, whatever the catalog has made of it."""

    class Losing:
        """A catalog that creates a table, changes it, and loses the answer."""

        def __init__(self, catalog, change):
            self._catalog, self._change = catalog, change

        def __getattr__(self, name):
            return getattr(self._catalog, name)

        def create(self, table, metadata):
            self._state = replace(self._catalog.create(table, metadata), metadata=self._change(metadata))
            raise CommitUnknownError("the answer is lost")

        def load(self, table) -> TableState:
            return self._state

    def create(self, tmp_path, change):
        losing = self.Losing(new_catalog(tmp_path), change)
        given = {"schema": {"id": "int"}, "properties": {"a": "b"}, "if_not_exists": True, "on_difference": "fail"}
        return create_table(losing, TableId.parse("db.t"), CreateTableRequest(**given))

    def test_by_its_uuid(self, tmp_path):
        found = self.create(tmp_path, lambda metadata: replace(metadata, properties={}))
        assert found.metadata.properties == {}

    def test_with_the_uuid_of_a_server_it_is_unknown(self, tmp_path):
        with pytest.raises(CommitUnknownError, match="the answer is lost"):
            self.create(tmp_path, lambda metadata: replace(metadata, properties={}, table_uuid="other"))
        again = self.create(tmp_path / "2", lambda metadata: replace(metadata, table_uuid="other"))
        assert again.metadata.table_uuid == "other"


def test_a_request_is_compared_as_it_is_created(tmp_path):
    """Each table that can be described is what was asked for, once it is there."""
    catalog, wrong = new_catalog(tmp_path), []
    types = ["boolean", "int", "long", "float", "double", "decimal(38, 3)", "date", "time", "timestamp", "timestamptz"]
    types += ["string", "uuid", "fixed[3]", "binary", "list<map<string, struct<a: int not null>>>"]
    newer = ["timestamp_ns", "timestamptz_ns", "variant", "unknown", "geometry", "geometry(srid:3857)", "geography"]
    for version in ("1", "2", "3"):
        columns = {f"c{number}": kind for number, kind in enumerate(types + (newer if version == "3" else []))}
        request = CreateTableRequest(
            schema={"odd name.x": "long not null comment 'it''s'", **columns},
            partition_by=["day(c8)", "bucket(7, c10) as b", "odd name.x"],
            sort_by=["c1 desc", "truncate(3, c10) asc nulls last"],
            properties={"format-version": version, "write.format.default": "avro", "x": 1},
            on_difference="fail",
        )
        state = create_table(catalog, TableId.parse(f"db.v{version}"), request)
        try:
            tell_differences(catalog.load(state.table), request)
        except AlreadyExistsError as error:
            wrong.append(str(error))
    assert wrong == []


def test_schemas_may_be_objects(tmp_path):
    schema = Schema((t.NestedField(id=7, name="id", type=t.LongType(), required=True),))
    request = CreateTableRequest(schema=schema, if_not_exists=True, on_difference="fail")
    catalog = new_catalog(tmp_path)
    for _ in range(2):
        create_table(catalog, TableId.parse("db.t"), request)
