"""Which types may do what: one table for every type without fields of its own, and what each rule says of it."""

import pytest

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.format import types as t
from airflow_iceberg.format.metadata.table_metadata import check_schema, new_table_metadata
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.evolution import SchemaEvolution
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.type_json import type_from_json
from airflow_iceberg.table import Table
from tests.support.builders import new_catalog, new_table

V3 = {"format-version": "3"}
VALUES = ["boolean", "int", "long", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"]
VALUES += ["string", "uuid", "binary", "fixed[16]", "decimal(9, 2)"]
FLOATS, SPATIAL, OTHERS = ["float", "double"], ["geometry", "geography(NAD83(2011), karney)"], ["variant"]
KINDS = [*VALUES, *FLOATS, *SPATIAL, *OTHERS, "unknown"]
DEFAULTS = {"boolean": "true", "string": "x", "uuid": "f79c3e09-677c-4bbd-a479-3f349cb785e7", "date": "2026-01-31"}
DEFAULTS |= {"time": "10:00:00", "binary": b"\x01", "fixed[16]": b"\x01" * 16}
DEFAULTS |= {"timestamp": "2026-01-31T00:00:00", "timestamptz": "2026-01-31T00:00:00+00:00"}


def default_of(kind: str) -> object:
    return DEFAULTS.get(kind.replace("_ns", ""), "1")


def evolution(schema: Schema) -> SchemaEvolution:
    return SchemaEvolution(schema, last_column_id=9, history=(schema,), specs=(), format_version=3)


class TestWhichTypesMay:
    """A rule names the types that it is for; `variant` is none of the primitive ones."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_identify_rows(self, kind):
        """Iceberg Java cannot load a table whose identifier fields are variants."""
        required = "" if kind == "unknown" else " not null"
        for schema, name in (
            ({"v": f"{kind}{required}"}, "v"),
            ({"s": f"struct<v: {kind}{required}> not null"}, "s.v"),
        ):
            changing = evolution(schema_from_shorthand(schema))
            if kind in (*VALUES, *SPATIAL):
                changing.set_identifier_fields([name])
                assert len(changing.schema.identifier_field_ids) == 1
            else:
                with pytest.raises(InvalidInputError, match=f"column '{name}' cannot identify rows"):
                    changing.set_identifier_fields([name])

    @pytest.mark.parametrize("kind", KINDS)
    def test_be_the_source_of_a_partition_and_be_sorted_by(self, kind):
        schema = schema_from_shorthand({"v": kind})
        if kind in (*SPATIAL, *OTHERS):
            with pytest.raises(InvalidInputError, match="not defined for column 'v'"):
                spec_from_shorthand(["v"], schema)
        else:
            assert spec_from_shorthand(["v"], schema).fields

    @pytest.mark.parametrize("kind", KINDS)
    def test_be_compared(self, kind):
        schema = schema_from_shorthand({"v": kind})
        for text in ("v is null", "v is not null"):
            parse_filter(text, schema)
        if kind in (*SPATIAL, *OTHERS):
            for text in ("v = 'x'", "v = X'01'", "v in (1, 2)", "v > 1", "v like 'a%'"):
                with pytest.raises(InvalidInputError, match=r"cannot be compared; only IS \[NOT\] NULL is possible"):
                    parse_filter(text, schema)

    @pytest.mark.parametrize("kind", KINDS)
    def test_have_a_default(self, kind):
        changing = evolution(schema_from_shorthand({"id": "long"}))
        if kind in (*SPATIAL, *OTHERS, "unknown"):
            with pytest.raises(InvalidInputError, match="cannot have a default"):
                changing.add_column("v", kind, default="00")
        else:
            changing.add_column("v", kind, default=default_of(kind))
            check_schema(changing.schema, 3)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("which", ["initial_default", "write_default"])
    def test_have_the_default_of_a_schema_that_is_given(self, kind, which):
        """No reader could load a table with a default that is no value of its column."""
        type_ = schema_from_shorthand({"v": kind}).fields[0].type
        for bad in ({"no": "value"}, "\u00e4"):
            if kind == "string" and bad == "\u00e4":
                continue
            field = t.NestedField(id=1, name="v", type=type_, **{which: bad})
            with pytest.raises(InvalidInputError, match="default"):
                new_table_metadata(
                    location="file:///t", schema=Schema((field,)), table_uuid="u", now_ms=1, format_version=3
                )

    @pytest.mark.parametrize("kind", KINDS)
    def test_be_in_a_table_of_each_version(self, kind):
        late = kind in (*SPATIAL, *OTHERS, "unknown") or kind.endswith("_ns")
        for spelled in (kind, f"list<struct<a: {kind}>>", f"map<int, {kind}>"):
            schema = schema_from_shorthand({"v": spelled})
            check_schema(schema, 3)
            for version in (1, 2):
                if late:
                    with pytest.raises(InvalidInputError, match="needs format version 3"):
                        check_schema(schema, version)
                else:
                    check_schema(schema, version)

    @pytest.mark.parametrize("kind", [*SPATIAL, *OTHERS])
    def test_be_promoted(self, kind):
        """None of these becomes another one, and no value becomes one of these; unknown becomes any."""
        for other in KINDS:
            if other != kind:
                with pytest.raises(InvalidInputError, match="a column of this type keeps it"):
                    evolution(schema_from_shorthand({"v": kind})).change_type("v", other)
            if other not in (kind, "unknown"):
                with pytest.raises(InvalidInputError, match="cannot change from"):
                    evolution(schema_from_shorthand({"v": other})).change_type("v", kind)
        evolution(schema_from_shorthand({"v": "unknown"})).change_type("v", kind)


class TestTables:
    """The same through the doors that users have."""

    def test_alter_and_create_refuse_a_variant_that_identifies_rows(self, tmp_path):
        table = new_table(tmp_path, schema={"id": "long not null", "v": "variant not null"}, properties=V3)
        with pytest.raises(InvalidInputError, match="column 'v' cannot identify rows: variant is not a primitive type"):
            table.alter([{"set_identifier_fields": ["id", "v"]}])
        assert table.refresh().schema().identifier_field_ids == ()
        with pytest.raises(InvalidInputError, match="column 'v' cannot identify rows"):
            Schema(table.schema().fields, identifier_field_ids=(2,))

    def test_metadata_that_say_so_are_refused(self):
        fields = [{"id": 1, "name": "v", "required": True, "type": "variant"}]
        with pytest.raises(FormatError, match="column 'v' cannot identify rows"):
            Schema.from_dict({"type": "struct", "schema-id": 0, "identifier-field-ids": [1], "fields": fields})

    def test_a_column_that_is_named_twice_identifies_rows_once(self, tmp_path):
        table = new_table(tmp_path, schema={"a": "long not null", "b": "long not null"})
        table.alter([{"set_identifier_fields": ["a", "b", "a", "a"]}])
        assert table.schema().identifier_field_ids == (1, 2)
        assert table.schema().to_dict()["identifier-field-ids"] == [1, 2]
        assert table.alter([{"set_identifier_fields": ["b", "a", "b"]}]).outcome.value == "nothing"

    def test_the_same_of_a_schema_that_is_given_and_of_one_that_is_read(self, tmp_path):
        schema = schema_from_shorthand({"a": "long not null"})
        twice = Schema(schema.fields, identifier_field_ids=(1, 1))
        table = Table.create(new_catalog(tmp_path), "db.t", schema=twice)
        assert table.schema().identifier_field_ids == (1,)
        assert Schema.from_dict({**schema.to_dict(), "identifier-field-ids": [1, 1]}).identifier_field_ids == (1,)

    @pytest.mark.parametrize("kind", ["variant", "geometry"])
    def test_no_key_of_an_upsert_is_one(self, tmp_path, kind):
        import pyarrow as pa

        binaries = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
        table = new_table(tmp_path, schema={"id": "long", "v": kind}, properties=V3)
        rows = pa.table({"id": [1], "v": pa.array([None], binaries if kind == "variant" else pa.binary())})
        for change in (
            lambda: table.upsert(rows, join_cols=["v"]),
            lambda: table.merge(rows, on=["v"], clauses=["when not matched then insert *"]),
            lambda: table.merge(rows, on="target.v = source.v", clauses=["when not matched then insert *"]),
            lambda: table.changes(None, mode="changelog", identifier_columns=["v"]),
        ):
            with pytest.raises(
                InvalidInputError, match=f"column 'v' cannot be a key: values of {kind} cannot be compared"
            ):
                change()
        assert table.current_snapshot() is None


class TestGeospatialTypes:
    """A coordinate reference system may be spelled with brackets and commas."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("geography(NAD83(2011), spherical)", t.GeographyType("NAD83(2011)", "spherical")),
            ("geography(NAD83(2011),KARNEY)", t.GeographyType("NAD83(2011)", "KARNEY")),
            ("geography(NAD83(2011))", t.GeographyType("NAD83(2011)")),
            ("geometry(NAD83(2011))", t.GeometryType("NAD83(2011)")),
            ("GEOGRAPHY ( srid:4326 , thomas )", t.GeographyType("srid:4326", "thomas")),
            ("geography(projjson:crs_a)", t.GeographyType("projjson:crs_a")),
            ('geography(GEOGCS["a", B["b", 1]], vincenty)', t.GeographyType('GEOGCS["a", B["b", 1]]', "vincenty")),
            ('geometry(GEOGCS["a", SPHEROID["b", 1]])', t.GeometryType('GEOGCS["a", SPHEROID["b", 1]]')),
            ("geography()", t.GeographyType()),
            ("geography(, andoyer)", t.GeographyType(None, "andoyer")),
        ],
    )  # fmt: skip
    def test_spellings(self, text, expected):
        found = t.parse_leaf(text)
        assert found == expected
        assert t.parse_leaf(str(found)) == found
        assert type_from_json(text) == found
        if (")" if isinstance(found, t.GeometryType) else ",") in (found.crs or ""):
            with pytest.raises(InvalidInputError, match="column 'v': Iceberg Java cannot load a table with geo"):
                schema_from_shorthand({"v": text})
            return
        for spelled in (f"struct<g: {text}, x: int>", f"map<int, {text}>", f"list<{text} not null>"):
            assert expected in [f.type for f in t.walk_fields(schema_from_shorthand({"v": spelled}).fields)]

    @pytest.mark.parametrize("text", ["geography(a, flat)", "geography(NAD83(2011), flat)"])
    def test_an_unknown_algorithm(self, text):
        with pytest.raises(InvalidInputError, match="unknown edge algorithm 'flat'"):
            t.parse_leaf(text)

    @pytest.mark.parametrize("text", ["geography(", "geographyx", "geometry(a", "geometry)a(", "geography a"])
    def test_what_is_none(self, text):
        assert t.parse_leaf(text) is None

    def test_a_table_keeps_the_spelling(self, tmp_path):
        table = new_table(tmp_path, schema={"g": "geography(NAD83(2011), spherical)"}, properties=V3)
        again = Table.load(table.catalog, "db.t") if hasattr(table, "catalog") else table.refresh()
        assert again.schema().to_dict()["fields"][0]["type"] == "geography(NAD83(2011), spherical)"
