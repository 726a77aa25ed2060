"""Bad input gets one clear error that says what, where, expected, got and what to do; the table stays as it was."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import (
    FormatError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata.updates import Change, SetProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.table import Table
from tests.support.append_steps import commit_append, plan_append, read_result


@pytest.fixture(params=["hadoop", "sql"])
def catalog(request, tmp_path):
    uri = {"uri": f"sqlite:///{tmp_path / 'catalog.db'}"} if request.param == "sql" else {}
    catalog = load_catalog("prod", type=request.param, warehouse=(tmp_path / "wh").as_uri(), **uri)
    catalog.create_namespace("db")
    return catalog


@pytest.fixture
def table(catalog):
    table = Table.create(catalog, "db.t", schema={"id": "long not null", "name": "string"})
    table.append(pa.table({"id": [1], "name": ["a"]}))
    return table


def local_path(location):
    return Path(location.removeprefix("file://"))


def one_line(error):
    """What a person sees: one sentence, lower case, no full stop, none of Python's own words."""
    text = str(error.value)
    assert "\n" not in text, text
    assert not text.endswith("."), text
    assert text[0] == text[0].lower() or text.split()[0].isupper(), text
    assert "Traceback" not in text
    return text


class TestNamesThatAreNotThere:
    """Unknown tables, columns, transforms and types are named, together with what there is."""

    @pytest.mark.parametrize(
        ("call", "kind", "words"),
        [
            (lambda catalog: Table.load(catalog, "db.tt"), NotFoundError, ["db.tt"]),
            (lambda catalog: Table.create(catalog, "nowhere.t", schema={"id": "long"}), NotFoundError, ["nowhere"]),
            (lambda catalog: Table.load(catalog, "t"), InvalidInputError, ["'t'"]),
            (
                lambda catalog: Table.create(catalog, "db.x", schema={"id": "number"}),
                InvalidInputError,
                ["number", "id"],
            ),
            (lambda catalog: Table.load(catalog, "db.t").scan("nme = 'a'"), NotFoundError, ["nme", "name"]),
            (
                lambda catalog: Table.create(catalog, "db.x", schema={"id": "long"}, partition_by=["day(id)"]),
                InvalidInputError,
                ["day"],
            ),
        ],
        ids=["table", "namespace", "no namespace", "type", "column of a filter", "transform of another type"],
    )
    def test_they_are_named(self, catalog, table, call, kind, words):
        with pytest.raises(kind) as error:
            call(catalog)
        assert all(word in one_line(error) for word in words)

    @pytest.mark.parametrize("text", ["id >", "id = = 1", "drop table x", "select 1", "", "id = 'a'", "name > 1"])
    def test_a_filter_that_means_nothing(self, table, text):
        with pytest.raises(IcebergError) as error:
            table.scan(text)
        one_line(error)


class TestBrokenMetadata:
    """A torn, foreign or too new metadata file is refused by name and is never taken for an empty table."""

    @pytest.fixture
    def current(self, table):
        return local_path(table.metadata_location)

    @pytest.mark.parametrize("keep", [0, 1, 100, -1, None])
    def test_half_a_file_or_something_else(self, catalog, table, current, keep):
        whole = current.read_bytes()
        current.write_bytes(b'{"hello": "world"}' if keep is None else whole[:keep])
        with pytest.raises(FormatError) as error:
            Table.load(catalog, "db.t")
        assert current.name in one_line(error)
        current.write_bytes(whole)
        assert Table.load(catalog, "db.t").scan().count() == 1

    def test_format_version_4_is_refused_and_left_alone(self, catalog, table, current):
        document = json.loads(current.read_text())
        current.write_text(json.dumps(document | {"format-version": 4}))
        before = current.read_bytes()
        with pytest.raises(UnsupportedError) as error:
            Table.load(catalog, "db.t")
        assert "4" in one_line(error)
        with pytest.raises(UnsupportedError):
            Table.from_metadata(table.metadata_location)
        assert current.read_bytes() == before

    def test_a_manifest_list_that_is_gone(self, catalog, table):
        local_path(table.current_snapshot().manifest_list).unlink()
        with pytest.raises(NotFoundError) as error:
            Table.load(catalog, "db.t").scan().to_arrow()
        assert "snap-" in one_line(error)
        before = table.metadata_location
        with pytest.raises(IcebergError):
            table.append(pa.table({"id": [2]}))
        assert Table.load(catalog, "db.t").metadata_location == before

    @pytest.mark.parametrize(
        ("damage", "kind"),
        [(Path.unlink, NotFoundError), (lambda path: path.write_bytes(path.read_bytes()[:50]), FormatError)],
        ids=["gone", "half of it"],
    )
    def test_a_data_file(self, table, damage, kind):
        path = local_path(table.scan().plan_files()[0].file.file_path)
        damage(path)
        with pytest.raises(kind) as error:
            table.scan().to_arrow()
        assert path.name in one_line(error)


class TestACatalogThatIsDown:
    """A catalog that cannot be reached is a storage error, which Airflow retries; no password is shown."""

    @pytest.mark.parametrize("scheme", ["postgresql+psycopg2", "jdbc:postgresql"])
    def test_a_database_that_does_not_answer(self, tmp_path, scheme):
        uri = f"{scheme}://who:geheim@127.0.0.1:1/catalog"
        if scheme.startswith("jdbc"):
            uri = f"{scheme}://127.0.0.1:1/catalog?user=who&password=geheim"
        with pytest.raises(StorageError) as error:
            load_catalog("prod", type="sql", uri=uri, warehouse=tmp_path.as_uri()).list_namespaces()
        assert "127.0.0.1" in one_line(error)
        assert "geheim" not in str(error.value)
        assert "geheim" not in repr(error.value.__cause__)

    def test_a_warehouse_that_is_not_there(self, tmp_path):
        with pytest.raises(IcebergError) as error:
            load_catalog("prod", type="hadoop", warehouse=(tmp_path / "nothing").as_uri()).load("db.t")
        assert "db.t" in one_line(error)

    @pytest.mark.parametrize(
        ("options", "word"), [({"type": "hadop"}, "hadoop"), ({"type": "sql", "uri": "oracle://127.0.0.1/x"}, "oracle")]
    )
    def test_a_catalog_type_or_a_driver_that_is_not_there(self, options, word):
        with pytest.raises(InvalidInputError) as error:
            load_catalog("prod", warehouse="file:///tmp", **options).list_namespaces()
        assert word in one_line(error)


class TestSources:
    """What a job cannot load is named with its column, file and first value, before anything is committed."""

    def load(self, table, source):
        plan = plan_append(table, source)
        run_local(plan, table.io)
        return commit_append(table, plan, read_result(table, plan))

    def write(self, tmp_path, name, columns):
        path = tmp_path / name
        pq.write_table(pa.table(columns), path)
        return path.as_uri()

    @pytest.mark.parametrize(("columns", "words"), [
        ({"name": ["x"]}, ["'id'", "required"]),
        ({"id": [1], "name": ["x"], "extra": [1]}, ["'extra'"]),
        ({"id": [1, None], "name": ["x", "y"]}, ["'id'", "null"]),
        ({"id": ["seven"], "name": ["x"]}, ["'id'", "seven", "long"]),
        ({"ID": [1], "name": ["x"]}, ["'ID'"]),
        ({"id": pa.array([1.5]), "name": ["x"]}, ["'id'", "1.5"]),
        ({"id": pa.array([2**63], pa.uint64()), "name": ["x"]}, ["'id'", str(2**63)]),
    ])  # fmt: skip
    def test_rows_that_do_not_fit(self, table, tmp_path, columns, words):
        before = table.metadata_location
        with pytest.raises(InvalidInputError) as error:
            self.load(table, Source.from_files([self.write(tmp_path, "bad.parquet", columns)]))
        text = one_line(error)
        for word in [*words, "bad.parquet"]:
            assert word in text
        assert table.refresh().metadata_location == before
        assert table.scan().count() == 1

    def test_the_one_bad_file_among_good_ones_is_named(self, table, tmp_path):
        for number in range(3):
            self.write(tmp_path, f"good-{number}.parquet", {"id": [number], "name": ["x"]})
        self.write(tmp_path, "good-9.parquet", {"id": [1, 2, None], "name": ["x", "y", "z"]})
        with pytest.raises(InvalidInputError, match=r"good-9\.parquet"):
            self.load(table, Source.from_files(f"{tmp_path.as_uri()}/good-*.parquet"))
        assert table.refresh().scan().count() == 1

    def test_a_file_that_is_not_there_or_not_what_it_says(self, table, tmp_path):
        (tmp_path / "text.parquet").write_text("hello")
        for name, kind in (("none.parquet", NotFoundError), ("text.parquet", FormatError)):
            with pytest.raises(kind, match=re.escape(name)):
                self.load(table, Source.from_files((tmp_path / name).as_uri()))

    def test_a_glob_without_matches_is_an_empty_source(self, table, tmp_path):
        result = self.load(table, Source.from_files(f"{tmp_path.as_uri()}/none-*.parquet"))
        assert result.outcome == "nothing"
        assert len(table.refresh().snapshots()) == 1


class TestAStagingPrefixThatCannotBeWritten:
    """A job that could not be planned is not started, and the error says which prefix has to be writable."""

    def test_the_prefix_is_named(self, table):
        before = table.metadata_location
        staging = local_path(table.location) / ".staging"
        staging.write_text("in the way")
        with pytest.raises(StorageError) as error:
            plan_append(table, Source.from_files("file:///x.parquet"))
        assert re.search(r"staging prefix \S*/\.staging/", one_line(error))
        assert table.refresh().metadata_location == before

    def test_data_that_cannot_be_written_fails_the_job(self, catalog, tmp_path):
        table = Table.create(catalog, "db.nowhere", schema={"id": "long"})
        table.alter([{"set_properties": {"write.data.path": f"{table.location}/taken"}}])
        (local_path(table.location) / "taken").write_text("in the way")
        source = tmp_path / "s.parquet"
        pq.write_table(pa.table({"id": [1]}), source)
        plan = plan_append(table, Source.from_files(source.as_uri()))
        run_local(plan, table.io)
        with pytest.raises(StorageError, match="taken"):
            read_result(table, plan)
        assert table.refresh().current_snapshot() is None


def set_by_another_engine(catalog, table, name, value):
    """Set a property without asking what it may be, as other engines do."""
    catalog.commit(catalog.load(table.identifier), Change(updates=(SetProperties(updates={name: value}),)))
    return table.refresh()


class TestPropertiesThatCannotBe:
    """What would make a write fail is found when the property is set; else before a job is planned, let alone run."""

    @pytest.mark.parametrize(("name", "value", "expected"), [
        ("write.target-file-size-bytes", "0", "expected a number above 0"),
        ("write.target-file-size-bytes", "512MB", "expected a number"),
        ("write.parquet.compression-codec", "zip", "expected one of zstd, gzip, snappy"),
        ("write.parquet.bloom-filter-fpp.column.id", "1.5", "expected a number between 0 and 1"),
        ("write.parquet.stats-enabled.column.id", "yes", "expected true or false"),
        ("write.metadata.metrics.default", "truncate(0)", "unknown metrics mode 'truncate(0)'"),
        ("write.metadata.metrics.column.id", "all", "unknown metrics mode 'all'"),
        ("write.metadata.compression-codec", "zstd", "expected one of none, gzip"),
        ("write.distribution-mode", "sorted", "expected one of none, hash, range"),
        ("write.delete.mode", "merge", "expected one of copy-on-write, merge-on-read"),
        ("write.delete.isolation-level", "none", "expected one of serializable, snapshot"),
        ("write.delete.parquet.compression-level", "high", "expected a number"),
        ("write.update.mode", "merge", "expected one of copy-on-write, merge-on-read"),
        ("write.format.default", "feather", "expected one of parquet, avro, orc"),
        ("write.summary.partition-limit", "-1", "expected a number, 0 or above"),
        ("write.metadata.previous-versions-max", "some", "expected a number"),
        ("write.wap.enabled", "on", "expected true or false"),
        ("gc.enabled", "no", "expected true or false"),
        ("history.expire.max-snapshot-age-ms", "5 days", "expected a number"),
        ("commit.retry.num-retries", "x", "expected a number"),
        ("commit.manifest.min-count-to-merge", "some", "expected a number"),
        ("commit.manifest.target-size-bytes", "0", "expected a number above 0"),
    ])  # fmt: skip
    def test_who_sets_it_is_told(self, catalog, table, name, value, expected):
        with pytest.raises(InvalidInputError) as error:
            Table.create(catalog, "db.odd", schema={"id": "long"}, properties={name: value})
        assert expected in one_line(error)
        assert name in str(error.value)
        assert not catalog.table_exists("db.odd")
        before = table.metadata_location
        with pytest.raises(InvalidInputError, match=re.escape(name)):
            table.alter([{"add_column": {"name": "more", "type": "int"}}, {"set_properties": {name: value}}])
        assert table.refresh().metadata_location == before

    def test_one_that_is_there_already_is_in_nobodys_way(self, catalog, table):
        set_by_another_engine(catalog, table, "write.target-file-size-bytes", "512MB")
        table.alter([{"set_properties": {"owner": "me", "write.target-file-size-bytes": 1 << 20}}])
        assert table.properties["write.target-file-size-bytes"] == str(1 << 20)

    @pytest.mark.parametrize("value", ["orc", "ORC"])
    def test_a_format_of_other_engines_may_be_asked_for_and_is_said(self, catalog, caplog, value):
        properties = {"write.format.default": value}
        table = Table.create(catalog, "db.other", schema={"id": "long"}, properties=properties)
        assert f"property write.format.default is '{value}': files of this format come from other" in caplog.text
        with pytest.raises(UnsupportedError, match=r"write\.format\.default"):
            table.append(pa.table({"id": [1]}))

    @pytest.mark.parametrize(("name", "value"), [
        ("write.parquet.compression-codec", "bogus"),
        ("write.target-file-size-bytes", "1MB"),
        ("write.distribution-mode", "sorted"),
        ("write.summary.partition-limit", "many"),
        ("commit.retry.num-retries", "x"),
        ("commit.retry.min-wait-ms", "5s"),
        ("commit.status-check.num-retries", "1e3"),
    ])  # fmt: skip
    def test_a_write_names_what_another_engine_has_set(self, catalog, name, value):
        table = Table.create(catalog, "db.odd", schema={"id": "long"})
        set_by_another_engine(catalog, table, name, value)
        with pytest.raises(InvalidInputError) as error:
            plan_append(table, Source.from_files("file:///x.parquet"))
        assert name in one_line(error)
        assert value in one_line(error)
        assert not (local_path(table.location) / ".staging").exists()
        if not name.startswith("write.distribution"):
            with pytest.raises(InvalidInputError, match=name):
                table.append(pa.table({"id": [1]}))
        assert not (local_path(table.location) / "data").exists()

    @pytest.mark.parametrize(("name", "value"), [
        ("commit.manifest.min-count-to-merge", "0"),
        ("commit.manifest.min-count-to-merge", "-1"),
        ("commit.manifest.target-size-bytes", "0"),
        ("commit.manifest-merge.enabled", "no"),
        ("commit.retry.num-retries", "-1"),
        ("commit.retry.min-wait-ms", "-5"),
        ("commit.retry.max-wait-ms", "-5"),
        ("commit.retry.total-timeout-ms", "-1"),
        ("commit.status-check.num-retries", "-1"),
        ("commit.status-check.total-timeout-ms", "-1"),
        ("history.expire.min-snapshots-to-keep", "0"),
        ("history.expire.max-snapshot-age-ms", "-1"),
        ("write.target-file-size-bytes", "0"),
        ("write.object-storage.enabled", "yes"),
        ("write.object-storage.partitioned-paths", "1"),
        ("write.parquet.stats-enabled.column.id", "TRUE"),
        ("write.parquet.dict-encoding-enabled.column.id", "on"),
        ("write.parquet.bloom-filter-enabled.column.id", "yes"),
        ("write.summary.partition-limit", "-1"),
        ("write.metadata.previous-versions-max", "-1"),
        ("write.metadata.delete-after-commit.enabled", "yes"),
        ("write.metadata.metrics.default", "some"),
        ("write.metadata.metrics.max-inferred-column-defaults", "-1"),
        ("gc.enabled", "yes"),
        ("read.split.target-size", "0"),
    ])  # fmt: skip
    def test_a_table_that_java_writes_to_is_written_to(self, catalog, name, value):
        table = Table.create(catalog, "db.odd", schema={"id": "long"})
        set_by_another_engine(catalog, table, name, value)
        for number in range(3):
            table.append(pa.table({"id": [number]}))
        table.delete("id = 1")
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 2]
        if name.startswith("commit.manifest.min"):
            manifests = table.inspect.manifests()
            assert len(manifests) == 1, "two are merged when they meet"


class TestSourcesThatAreNone:
    """What names no source, or carries a password, is refused before a plan is written."""

    @pytest.mark.parametrize(
        ("name", "word"), [("", "empty name"), ("  ", "empty name"), ("ftp://who:geheim@host/x.parquet", "password")]
    )
    def test_it_is_refused(self, name, word):
        with pytest.raises(InvalidInputError) as error:
            Source.from_files([name])
        assert word in one_line(error)
        assert "geheim" not in str(error.value)

    def test_an_at_sign_in_a_path_is_no_password(self):
        assert Source.from_files("file:///a:b@c/x@y.parquet").files == ("file:///a:b@c/x@y.parquet",)


class TestArgumentsOfTheWrongKind:
    """What was meant for another place is said so, whatever Python would make of it."""

    @pytest.mark.parametrize(("columns", "message"), [
        *(
            (columns, r"table db\.bad would have no columns; name them")
            for columns in ({}, pa.schema([]), Schema())
        ),
        *((columns, "expected columns as names and types") for columns in ("id long", ["id", "long"], 5)),
    ], ids=str)  # fmt: skip
    def test_a_schema_without_columns_or_that_is_none(self, catalog, columns, message):
        with pytest.raises(InvalidInputError, match=message) as error:
            Table.create(catalog, "db.bad", schema=columns)
        one_line(error)
        assert not catalog.table_exists("db.bad")

    def test_the_name_before_the_catalog(self, catalog, table):
        for call in (lambda: Table.load("db.t", catalog), lambda: Table.create("db.t", catalog, schema={"id": "int"})):
            with pytest.raises(InvalidInputError, match="expected a catalog first and then the table's name, got str"):
                call()

    def test_a_name_that_is_none(self, catalog):
        with pytest.raises(InvalidInputError, match=r"expected the name of a table as 'namespace.table', got int"):
            Table.load(catalog, 5)

    @pytest.mark.parametrize(("argument", "expected"), [
        ({"as_of_ms": "yesterday"}, "as_of_ms is 'yesterday', expected an int: milliseconds since the epoch"),
        ({"snapshot_id": "5"}, "snapshot_id is '5', expected an int: the id of a snapshot"),
        ({"limit": 1.5}, "limit is 1.5, expected an int: rows"),
        ({"ref": 5}, "ref is the number 5 (int), expected the name of a branch or tag"),
        ({"selected_fields": "id"}, "expected a list of columns"),
    ])  # fmt: skip
    def test_a_scan(self, table, argument, expected):
        with pytest.raises(InvalidInputError, match=re.escape(expected)):
            table.scan(**argument)

    def test_properties_are_taken_alike_by_create_and_alter(self, catalog):
        given = {"write.target-file-size-bytes": 1048576, "write.wap.enabled": True, "a": 0.5}
        created = Table.create(catalog, "db.p1", schema={"id": "int"}, properties=given)
        altered = Table.create(catalog, "db.p2", schema={"id": "int"})
        altered.alter([{"set_properties": given}])
        expected = {"write.target-file-size-bytes": "1048576", "write.wap.enabled": "true", "a": "0.5"}
        assert created.properties == {**created.properties, **expected}
        assert altered.properties == {**altered.properties, **expected}

    def test_a_property_that_is_no_text(self, catalog):
        with pytest.raises(InvalidInputError, match="expected a text for property 'a', got list") as error:
            Table.create(catalog, "db.p3", schema={"id": "int"}, properties={"a": ["secret"]})
        assert "secret" not in one_line(error)


class TestATableThatIsThere:
    """With `if_not_exists` the table is taken as it is; that it is another one than described is logged."""

    def test_a_different_one(self, catalog, table, caplog):
        Table.create(catalog, "db.t", schema={"id": "string"}, partition_by=["id"], if_not_exists=True)
        for words in ("the type of column 'id': expected string, found long", "the partitioning: expected id, found"):
            assert f"table db.t exists and was not changed: {words}" in caplog.text

    def test_the_same_one(self, catalog, table, caplog):
        Table.create(catalog, "db.t", schema={"id": "long not null", "name": "string"}, if_not_exists=True)
        assert "exists and was not changed" not in caplog.text
