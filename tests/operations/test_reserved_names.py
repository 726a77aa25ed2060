"""Columns that Iceberg adds to every table: no new column gets such a name, and tables that have one can be read."""

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.table import Table
from tests.support.builders import id_rows, ids, job_work, new_catalog, new_table

LINEAGE = ("_row_id", "_last_updated_sequence_number")
NAMES = (*LINEAGE, "_file", "_pos", "_deleted", "_spec_id", "_partition", "_ROW_ID")
REWRITE_ALL = CompactRequest(options={"rewrite-all": True})


def of_another_writer(folder: Path, version: int, name: str) -> Table:
    """A table with such a column, and rows 1 and 2."""
    catalog = new_catalog(folder)
    Table.create(catalog, "db.t", schema={"id": "long", "taken": "long"}, properties={"format-version": str(version)})
    path = folder / "db/t/metadata/v1.metadata.json"
    path.write_text(path.read_text().replace('"taken"', f'"{name}"'))
    table = Table.load(catalog, "db.t")
    table.append(pa.table({"id": [1, 2], name: [7, 8]}))
    return table


@pytest.mark.parametrize("version", ["1", "2", "3"])
@pytest.mark.parametrize("name", NAMES)
class TestNewColumns:
    """The names are refused in every version: it may be upgraded, and readers add the others in all of them."""

    def test_a_table_is_not_created_with_one(self, tmp_path, version, name):
        with pytest.raises(InvalidInputError, match=rf"column '{name}' cannot have this name: it is reserved"):
            new_table(tmp_path, schema={"id": "long", name: "long"}, properties={"format-version": version})

    def test_none_is_added_or_renamed_to_one(self, tmp_path, version, name):
        table = new_table(tmp_path, schema={"id": "long", "x": "long"}, properties={"format-version": version})
        before = table.metadata_location
        for change in (
            {"add_column": {"name": name, "type": "long"}},
            {"rename_column": {"from": "x", "to": name}},
            {"union_by_name": {"id": "long", name: "long"}},
        ):
            with pytest.raises(InvalidInputError, match=rf"'{name}' cannot have this name"):
                table.alter([change])
        rows = pa.table({"id": [1], "x": [1], name: [1]})
        with pytest.raises(InvalidInputError, match=rf"'{name}' cannot have this name"):
            table.append(rows, schema_evolution="add_columns")
        assert table.refresh().metadata_location == before

    def test_a_field_of_a_struct_may_have_one(self, tmp_path, version, name):
        table = new_table(tmp_path, schema={"id": "long", "s": f"struct<x: int, `{name}`: long>"})
        table.alter(
            [{"rename_column": {"from": f"s.{name}", "to": "y"}}, {"rename_column": {"from": "s.x", "to": name}}]
        )
        table.append(pa.table({"id": [1], "s": [{name: 1, "y": 2}]}, schema=table.scan().to_arrow().schema))
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "s": {name: 1, "y": 2}}]


class TestTablesOfOtherWriters:
    """They are read as they are; only what cannot be written is refused, with what to do."""

    @pytest.mark.parametrize("version", [1, 2, 3])
    @pytest.mark.parametrize("name", NAMES)
    def test_rows_are_read_and_appended_and_columns_changed(self, tmp_path, version, name):
        table = of_another_writer(tmp_path, version, name)
        table.append(pa.table({"id": [3], name: [9]}))
        assert table.scan(f"{name} > 7").to_arrow().sort_by("id").to_pylist() == [
            {"id": 2, name: 8},
            {"id": 3, name: 9},
        ]
        assert table.scan(selected_fields=(name,)).to_arrow()[name].to_pylist().count(7) == 1
        table.alter([{"add_column": {"name": "more", "type": "int"}}])
        assert table.refresh().inspect.files().num_rows == 2

    @pytest.mark.costly
    @pytest.mark.parametrize("name", LINEAGE)
    def test_the_upgrade_to_version_3_is_refused_until_the_column_has_another_name(self, tmp_path, name):
        table = of_another_writer(tmp_path, 2, name)
        compact(job_work(table), REWRITE_ALL)
        upgrade, rename = {"upgrade_format_version": 3}, {"rename_column": {"from": name, "to": "theirs"}}
        with pytest.raises(
            InvalidInputError, match=rf"column '{name}' has a name that format version 3 reserves.*rename"
        ):
            table.refresh().alter([upgrade])
        assert table.refresh().metadata.format_version == 2
        table.alter([upgrade, rename])
        table.refresh().delete("id = 1")
        compact(job_work(table), REWRITE_ALL)
        rows = table.refresh().scan(selected_fields=("id", "theirs", "_row_id")).to_arrow().to_pylist()
        assert [(row["id"], row["theirs"]) for row in rows] == [(2, 8)]
        assert rows[0]["_row_id"] is not None

    @pytest.mark.parametrize("name", LINEAGE)
    def test_in_version_3_its_rows_are_not_rewritten(self, tmp_path, name):
        """The file would have two columns of one name."""
        table = of_another_writer(tmp_path, 3, name)
        for rewrite in (lambda: table.delete("id = 1"), lambda: compact(job_work(table), REWRITE_ALL)):
            with pytest.raises(InvalidInputError, match=rf"column '{name}' has a name .* rename the column first"):
                rewrite()
        table.delete("id = 1", mode="merge-on-read")
        assert ids(table) == [2]

    @pytest.mark.parametrize("name", ["_file", "_ROW_ID"])
    def test_other_names_do_not_hinder_an_upgrade(self, tmp_path, name):
        table = of_another_writer(tmp_path, 2, name)
        table.alter([{"upgrade_format_version": 3}])
        table.refresh().delete("id = 1")
        assert table.scan().to_arrow().to_pylist() == [{"id": 2, name: 8}]


def test_no_column_of_the_table_is_meant(tmp_path):
    table = new_table(tmp_path, properties={"format-version": "3"})
    table.append(id_rows([1]))
    assert table.scan(selected_fields=("_row_id", "_file")).to_arrow().num_rows == 1
