"""Is what a REST server answers what was asked? Real servers that ignore parts of a change, or make another of it."""

import json
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.errors import CommitConflictError, CommitUnknownError, IcebergError, StorageError, UnsupportedError
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.catalogs.rest_contract import empty
from tests.catalogs.rest_servers import lakana
from tests.services.http_proxy import Forward, HttpProxy, error_page
from tests.services.nessie import start_nessie_rest
from tests.services.seaweedfs import BUCKET, SeaweedFS
from tests.support.http_server import Reply, Request
from tests.support.sampling import SEED, sampled

pytestmark = pytest.mark.services
ONE = pa.table({"id": [1]})
Document = dict[str, Any]


def ids(table: Table) -> list[int]:
    return sorted(Table.load(table.catalog, table.name).scan().to_arrow()["id"].to_pylist())


class Spoiled:
    """Hands the commits and creations of tables on in another form."""

    def __init__(self, change: Callable[[Document], None]) -> None:
        self.change = change

    def __call__(self, request: Request, forward: Forward) -> Reply | None:
        if request.method == "POST" and "/tables" in request.path:
            body = json.loads(request.body)
            self.change(body)
            spoiled = json.dumps(body).encode()
            headers = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
            request = replace(request, body=spoiled, headers={**headers, "Content-Length": str(len(spoiled))})
        return forward(request)


def without(*actions: str) -> Spoiled:
    """The server ignores some updates."""

    def change(body: Document) -> None:
        body["updates"] = [one for one in body.get("updates", ()) if one["action"] not in actions]

    return Spoiled(change)


def all_on_main(body: Document) -> None:
    """The server has one branch, to which all rows go, as Nessie's."""
    for one in body.get("updates", ()):
        if one["action"] == "set-snapshot-ref":
            one["ref-name"] = "main"
    body["requirements"] = [one for one in body.get("requirements", ()) if one["type"] != "assert-ref-snapshot-id"]


class TestIcebergJavaBehindAProxyThatSpoilsRequests:
    @pytest.fixture
    def proxy(self, iceberg_rest: Any) -> Iterator[HttpProxy]:
        self.plain = load_catalog("prod", **iceberg_rest.catalog_properties)
        empty(self.plain)
        self.plain.create_namespace("db")
        with HttpProxy(iceberg_rest.catalog_properties["uri"]) as proxy:
            yield proxy

    @pytest.fixture
    def table(self, proxy: HttpProxy) -> Table:
        catalog = load_catalog(
            "prod", type="rest", uri=proxy.uri, **{"allowed-locations": self.plain.properties["warehouse"]}
        )
        table = Table.create(catalog, "db.t", schema={"id": "long"})
        table.append(ONE)
        return table

    def test_rows_of_a_new_branch_never_reach_main(self, proxy: HttpProxy, table: Table) -> None:
        proxy.guard = Spoiled(all_on_main)
        for write in (table.append, table.overwrite):
            with pytest.raises(
                CommitUnknownError, match=r"branch 'audit' is missing, and main is at.*no rows were sent"
            ):
                write(pa.table({"id": [2]}), branch="audit", create_branch=True)
            assert ids(table) == [1]

    def test_nor_do_those_of_a_table_without_rows(self, proxy: HttpProxy, table: Table) -> None:
        new = Table.create(table.catalog, "db.u", schema={"id": "long"})
        proxy.guard = Spoiled(all_on_main)
        with pytest.raises(CommitUnknownError, match=r"branch 'audit' is missing, and main is at.*no rows were sent"):
            new.append(pa.table({"id": [2]}), branch="audit", create_branch=True)
        assert ids(new) == []
        proxy.guard = lambda request, forward: forward(request)
        other = Table.create(table.catalog, "db.v", schema={"id": "long"})
        other.append(pa.table({"id": [2]}), branch="audit", create_branch=True)
        assert (ids(other), len(Table.load(table.catalog, "db.v").scan(ref="audit").to_arrow())) == ([], 1)

    def test_the_empty_snapshot_of_a_branch_stays_readable_if_its_rows_are_refused(
        self, proxy: HttpProxy, table: Table
    ) -> None:
        retries = {"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "1"}
        for status, kind in ((409, CommitConflictError), (403, StorageError), (405, StorageError)):
            proxy.guard = lambda request, forward: forward(request)
            new = Table.create(table.catalog, f"db.u{status}", schema={"id": "long"}, properties=retries)

            def refuse_rows(request: Request, forward: Forward, status: int = status) -> Reply | None:
                is_rows = b"added-data-files" in request.body and request.method == "POST"
                return error_page(status) if is_rows else forward(request)

            proxy.guard = refuse_rows
            with pytest.raises(kind) as told:
                new.append(pa.table({"id": [2]}), branch="audit", create_branch=True)
            is_lost_race = kind is CommitConflictError
            assert is_lost_race or "branch 'audit' of table db.u" in str(told.value), told.value
            found = Table.load(table.catalog, f"db.u{status}")
            assert len(found.scan(ref="audit").to_arrow()) == 0
            proxy.guard = lambda request, forward: forward(request)
            found.append(pa.table({"id": [2]}), branch="audit")
            assert len(Table.load(table.catalog, f"db.u{status}").scan(ref="audit").to_arrow()) == 1

    def test_a_branch_is_created_before_it_gets_rows(self, proxy: HttpProxy, table: Table) -> None:
        proxy.count()
        table.append(pa.table({"id": [2]}), branch="audit", create_branch=True)
        assert [method for method, path in proxy.count() if path.endswith("/db/tables/t")].count("POST") == 2
        assert (ids(table), len(Table.load(table.catalog, "db.t").scan(ref="audit").to_arrow())) == ([1], 2)
        table.append(pa.table({"id": [3]}), branch="audit", create_branch=True)
        assert [method for method, _ in proxy.count()].count("POST") == 1

    @pytest.mark.parametrize(
        ("ignored", "changes", "message"),
        [
            ("upgrade-format-version", [{"upgrade_format_version": 3}], "it has format version 2, asked was 3"),
            ("set-default-spec", [{"add_partition_field": "bucket(4, id)"}], "it has the old partition spec"),
            ("set-current-schema", [{"add_column": {"name": "n", "type": "int"}}], "it has the old schema"),
            ("set-default-sort-order", [{"set_sort_order": ["id"]}], "it has the old sort order"),
            ("set-properties", [{"set_properties": {"a": "1"}}], "properties are missing or have other values: a"),
        ],
    )
    def test_what_a_server_ignores_is_not_committed(
        self, proxy: HttpProxy, table: Table, ignored: str, changes: Any, message: str
    ) -> None:
        proxy.guard = without(ignored)
        with pytest.raises(
            CommitUnknownError, match=f"answered that it did commit to table db.t, but .*{message}"
        ) as e:
            table.alter(changes)
        assert e.value.is_final
        proxy.guard = lambda request, forward: forward(request)
        table.alter(changes)

    def test_files_of_snapshots_that_a_server_keeps_are_not_deleted(self, proxy: HttpProxy, table: Table) -> None:
        table.overwrite(pa.table({"id": [2]}))
        first = table.metadata.snapshots[0]
        proxy.guard = without("remove-snapshots")
        with pytest.raises(CommitUnknownError, match="snapshots are still there"):
            expire_snapshots(Work(table), ExpireSnapshotsRequest(snapshot_ids=(first.snapshot_id,), older_than_ms=0))
        assert Table.load(table.catalog, "db.t").scan(snapshot_id=first.snapshot_id).to_arrow()["id"].to_pylist() == [1]

    def test_an_answer_with_the_old_state_is_not_believed(self, proxy: HttpProxy, table: Table) -> None:
        old: list[Reply] = []

        def stale(request: Request, forward: Forward) -> Reply:
            if request.method == "POST" and request.path.endswith("/tables/t"):
                before = forward(replace(request, method="GET", body=b""))
                forward(request)
                old.append(before)
                return before
            return forward(request)

        proxy.guard = stale
        table.append(pa.table({"id": [2]}))
        assert old
        assert len(table.scan().to_arrow()) == 2
        table.append(pa.table({"id": [3]}))
        assert ids(table) == [1, 2, 3]

    def test_a_server_that_writes_properties_in_its_own_way_has_made_the_table(
        self, proxy: HttpProxy, table: Table
    ) -> None:
        def change(body: Document) -> None:
            found = body.get("properties") or {}
            body["properties"] = {**{k: v.lower().rstrip("/") for k, v in found.items()}, "owner": "server"}

        proxy.guard = Spoiled(change)
        made = Table.create(table.catalog, "db.u", schema={"id": "long"}, properties={"a": "TRUE", "b": "s3://x/y/"})
        assert made.metadata.properties["owner"] == "server"

    def test_a_creation_in_an_older_version_is_told(self, proxy: HttpProxy, table: Table) -> None:
        def change(body: Document) -> None:
            body["properties"].pop("format-version", None)

        proxy.guard = Spoiled(change)
        with pytest.raises(
            CommitUnknownError, match=r"create table db\.u, but .* it has format version 2, asked was 3"
        ):
            Table.create(table.catalog, "db.u", schema={"id": "long"}, properties={"format-version": "3"})


@pytest.fixture(scope="module")
def nessie_rest(seaweedfs: SeaweedFS) -> Iterator[tuple[SeaweedFS, str]]:
    server, uri = start_nessie_rest(seaweedfs)
    yield seaweedfs, uri
    server.stop()


def nessie_catalog(s3: SeaweedFS, uri: str) -> Catalog:
    own = {"allowed-locations": f"s3://{BUCKET}/", "header.X-Iceberg-Access-Delegation": "none"}
    catalog = load_catalog("prod", type="rest", uri=uri, warehouse="wh", **s3.s3_properties, **own)
    catalog.create_namespace("db", if_not_exists=True)
    return catalog


class TestNessie:
    """Its REST endpoint shows one snapshot, no log and no parents, keeps version 2 alone, and no branches."""

    @pytest.fixture
    def catalog(self, nessie_rest: tuple[SeaweedFS, str]) -> Catalog:
        return nessie_catalog(*nessie_rest)

    def test_branches_are_refused(self, catalog: Catalog) -> None:
        table = Table.create(catalog, "db.branches", schema={"id": "long"})
        for rows in ([], [1]):
            if rows:
                table.append(ONE)
            with pytest.raises(UnsupportedError, match=r"its server is Nessie, whose .* type=nessie"):
                table.append(pa.table({"id": [2]}), branch="audit", create_branch=True)
            assert ids(table) == rows
        with pytest.raises(UnsupportedError, match="cannot set 'v1'"):
            table.create_tag("v1")

    def test_what_it_does_not_do_is_told(self, catalog: Catalog) -> None:
        with pytest.raises(CommitUnknownError, match="it has format version 2, asked was 3"):
            Table.create(catalog, "db.three", schema={"id": "long"}, properties={"format-version": "3"})
        with pytest.raises(CommitUnknownError, match="it has format version 2, asked was 1"):
            Table.create(catalog, "db.one", schema={"id": "long"}, properties={"format-version": "1"})
        table = Table.create(catalog, "db.two", schema={"id": "long"})
        for change in (lambda: None, lambda: table.append(ONE)):
            change()
            with pytest.raises(UnsupportedError, match=r"500 Unsupported.*Implement format version update"):
                table.alter([{"upgrade_format_version": 3}])
        assert (Table.load(catalog, "db.two").metadata.format_version, ids(table)) == (2, [1])

    def test_a_spec_is_changed(self, catalog: Catalog) -> None:
        """It does not see a new spec with the id of one that is there."""
        table = Table.create(catalog, "db.spec", schema={"id": "long"})
        table.append(ONE)
        table.alter([{"add_partition_field": "bucket(4, id)"}])
        table.append(pa.table({"id": [2]}))
        assert [len(Table.load(catalog, "db.spec").spec().fields), *ids(table)] == [1, 1, 2]

    def test_a_lost_race_is_no_open_outcome(self, catalog: Catalog) -> None:
        table = Table.create(catalog, "db.races", schema={"id": "long"}, properties={"commit.retry.num-retries": "40"})
        table.append(ONE)
        errors: list[IcebergError] = []

        def write(writer: int) -> None:
            own = Table.load(catalog, "db.races")
            for number in range(4):
                try:
                    own.append(pa.table({"id": [10 * writer + number]}))
                except IcebergError as error:
                    errors.append(error)

        writers = [threading.Thread(target=write, args=(number,)) for number in (1, 2, 3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert errors == []
        assert ids(table) == [1, *(10 * writer + number for writer in (1, 2, 3) for number in range(4))]


class TestWaysBack:
    """Random changes of schema, spec and order, with ways back to what the table had: as on a Hadoop catalog."""

    CHANGES = (
        {"add_column": {"name": "n", "type": "int"}},
        {"add_column": {"name": "o", "type": "string"}},
        {"drop_column": "n"},
        {"drop_column": "o"},
        {"rename_column": {"from": "n", "to": "m"}},
        {"rename_column": {"from": "m", "to": "n"}},
        {"move_column": {"name": "d", "first": True}},
        {"move_column": {"name": "id", "first": True}},
        {"add_partition_field": "day(d)"},
        {"add_partition_field": "bucket(4, id)"},
        {"drop_partition_field": "day(d)"},
        {"drop_partition_field": "bucket(4, id)"},
        {"set_sort_order": ["id"]},
        {"set_sort_order": ["d", "id desc"]},
        {"set_sort_order": []},
    )

    def shape(self, table: Table) -> list[Any]:
        schema = table.schema()
        spec = [(str(one.transform), schema.find_name(one.source_id)) for one in table.spec().fields]
        order = [(schema.find_name(one.source_id), one.direction) for one in table.sort_order().fields]
        return [[(one.name, str(one.type)) for one in schema.fields], spec, order]

    def check(self, catalog: Catalog, tmp_path: Path, name: str, space: str = "db") -> None:
        model = load_catalog("model", type="hadoop", warehouse=tmp_path.as_uri())
        model.create_namespace("db")
        tried: list[str | None] = []
        for number in range(sampled(200)):
            seed = f"{SEED} {name} {number}"
            try:
                tried.append(self.sequence(catalog, model, f"{space}.s{number}", seed))
            except IcebergError as error:
                tried.append(f"{seed}: {error!r}")
        print(f"{len(tried)} sequences of seed {SEED} on {name}")
        assert [problem for problem in tried if problem] == []

    def sequence(self, catalog: Catalog, model: Catalog, name: str, seed: str) -> str | None:
        """Change two tables alike, and return how they differ; None if they do not."""
        dice = random.Random(seed)
        columns = {"id": "long", "d": "date"}
        made = f"db.{name.rpartition('.')[2]}"
        table, other = Table.create(catalog, name, schema=columns), Table.create(model, made, schema=columns)
        for _ in range(8):
            change = dice.choice(self.CHANGES)
            ends = [self.end(each, change) for each in (table, other)]
            if ends[0] != ends[1]:
                return f"{seed}: {change} ends with {ends}"
        if self.shape(table) != self.shape(other):
            return f"{seed}: {self.shape(table)}, wanted {self.shape(other)}"
        table.append(pa.table({one.name: pa.nulls(1) for one in table.schema().fields}))
        if (found := self.shape(Table.load(catalog, name))) != self.shape(other):
            return f"{seed}: {found} after rows, wanted {self.shape(other)}"
        catalog.drop_table(name)
        return None

    def end(self, table: Table, change: dict[str, Any]) -> type[IcebergError] | None:
        try:
            table.alter([change])
        except IcebergError as error:
            return type(error)
        return None

    @pytest.mark.generated
    def test_on_iceberg_java(self, iceberg_rest: Any, tmp_path: Path) -> None:
        catalog = load_catalog("prod", **iceberg_rest.catalog_properties)
        empty(catalog)
        catalog.create_namespace("db")
        self.check(catalog, tmp_path, "java")

    @pytest.mark.generated
    def test_on_seaweedfs(self, seaweedfs: SeaweedFS, tmp_path: Path) -> None:
        catalog = load_catalog("prod", **seaweedfs.catalog_properties)
        empty(catalog)
        catalog.create_namespace("db")
        self.check(catalog, tmp_path, "seaweedfs")

    @pytest.mark.generated
    def test_on_nessie(self, nessie_rest: tuple[SeaweedFS, str], tmp_path: Path) -> None:
        self.check(nessie_catalog(*nessie_rest), tmp_path, "nessie")

    @pytest.mark.generated
    def test_on_lakana(self, tmp_path: Path) -> None:
        with lakana() as peer:
            self.check(peer.fresh(), tmp_path, "lakana", peer.space)
