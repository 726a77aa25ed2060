"""Texts that no database, document or file system can hold are refused by our own error, which says what and where.

Half of a surrogate pair comes from JSON and from names of files that are no UTF-8; PostgreSQL has no NUL character.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.names import TableId, is_name, parse_namespace
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.updates import SetProperties, SetSnapshotRef
from airflow_iceberg.format.snapshots import SnapshotRef
from airflow_iceberg.storage.stores.store import parse_location
from airflow_iceberg.table import Table

HALF, NUL, LONG = "a\ud800b", "a\0b", "x" * 70_000
NAMES = {"half": HALF, "nul": NUL, "long": LONG}


def refused(action: Callable[[], Any]) -> str:
    """Return the message of our own error, which can be written to every log."""
    with pytest.raises(InvalidInputError) as raised:
        action()
    message = str(raised.value)
    message.encode()
    assert "\0" not in message
    assert len(message) < 1000
    return message


class TestNames:
    """Every catalog refuses a name before a request, and leaves it out of listings."""

    @pytest.mark.parametrize("bad", NAMES.values(), ids=NAMES)
    def test_of_tables_and_namespaces(self, bad: str) -> None:
        for action in (
            lambda: TableId.parse(f"s.{bad}"),
            lambda: TableId(namespace=("s",), name=bad),
            lambda: parse_namespace(bad),
            lambda: parse_namespace(("a", bad)),
        ):
            assert "table" in refused(action)
        assert not is_name(bad)
        assert is_name("a%FFb"), "what is no UTF-8 if decoded is a name as it is written"

    @pytest.mark.parametrize("bad", [HALF, NUL, LONG], ids=NAMES)
    @pytest.mark.parametrize("kind", ["sql", "hadoop", "rest", "nessie", "glue"])
    def test_in_every_catalog(self, kind: str, bad: str, tmp_path: Path) -> None:
        uri = f"sqlite:///{tmp_path}/c.db" if kind == "sql" else "http://127.0.0.1:1/api/v2"
        catalog = load_catalog("prod", type=kind, uri=uri, warehouse=f"file://{tmp_path}/wh", **{"glue.region": "x"})
        if kind != "hadoop":  # which renames no table
            refused(lambda: catalog.rename_table("s.t", f"s.{bad}"))
        for action in (
            lambda: catalog.create_namespace(bad),
            lambda: catalog.list_tables(bad),
            lambda: catalog.list_namespaces(bad),
            lambda: catalog.namespace_exists(bad),
            lambda: catalog.drop_namespace(bad),
            lambda: catalog.table_exists(f"s.{bad}"),
            lambda: catalog.drop_table(f"s.{bad}"),
            lambda: Table.load(catalog, f"s.{bad}"),
            lambda: Table.create(catalog, f"s.{bad}", schema={"id": "long"}),
        ):
            refused(action)

    def test_properties_of_namespaces_name_the_namespace(self, tmp_path: Path) -> None:
        catalog = load_catalog("prod", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
        catalog.create_namespace("s")
        for properties in ({"comment": HALF}, {"comment": NUL}, {HALF: "x"}, {NUL: "x"}, {LONG: "x"}):
            for action in (
                lambda given=properties: catalog.create_namespace("p", given),
                lambda given=properties: catalog.update_namespace_properties("s", updates=given),
            ):
                assert "namespace" in refused(action)
        assert catalog.list_namespaces() == (("s",),)

    def test_of_catalogs_and_their_properties_whose_values_are_not_shown(self, tmp_path: Path) -> None:
        good = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/wh"}
        for name in NAMES.values():
            assert "catalog" in refused(lambda name=name: load_catalog(name, **good))
        for key in ("uri", "warehouse", "token"):
            message = refused(lambda key=key: load_catalog("prod", **{**good, key: f"hunter22{HALF}"}))
            assert message == (
                f"property '{key}' of catalog prod contains half of a surrogate pair (U+D800, at character 9), "
                f"which is no character and cannot be stored; remove it"
            )
        assert "NUL" in refused(lambda: load_catalog("prod", **{**good, "uri": f"sqlite:///{NUL}"}))


class TestDocuments:
    """What is written into the documents of a table is refused before a file is written."""

    @pytest.fixture(params=["sql", "hadoop"])
    def table(self, request: pytest.FixtureRequest, tmp_path: Path) -> Table:
        catalog = load_catalog(
            "prod", type=request.param, uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh"
        )
        catalog.create_namespace("s")
        return Table.create(catalog, "s.t", schema={"id": "long"})

    def test_of_new_tables(self, table: Table, tmp_path: Path) -> None:
        def create(**given: Any) -> Callable[[], Any]:
            return lambda: Table.create(table.catalog, "s.u", **{"schema": {"id": "long"}, **given})

        for bad in NAMES.values():
            assert "column" in refused(create(schema={bad: "long"}))
            assert "property" in refused(create(properties={bad: "x"}))
        for bad in (HALF, LONG):
            if table.catalog.properties.get("type") == "sql":
                refused(create(location=f"file://{tmp_path}/wh/{bad}"))
        message = refused(create(properties={"owner": HALF}))
        assert message.startswith(
            "property 'owner' of the table contains half of a surrogate pair (U+D800, at character 1)"
        )
        assert not table.catalog.table_exists("s.u")

    def test_of_commits(self, table: Table) -> None:
        rows = pa.table({"id": [1]})
        files = len(list(table.io.list(table.location)))
        for bad in NAMES.values():
            assert "snapshot" in refused(lambda bad=bad: table.append(rows, snapshot_properties={bad: "x"}))
        assert "property 'x' of the snapshot" in refused(lambda: table.append(rows, snapshot_properties={"x": HALF}))
        assert len(list(table.io.list(table.location))) == files
        for bad in NAMES.values():
            for action in (
                lambda bad=bad: table.append(rows, branch=bad),
                lambda bad=bad: table.scan(ref=bad).to_arrow(),
                lambda bad=bad: table.scan(selected_fields=(bad,)).to_arrow(),
            ):
                with pytest.raises((NotFoundError, InvalidInputError)) as raised:
                    action()
                str(raised.value).encode()

    def test_of_branches_tags_and_properties(self) -> None:
        ref = SnapshotRef(snapshot_id=1)
        for bad in NAMES.values():
            assert "branch or tag" in refused(lambda bad=bad: SetSnapshotRef(ref_name=bad, ref=ref))
            refused(lambda bad=bad: SetProperties(updates={bad: "x"}))
        refused(lambda: SetProperties(updates={"comment": HALF}))
        SetProperties(updates={"field.delim": "\0", "schema.name-mapping.default": LONG})

    def test_of_runs(self) -> None:
        assert refused(lambda: OperationKey(dag_id="d", run_id=HALF, task_id="t")).startswith(
            "property 'run_id' of a task"
        )


class TestLocations:
    """A location is one of a store or of a file system."""

    def test_refused(self) -> None:
        for prefix in ("file:///tmp/", "/tmp/", "s3://b/", "hdfs://h/"):
            for bad in NAMES.values():
                refused(lambda prefix=prefix, bad=bad: parse_location(prefix + bad))
        refused(lambda: Table.from_metadata(f"file:///tmp/{HALF}.metadata.json"))

    def test_a_local_file_whose_name_is_no_utf8_is_one(self) -> None:
        name = b"a\xffb".decode("utf-8", "surrogateescape")
        assert parse_location(f"file:///tmp/{name}").path == f"/tmp/{name}"
        refused(lambda: parse_location(f"s3://b/{name}"))


class TestMessages:
    """A message can be written to every log and database, whatever is in it."""

    def test_of_errors(self) -> None:
        assert str(IcebergError(f"no {HALF} {NUL} é")) == r"no a\ud800b a\x00b é"
        long = str(IcebergError(f"cannot read {'x' * 100_000}; correct it"))
        assert len(long) < 40_000
        assert long.endswith("; correct it")
