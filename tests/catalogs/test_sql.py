"""The SQL catalog on SQLite, and beside PyIceberg's SqlCatalog in one file."""

import re
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from sqlalchemy.engine import make_url

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.sql.database import parse_url
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from tests.catalogs.contract import CatalogContract, commit_in_fork_and_parent, commit_until_done, make_table, setting
from tests.support.faults import all_texts
from tests.support.memory import Fault, FaultyCatalog


class TestContract(CatalogContract):
    """A SQL catalog is a catalog."""


@pytest.fixture
def database(tmp_path):
    return tmp_path / "catalog.db"


@pytest.fixture
def properties(tmp_path, database):
    return {"uri": f"sqlite:///{database}", "warehouse": f"file://{tmp_path}/warehouse"}


def query(database, sql, *parameters):
    with closing(sqlite3.connect(database)) as connection, connection:
        return connection.execute(sql, parameters).fetchall()


def columns_of(database, table, asked="name, type, pk"):
    return query(database, f"select {asked} from pragma_table_info('{table}')")


class TestRows:
    """Tables, keys and rows are those of Iceberg's JdbcCatalog."""

    def test_the_tables_have_its_columns_and_keys(self, catalog, database):
        catalog.list_tables("db")
        assert columns_of(database, "iceberg_tables") == [
            ("catalog_name", "VARCHAR(255)", 1),
            ("table_namespace", "VARCHAR(255)", 2),
            ("table_name", "VARCHAR(255)", 3),
            ("metadata_location", "VARCHAR(1000)", 0),
            ("previous_metadata_location", "VARCHAR(1000)", 0),
            ("iceberg_type", "VARCHAR(5)", 0),
        ]
        assert columns_of(database, "iceberg_namespace_properties") == [
            ("catalog_name", "VARCHAR(255)", 1),
            ("namespace", "VARCHAR(255)", 2),
            ("property_key", "VARCHAR(255)", 3),
            ("property_value", "VARCHAR(1000)", 0),
        ]

    def test_a_table_is_a_row_that_points_to_its_metadata_and_the_one_before(self, catalog, database):
        made = make_table(catalog)
        (row,) = query(database, "select * from iceberg_tables")
        assert row == ("prod", "db", "t", made.metadata_location, None, "TABLE")
        committed = catalog.commit(made, setting(a="1"))
        (row,) = query(database, "select * from iceberg_tables")
        assert row == ("prod", "db", "t", committed.metadata_location, made.metadata_location, "TABLE")

    def test_metadata_files_are_numbered_with_a_unique_part(self, catalog):
        state = make_table(catalog)
        name = state.metadata_location.rpartition("/")[2]
        assert re.fullmatch(r"00000-[0-9a-f-]{36}\.metadata\.json", name)
        assert "/00001-" in catalog.commit(state, setting(a="1")).metadata_location

    def test_metadata_goes_where_the_table_wants_it(self, catalog, tmp_path):
        catalog.properties = {**catalog.properties, "allowed-locations": f"{tmp_path}/elsewhere"}
        state = make_table(catalog, **{"write.metadata.path": f"{tmp_path}/elsewhere/"})
        assert state.metadata_location.startswith(f"{tmp_path}/elsewhere/00000-")

    def test_an_empty_namespace_lives_by_a_row_of_its_own(self, catalog, database):
        catalog.create_namespace("a.b", {"owner": "me"})
        rows = query(database, "select * from iceberg_namespace_properties where namespace = 'a.b' order by 3")
        assert rows == [("prod", "a.b", "exists", "true"), ("prod", "a.b", "owner", "me")]

    def test_that_row_is_nobodys_property(self, catalog):
        assert "exists" not in catalog.load_namespace_properties("db")
        with pytest.raises(InvalidInputError, match="'exists' is not a property"):
            catalog.update_namespace_properties("db", removals=["exists"])
        with pytest.raises(InvalidInputError, match="'exists' is not a property"):
            catalog.create_namespace("new", {"exists": "no"})

    def test_a_namespace_stays_when_its_last_property_goes(self, catalog, database):
        """PyIceberg leaves out the row `exists` when there are properties."""
        query(database, "insert into iceberg_namespace_properties values ('prod', 'theirs', 'owner', 'me')")
        catalog.update_namespace_properties("theirs", removals=["owner"])
        assert catalog.namespace_exists("theirs")

    def test_a_namespace_may_say_where_its_tables_are(self, catalog, tmp_path):
        catalog.create_namespace("far", {"location": f"{tmp_path}/far/"})
        assert catalog.default_location("far.t") == f"{tmp_path}/far/t"

    def test_without_a_warehouse_a_table_has_no_default_location(self, properties):
        catalog = load_catalog("prod", uri=properties["uri"])
        catalog.create_namespace("db")
        with pytest.raises(InvalidInputError, match=r"property 'warehouse' is missing, set it or give table db\.t a"):
            catalog.default_location("db.t")

    def test_catalogs_of_other_names_in_the_same_database_are_other_catalogs(self, catalog, properties):
        make_table(catalog)
        other = load_catalog("test", **properties)
        assert other.list_namespaces() == ()
        assert not other.table_exists("db.t")

    def test_a_row_without_a_location_is_reported(self, catalog, database):
        query(database, "insert into iceberg_tables values ('prod', 'db', 't', null, null, 'TABLE')")
        with pytest.raises(FormatError, match=r"table db\.t has no metadata_location"):
            catalog.load("db.t")

    def test_names_are_data_and_never_sql(self, catalog):
        name = TableId(namespace=("db",), name="t'; drop table iceberg_tables; --")
        with pytest.raises(NotFoundError):
            catalog.load(name)
        assert catalog.list_tables("db") == ()

    def test_a_table_that_the_others_named_with_a_dot_can_be_reached_by_its_id(self, catalog):
        name = TableId(namespace=("db",), name="a.b")
        state = catalog.create(name, make_table(catalog).metadata)
        assert catalog.load(name) == state
        assert not catalog.table_exists("db.a.b")


class TestSchemaVersions:
    """V0 has no column iceberg_type; V1 has it, and tables and views are told apart by it."""

    V0 = (
        "create table iceberg_tables (catalog_name varchar(255) not null, table_namespace varchar(255) not null, "
        "table_name varchar(255) not null, metadata_location varchar(1000), previous_metadata_location varchar(1000), "
        "primary key (catalog_name, table_namespace, table_name))"
    )

    def test_a_v0_catalog_is_used_as_it_is(self, properties, database):
        query(database, self.V0)
        catalog = load_catalog("prod", **properties)
        catalog.create_namespace("db")
        state = catalog.commit(make_table(catalog), setting(a="1"))
        assert catalog.load("db.t") == state
        assert catalog.list_tables("db") == (TableId.parse("db.t"),)
        assert "iceberg_type" not in dict(columns_of(database, "iceberg_tables", "name, type"))

    def test_a_v0_catalog_is_upgraded_when_asked(self, properties, database):
        query(database, self.V0)
        old = load_catalog("prod", **properties)
        old.create_namespace("db")
        state = make_table(old)
        catalog = load_catalog("prod", **properties, **{"jdbc.schema-version": "V1"})
        assert catalog.load("db.t") == state
        assert query(database, "select iceberg_type from iceberg_tables") == [(None,)]
        assert old.commit(state, setting(a="1")) == catalog.load("db.t")

    def test_a_new_catalog_is_v0_when_asked(self, properties, database):
        load_catalog("prod", **properties, **{"jdbc.schema-version": "V0"}).create_namespace("db")
        assert "iceberg_type" not in dict(columns_of(database, "iceberg_tables", "name, type"))

    def test_another_version_is_refused(self, properties):
        with pytest.raises(InvalidInputError, match=r"jdbc\.schema-version is 'V7', expected 'V0' or 'V1'"):
            load_catalog("prod", **properties, **{"jdbc.schema-version": "V7"})

    def test_a_view_is_no_table(self, catalog, database):
        catalog.list_namespaces()
        query(database, "insert into iceberg_tables values ('prod', 'db', 'v', '/v.json', null, 'VIEW')")
        assert catalog.list_tables("db") == ()
        assert not catalog.table_exists("db.v")
        with pytest.raises(NotFoundError):
            catalog.drop_table("db.v")
        with pytest.raises(AlreadyExistsError):
            make_table(catalog, "db.v")
        with pytest.raises(InvalidInputError, match="namespace db is not empty"):
            catalog.drop_namespace("db")

    def test_tables_are_not_made_when_that_is_not_wanted(self, properties, database):
        catalog = load_catalog("prod", **properties, init_catalog_tables="false")
        with pytest.raises(NotFoundError, match="has no Iceberg tables and init_catalog_tables is false"):
            catalog.list_namespaces()
        assert query(database, "select * from sqlite_master") == []


class TestWhoOnlyReads:
    """Nothing is created by a look: neither the file, which may be mistyped, nor the tables."""

    def test_an_empty_catalog_until_the_first_change(self, properties, database, tmp_path):
        catalog = load_catalog("prod", **properties)
        for makes_file in (False, True):
            if makes_file:
                query(database, "create table other (id int)")
            before = sorted(tmp_path.rglob("*"))
            assert catalog.list_namespaces() == ()
            assert not catalog.namespace_exists("db")
            assert not catalog.table_exists("db.t")
            assert catalog.kind_of_name(TableId.of("db.t")) is None
            assert catalog.why_missing(TableId.of("db.t")) == "the database has no tables at all"
            for look in (catalog.load, catalog.list_tables, catalog.load_namespace_properties):
                with pytest.raises(NotFoundError):
                    look("db.t")
            assert sorted(tmp_path.rglob("*")) == before
        assert query(database, "select name from sqlite_master") == [("other",)]
        catalog.create_namespace("db")
        assert catalog.list_namespaces() == (("db",),)
        assert load_catalog("prod", **properties).namespace_exists("db")

    def test_one_who_waits_sees_the_tables_that_another_makes(self, properties):
        waiting = load_catalog("prod", **properties)
        assert not waiting.table_exists("db.t")
        other = load_catalog("prod", **properties)
        other.create_namespace("db")
        make_table(other)
        assert waiting.load("db.t").metadata.location == other.load("db.t").metadata.location

    def test_a_file_that_is_removed_meanwhile_is_not_made_again(self, properties, database):
        catalog = load_catalog("prod", **properties)
        catalog.create_namespace("db")
        database.unlink()
        with pytest.raises(StorageError, match="unable to open database file"):
            catalog.list_namespaces()
        assert not database.exists()

    def test_a_look_with_limits_upgrades_no_table(self, properties, database):
        query(database, TestSchemaVersions.V0)
        old = load_catalog("prod", **properties)
        old.create_namespace("db")
        state = make_table(old)
        looking = load_catalog("prod", **properties, **{"jdbc.schema-version": "V1"})
        looking.limit_reads()
        assert looking.load("db.t") == state
        assert "iceberg_type" not in dict(columns_of(database, "iceberg_tables", "name, type"))

    def test_a_look_with_limits_does_not_complete_tables(self, properties, database):
        query(database, TestSchemaVersions.V0)
        looking = load_catalog("prod", **properties)
        looking.limit_reads()
        with pytest.raises(NotFoundError, match="has no table iceberg_namespace_properties; the first change creates"):
            looking.list_namespaces()
        assert query(database, "select name from sqlite_master where type = 'table'") == [("iceberg_tables",)]
        assert load_catalog("prod", **properties).list_namespaces() == ()

    def test_a_path_with_all_signs_of_a_uri(self, properties, tmp_path):
        folder = tmp_path / "a b%20c#d&e"
        folder.mkdir()
        uri = f"sqlite:///{folder}/catalog.db".replace("%", "%25")
        load_catalog("prod", **{**properties, "uri": uri}).create_namespace("db")
        assert load_catalog("prod", **{**properties, "uri": uri}).list_namespaces() == (("db",),)
        assert [each.name for each in folder.iterdir()] == ["catalog.db"]


class TestAddresses:
    """A database is named as SQLAlchemy or as JDBC does; a password stays where it is."""

    @pytest.mark.parametrize(
        ("uri", "expected"),
        [
            ("sqlite:////tmp/c.db", "sqlite:////tmp/c.db"),
            ("jdbc:sqlite:/tmp/c.db", "sqlite:////tmp/c.db"),
            ("jdbc:sqlite:file:/tmp/c.db", "sqlite:////tmp/c.db"),
            ("jdbc:sqlite:c.db", "sqlite:///c.db"),
            ("jdbc:sqlite::memory:", "sqlite:///:memory:"),
            ("jdbc:sqlite:file::memory:?cache=shared", "sqlite:///:memory:"),
            ("postgresql://u:p@h:5433/d", "postgresql+psycopg2://u:p@h:5433/d"),
            ("postgres://u@h/d", "postgresql+psycopg2://u@h/d"),
            ("postgresql+psycopg2://h/d", "postgresql+psycopg2://h/d"),
            ("jdbc:postgresql://h:5433/d", "postgresql+psycopg2://h:5433/d"),
            ("jdbc:postgresql:d", "postgresql+psycopg2:///d"),
            ("jdbc:postgresql://h/d?user=u&password=p%26q", "postgresql+psycopg2://u:p%26q@h/d"),
            ("jdbc:postgresql://h/d?sslmode=require&ApplicationName=a", "postgresql+psycopg2://h/d?application_name=a&sslmode=require"),
            ("jdbc:postgresql://h/d?currentSchema=lake", "postgresql+psycopg2://h/d?options=-csearch_path%3Dlake"),
        ],
    )  # fmt: skip
    def test_uris_are_understood(self, uri, expected):
        assert parse_url("prod", {"uri": uri}) == make_url(expected)

    def test_user_and_password_may_be_given_beside_the_uri(self):
        for prefix in ("", "jdbc."):
            given = {"uri": "postgresql://h/d", f"{prefix}user": "me", f"{prefix}password": "s3cret"}
            url = parse_url("prod", given)
            assert (url.username, url.password) == ("me", "s3cret")

    def test_a_setting_of_jdbc_that_we_do_not_know_is_not_dropped_silently(self):
        with pytest.raises(InvalidInputError, match="setting 'ssl' of a JDBC uri is unknown"):
            parse_url("prod", {"uri": "jdbc:postgresql://h/d?ssl=true"})

    @pytest.mark.parametrize(
        "uri",
        ["nonsense s3cret", "nosuchdatabase://u:s3cret@h/d", "postgresql://u:s3cret@h:port/d", "jdbc:s3cret", "s3cret"],
    )
    def test_what_is_no_uri_is_refused_without_being_repeated(self, uri):
        with pytest.raises(InvalidInputError, match="catalog prod: its uri is not understood") as raised:
            load_catalog("prod", type="sql", uri=uri)
        assert "s3cret" not in all_texts(raised.value)

    def test_a_uri_is_needed(self):
        with pytest.raises(InvalidInputError, match="catalog prod: property 'uri' is missing"):
            load_catalog("prod", type="sql")

    def test_a_server_that_is_down_is_named_without_password(self):
        catalog = load_catalog("prod", uri="postgresql://lab:s3cret@127.0.0.1:9/lake", warehouse="/w")
        assert "s3cret" not in repr(catalog)
        with pytest.raises(StorageError) as raised:
            catalog.load("db.t")
        said = "catalog prod cannot connect to the postgresql database lake on 127.0.0.1:9: "
        assert str(raised.value).startswith(said)
        assert "\n" not in str(raised.value)
        assert "s3cret" not in all_texts(raised.value)

    def test_a_directory_that_is_not_there_is_named(self, tmp_path):
        catalog = load_catalog("prod", uri=f"sqlite:///{tmp_path}/nope/catalog.db")
        with pytest.raises(StorageError, match=rf"cannot connect to the sqlite database {tmp_path}/nope/catalog\.db"):
            catalog.list_namespaces()

    def test_a_file_that_is_no_database_is_an_error(self, tmp_path):
        (tmp_path / "catalog.db").write_bytes(b"this is no database" * 100)
        with pytest.raises(StorageError, match=r"catalog prod cannot .* the sqlite database .*not a database"):
            load_catalog("prod", uri=f"sqlite:///{tmp_path}/catalog.db").list_namespaces()

    def test_a_database_in_memory_lives_as_long_as_the_catalog(self, tmp_path):
        catalog = load_catalog("prod", uri="sqlite://", warehouse=f"file://{tmp_path}")
        catalog.create_namespace("db")
        make_table(catalog)
        assert commit_until_done(catalog, "db.t", 3, "n") == 0
        assert catalog.load("db.t").metadata_location.rpartition("/")[2].startswith("00003-")


class TestLocks:
    """SQLite has one writer at a time: who comes later waits, and who waited too long says so."""

    @pytest.fixture
    def hasty(self, catalog, properties):
        make_table(catalog)
        hasty = load_catalog("prod", **{**properties, "uri": f"{properties['uri']}?timeout=0.1"})
        hasty.load("db.t")
        return hasty

    def test_a_lock_that_is_held_for_too_long_is_an_error_and_nothing_has_changed(self, catalog, database, hasty):
        state = catalog.load("db.t")
        with closing(sqlite3.connect(database, isolation_level=None)) as holder:
            holder.execute("begin immediate")
            with pytest.raises(StorageError, match="database is locked; another process holds its lock for too long"):
                hasty.commit(state, setting(a="1"))
            assert hasty.load("db.t") == state
            holder.execute("rollback")
        assert hasty.commit(state, setting(a="1")) == catalog.load("db.t")

    def test_a_reader_that_holds_up_the_commit_makes_it_a_definite_failure(self, catalog, database, hasty):
        state = catalog.load("db.t")
        with closing(sqlite3.connect(database, isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select * from iceberg_tables").fetchall()
            with pytest.raises(StorageError, match="database is locked"):
                hasty.commit(state, setting(a="1"))
            reader.execute("rollback")
        assert catalog.load("db.t") == state

    @pytest.mark.costly
    def test_a_forked_child_uses_a_connection_of_its_own(self, catalog):
        make_table(catalog)
        commit_in_fork_and_parent(catalog)

    def test_a_catalog_that_is_opened_first_by_many_at_once_is_made_once(self, properties):
        catalogs = [load_catalog("prod", **properties) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda catalog: catalog.create_namespace("db", if_not_exists=True), catalogs))
        assert [catalog.list_namespaces() for catalog in catalogs] == [(("db",),)] * 4


class TestLostReplies:
    """When a reply is lost nothing is deleted, and the error names the file that the table may point to."""

    @pytest.mark.parametrize("fault", [Fault.LAND_THEN_UNKNOWN, Fault.LOSE_THEN_UNKNOWN])
    def test_the_metadata_file_stays_and_is_named(self, catalog, fault):
        state = make_table(catalog)
        faulty = FaultyCatalog(catalog, [fault])
        with pytest.raises(CommitUnknownError) as raised:
            faulty.commit(state, setting(a="1"))
        location = raised.value.metadata_location
        assert location is not None
        assert catalog.io.exists(location)
        assert (catalog.load("db.t").metadata_location == location) is (fault is Fault.LAND_THEN_UNKNOWN)


class TestBesidePyIceberg:
    """Our catalog and PyIceberg's see, change and drop each other's tables in one database."""

    @pytest.fixture
    def theirs(self, properties):
        return PyIcebergCatalog("prod", **properties)

    SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])

    @pytest.fixture
    def rows(self):
        return pa.table({"id": [1, 2], "name": ["a", None]}, schema=self.SCHEMA)

    @pytest.mark.costly
    def test_they_work_on_our_table(self, catalog, theirs, rows):
        make_table(catalog)
        assert theirs.list_namespaces() == [("db",)]
        assert theirs.list_tables("db") == [("db", "t")]
        table = theirs.load_table("db.t")
        table.append(rows)
        assert table.scan().to_arrow().num_rows == 2
        state = catalog.load("db.t")
        assert state.metadata_location == theirs.load_table("db.t").metadata_location
        assert state.metadata.current_snapshot().summary["total-records"] == "2"
        committed = catalog.commit(state, setting(a="1"))
        assert theirs.load_table("db.t").properties["a"] == "1"
        assert "/00002-" in committed.metadata_location

    @pytest.mark.costly
    def test_we_work_on_their_table(self, catalog, theirs, rows):
        table = theirs.create_table("db.t", schema=self.SCHEMA)
        table.append(rows)
        state = catalog.load("db.t")
        assert state.metadata.location == catalog.default_location("db.t")
        catalog.commit(state, setting(a="1"))
        table = theirs.load_table("db.t")
        table.append(rows)
        assert table.scan().to_arrow().num_rows == 4
        assert catalog.load("db.t").metadata.properties["a"] == "1"

    def test_each_renames_and_drops_the_other_ones_tables(self, catalog, theirs):
        make_table(catalog, "db.ours")
        theirs.create_table("db.theirs", schema=self.SCHEMA)
        theirs.rename_table("db.ours", "db.ours2")
        catalog.rename_table("db.theirs", "db.theirs2")
        assert [table.name for table in catalog.list_tables("db")] == ["ours2", "theirs2"]
        assert sorted(theirs.list_tables("db")) == [("db", "ours2"), ("db", "theirs2")]
        theirs.drop_table("db.ours2")
        catalog.drop_table("db.theirs2")
        assert not catalog.table_exists("db.ours2")
        with pytest.raises(NoSuchTableError):
            theirs.load_table("db.theirs2")

    def test_namespaces_are_the_same_on_both_sides(self, catalog, theirs):
        theirs.create_namespace(("a", "b"), {"owner": "them"})
        catalog.create_namespace("c", {"owner": "us"})
        assert catalog.load_namespace_properties("a.b")["owner"] == "them"
        assert theirs.load_namespace_properties("c")["owner"] == "us"
        assert catalog.list_namespaces("a") == (("a", "b"),)
        theirs.drop_namespace("c")
        catalog.drop_namespace("a.b")
        assert not catalog.namespace_exists("c")
        assert catalog.list_namespaces() == (("db",),)
        assert theirs.list_namespaces() == [("db",)]

    def test_they_open_a_catalog_that_we_made_and_we_one_that_they_made(self, tmp_path, rows):
        for first, second in (("ours", "theirs"), ("theirs", "ours")):
            properties = {"uri": f"sqlite:///{tmp_path}/{first}.db", "warehouse": f"file://{tmp_path}/{first}"}
            makers = {"ours": load_catalog, "theirs": PyIcebergCatalog}
            makers[first]("prod", **properties).create_namespace("db")
            makers[second]("prod", **properties).create_namespace("other")
            assert load_catalog("prod", **properties).list_namespaces() == (("db",), ("other",))

    @pytest.mark.services
    def test_a_race_between_both_loses_nothing(self, catalog, theirs, rows):
        make_table(catalog)
        with ThreadPoolExecutor(1) as pool:
            appended = pool.submit(_append_as_pyiceberg, theirs, rows, 6)
            count = 0
            while not appended.done() or count < 6:
                commit_until_done(catalog, "db.t", 1, f"ours-{count}")
                count += 1
            appended.result()
        metadata = catalog.load("db.t").metadata
        assert metadata.current_snapshot().summary["total-records"] == "12"
        assert {f"ours-{number}-0" for number in range(count)} <= set(metadata.properties)
        assert f"/{count + 6:05d}-" in catalog.load("db.t").metadata_location


def _append_as_pyiceberg(theirs, rows, count):
    for _ in range(count):
        while True:
            try:
                theirs.load_table("db.t").append(rows)
                break
            except CommitFailedException:
                continue


class TestLoading:
    """`load_catalog` finds the type, and loads no client of a service before it is needed."""

    def test_the_type_is_guessed_from_the_uri(self, properties):
        for uri in (properties["uri"], "jdbc:sqlite:/tmp/c.db", "postgresql://h/d"):
            assert type(load_catalog("prod", uri=uri)).__name__ == "SqlCatalog"
        assert type(load_catalog("prod", type="JDBC", uri=properties["uri"])).__name__ == "SqlCatalog"

    def test_an_unknown_type_lists_what_exists(self):
        with pytest.raises(InvalidInputError) as raised:
            load_catalog("prod", type="postgres")
        known = "glue, hadoop, hive, jdbc, nessie, rest, sql"
        assert str(raised.value) == f"catalog prod: unknown type 'postgres', expected one of {known}"

    def test_no_type_and_no_uri_lists_what_exists(self, tmp_path):
        with pytest.raises(InvalidInputError, match="set type to one of glue, hadoop, hive, jdbc"):
            load_catalog("prod", warehouse=str(tmp_path))

    def test_importing_the_package_loads_no_client(self):
        script = (
            "import sys, airflow_iceberg.catalogs; "
            "clients = {'sqlalchemy', 'fsspec', 'pyarrow', 'pyiceberg', 'airflow', 'requests', 'boto3', 'thrift'}; "
            "print(clients & set(sys.modules))"
        )
        shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert shown.stdout == "set()\n"
