"""Name mappings: what is read, and what is refused with its place."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.data.read.file_fields import file_fields, walk
from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.schemas.name_mapping import MappedField, names_by_id, read_name_mapping
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.plan.alter_table.properties import NAME_MAPPING, follow_columns, name_mapping_of
from tests.fuzz.documents import dumped, mutate_document
from tests.support.sampling import SEED, sampled

SCHEMA = schema_from_shorthand(
    {"id": "long", "s": "struct<x: int, t: struct<y: int>>", "xs": "list<struct<p: int>>", "m": "map<string, int>"}
)
FILE = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("x", pa.int32()), ("t", pa.struct([("y", pa.int32())]))])),
        ("xs", pa.list_(pa.struct([("p", pa.int32())]))),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)


def read(text: str) -> tuple[MappedField, ...]:
    return read_name_mapping(NAME_MAPPING, text)


class TestReading:
    """Names by field id, at every depth; ids, names and fields may be left out."""

    def test_names_of_the_columns_of_a_schema(self) -> None:
        found = dict(names_by_id(read(name_mapping_of(SCHEMA))))
        assert found == {field_id: (field.name,) for field_id, field in SCHEMA.fields_by_id.items()}

    def test_what_may_be_left_out(self) -> None:
        text = '[{"names": ["a", "a"]}, {"field-id": 1, "fields": null}, {"field-id": null, "names": ["b"], "more": 1}]'
        assert [(each.field_id, each.names) for each in read(text)] == [(None, ("a", "a")), (1, ()), (None, ("b",))]


class TestWhatIsRefused:
    """The error names the property, the place, what is there and what to do; readers raise it, too."""

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (
                '[{"field-id": 1, "names": ["a"]}, {"field-id": 2, "names": ["a"]}]',
                "name 'a' stands for field ids 1 and 2",
            ),
            ('[{"field-id": 1, "names": ["a"]}, {"names": ["b", "a"]}]', "name 'a' stands for field ids 1 and none"),
            (
                '[{"names": ["s"], "fields": [{"field-id": 2, "names": ["x"]}, {"field-id": 3, "names": ["x"]}]}]',
                r"ids 2 and 3 in 'mapping\[0\]\.fields'",
            ),
            ('[{"field-id": 1, "names": "id"}]', r"type str \(expected list\) in 'mapping\[0\]\.names'"),
            ('[{"field-id": 1, "names": [null]}]', r"type null \(expected str\) in 'mapping\[0\]\.names\[0\]'"),
            ('[{"field-id": 1, "names": ["a", 2]}]', r"type int \(expected str\) in 'mapping\[0\]\.names\[1\]'"),
            ('[{"field-id": 1.7, "names": ["id"]}]', r"type float \(expected int\) in 'mapping\[0\]\.field-id'"),
            ('[{"field-id": true, "names": ["id"]}]', r"type bool \(expected int\) in 'mapping\[0\]\.field-id'"),
            ('[{"field-id": "1", "names": ["id"]}]', r"type str \(expected int\) in 'mapping\[0\]\.field-id'"),
            ('[{"field-id": -1, "names": ["id"]}]', "unexpected number -1"),
            (f'[{{"field-id": {2**31}, "names": ["id"]}}]', f"unexpected number {2**31}"),
            ('[{"field-id": 1, "field-id": 2, "names": ["id"]}]', "an object has the key 'field-id' twice"),
            (
                '[{"field-id": 1, "names": ["id"], "fields": {}}]',
                r"type object \(expected list\) in 'mapping\[0\]\.fields'",
            ),
            ('[["id"]]', r"type list \(expected object\) in 'mapping\[0\]'"),
            ('{"id": 1}', r"type object \(expected list\) in 'mapping'"),
            ("null", r"type null \(expected list\)"),
            ("no", "Expecting value"),
            ('[{"field-id": NaN}]', "NaN is not JSON"),
            ('[{"fields": ' * 3000 + "[]" + "}]" * 3000, "nested too deeply"),
            ('[{"fields": ' * 400 + "[]" + "}]" * 400, "nested too deeply"),
            ("[" * 100_000, "nested too deeply"),
        ],
    )
    def test_with_the_place(self, text: str, problem: str) -> None:
        expected = rf"^malformed name mapping in property '{NAME_MAPPING}': .*{problem}.*; correct the property, or"
        with pytest.raises(FormatError, match=expected):
            read(text)
        with pytest.raises(FormatError, match=expected):
            file_fields(FILE, text)

    def test_a_change_of_columns_keeps_it_as_it_is(self) -> None:
        text = '[{"field-id": 1, "names": "id"}]'
        assert follow_columns({NAME_MAPPING: text}, SCHEMA, schema_from_shorthand({"n": "long"})) == {
            NAME_MAPPING: text
        }


def strictly(items: Any) -> Iterator[tuple[tuple[str, ...], int | None]]:
    """Yield the path of each name of a mapping with its id, read by nothing but the specification."""
    for item in items:
        for name in item.get("names") or ():
            yield (name,), item.get("field-id")
            for path, field_id in strictly(item.get("fields") or ()):
                yield (name, *path), field_id


def problem_of(text: str) -> str:
    """Return the error of a mapping, "" for none."""
    try:
        read(text)
    except FormatError as error:
        return str(error)
    return ""


@pytest.mark.generated
def test_mutants_are_understood_or_refused_with_a_place() -> None:
    """What is read is what stands there, of the right types; all else is our own error."""
    chance, accepted, after = Random(f"name mapping {SEED}"), 0, schema_from_shorthand({"n": "long"})
    sample = json.loads(name_mapping_of(SCHEMA))
    for _ in range(sampled(5_000)):
        text = dumped(mutate_document(sample, chance), chance).decode("utf-8", "surrogatepass")
        follow_columns({NAME_MAPPING: text}, SCHEMA, after)
        if problem := problem_of(text):
            assert problem.startswith(f"malformed name mapping in property '{NAME_MAPPING}': ")
            continue
        accepted += 1
        items = list(_all(json.loads(text)))
        names = [(item.get("field-id"), tuple(item.get("names") or ())) for item in items]
        assert {type(field_id) for field_id, _ in names} <= {int, type(None)}
        assert all(isinstance(name, str) for _, mine in names for name in mine)
        assert sorted(names_by_id(read(text))) == sorted(each for each in names if each[0] is not None)
        expected = dict(strictly(json.loads(text)))
        if any(expected.get((name,)) is not None for name in FILE.names):
            got = {field.name: field.field_id for field in file_fields(FILE, text)}
            assert got == {name: expected.get((name,)) for name in FILE.names}
    assert accepted > 100


def _all(items: Any) -> Iterator[dict[str, Any]]:
    for item in items:
        yield item
        yield from _all(item.get("fields") or ())


class TestFieldIdsOfFiles:
    """An id that is no number is an error that names column and file, in each format."""

    @pytest.mark.parametrize("text", ["x", "", "1.5", " 1", "１", str(2**31), "9" * 5000])
    def test_of_the_metadata_of_a_field(self, text: str) -> None:
        bad = pa.field("x", pa.int32(), metadata={"PARQUET:field_id": text})
        for schema in (
            pa.schema([bad]),
            pa.schema([pa.field("s", pa.struct([bad]), metadata={"PARQUET:field_id": "1"})]),
        ):
            with pytest.raises(
                FormatError,
                match=r"without any: column 'x' has the field id '.*', expected a whole number .* of f\.parquet$",
            ):
                file_fields(schema, path="f.parquet")

    @pytest.mark.parametrize("key", ["PARQUET:field_id", "iceberg.id"])
    def test_none_is_a_negative_one(self, key: str) -> None:
        schema = pa.schema(
            [pa.field("x", pa.int32(), metadata={key: "-1"}), pa.field("y", pa.int32(), metadata={key: "7"})]
        )
        assert [field.field_id for field in walk(file_fields(schema))] == [None, 7]
