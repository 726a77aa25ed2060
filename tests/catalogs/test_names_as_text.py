"""The form of names as text: what a listing returns names the same table in every call, also after it was a text."""

import random
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog, TableId, parse_namespace
from airflow_iceberg.catalogs.names import join_levels, split_levels
from airflow_iceberg.catalogs.nessie.keys import DEFAULT, Place, Ref, place_of
from airflow_iceberg.catalogs.rest.protocol import ServerConfig
from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table, new_metadata
from tests.catalogs.odd_names import Names, live, walk
from tests.support.http_server import HttpServer, document
from tests.support.memory import MemoryCatalog
from tests.support.rest_server import RestServer
from tests.support.sampling import SEED, sampled


class TestTheForm:
    """A level with a dot is in backticks, and each backtick in it is doubled; quotation marks are read as well."""

    @pytest.mark.parametrize(
        ("text", "levels"),
        [
            ("sales.orders", ("sales", "orders")),
            ("a.b.c", ("a", "b", "c")),
            ("sales.`x.t`", ("sales", "x.t")),
            ("`a.b`.`c`", ("a.b", "c")),
            ('"a.b".t', ("a.b", "t")),
            ("db.`a``b`", ("db", "a`b")),
            ('db."a""b.c"', ("db", 'a"b.c')),
            ('db.`a"b.c`', ("db", 'a"b.c')),
            ("db.a`b.c", ("db", "a`b", "c")),
            ("db.it's", ("db", "it's")),
            ('db.5" nail', ("db", '5" nail')),
            ("sales.`x.t`@etl", ("sales", "x.t@etl")),
            ("sales.`x.t`@v1.2", ("sales", "x.t@v1", "2")),
            ("a..b", ("a", "", "b")),
            ("``.t", ("", "t")),
            ("", ("",)),
        ],
    )
    def test_is_read(self, text: str, levels: tuple[str, ...]) -> None:
        assert split_levels(text) == levels
        assert split_levels(join_levels(levels)) == levels

    @pytest.mark.parametrize("text", ["db.`a", "`", 'db."a.b', "db.`a`b", '"a"b.t', "db.`a``", "`a` .t", '"a`.t'])
    def test_marks_that_do_not_end_a_level_are_refused(self, text: str) -> None:
        with pytest.raises(InvalidInputError, match=r"is no name: a level begins with .* at character \d"):
            split_levels(text)
        with pytest.raises(InvalidInputError, match="is no name"):
            TableId.parse(f"s.{text}")
        with pytest.raises(InvalidInputError, match="is no name"):
            parse_namespace(text)

    @pytest.mark.parametrize("text", ["``.t", "db.``", 'db.""', "db.` `", "db", "`db.t`", ""])
    def test_an_empty_level_is_none_and_a_quoted_name_is_one_level(self, text: str) -> None:
        with pytest.raises(InvalidInputError, match=r"write it as 'namespace\.table'|is not a namespace"):
            TableId.parse(text)

    def test_what_has_no_odd_sign_is_written_as_it_is(self) -> None:
        for level in ("orders", "Orders 2", "a-b_c", "100%", "ünïcode", "t@etl", "t'; drop", "{x}", "x#1", 'a"b'):
            assert str(TableId(namespace=("db", level), name=level)) == f"db.{level}.{level}"

    def test_what_would_be_read_otherwise_is_in_backticks(self) -> None:
        for level in ("x.t", "`", "a`b", '"a', '"a"', " a", "a ", ".a", "a."):
            assert join_levels(("db", level)) == f"db.`{level.replace('`', '``')}`"

    def test_levels_and_text_are_the_same_both_ways(self) -> None:
        names = Names(random.Random(SEED))
        for _ in range(2_000):
            levels = names.levels(4)
            assert split_levels(join_levels(levels)) == levels
            if not any("." in level or "`" in level or level.strip() != level or level[:1] == '"' for level in levels):
                assert join_levels(levels) == ".".join(levels)

    def test_a_text_without_marks_is_split_at_its_dots(self) -> None:
        names = Names(random.Random(SEED), pieces=[*"ab.. '%/@#"])
        for _ in range(500):
            text = "".join(names.levels(1))
            if "`" not in text and '"' not in text:
                assert split_levels(text) == tuple(text.split("."))

    def test_a_long_text_takes_no_time(self) -> None:
        with pytest.raises(InvalidInputError, match="is no name"):
            split_levels("`" + "``" * 200_000)

    def test_a_table_is_not_loaded_as_another_one(self) -> None:
        catalog = MemoryCatalog(namespaces=["s", "s.x"])
        dotted, nested = TableId(namespace=("s",), name="x.t"), TableId(namespace=("s", "x"), name="t")
        uuids = {
            each: Table.create(catalog, each, schema={"id": "long"}).metadata.table_uuid for each in (dotted, nested)
        }
        for each, known in uuids.items():
            assert Table.load(catalog, str(each)).metadata.table_uuid == known
            assert Table.load(catalog, Table.load(catalog, str(each)).name).identifier == each
        assert (str(dotted), str(nested)) == ("s.`x.t`", "s.x.t")

    def test_who_leaves_the_backticks_out_is_told(self) -> None:
        catalog = MemoryCatalog(namespaces=["s"])
        Table.create(catalog, "s.`x.t`", schema={"id": "long"})
        with pytest.raises(NotFoundError, match=r"namespace s\.x does not exist; did you mean s\.`x\.t`\?"):
            Table.load(catalog, "s.x.t")


class PlacesOfItsOwn(RestServer):
    """The location of a table says nothing of its name, which may be none of a file."""

    def _new(self, space: tuple[str, ...], body: dict[str, Any]) -> TableMetadata:
        return super()._new(space, {**body, "location": f"{self.warehouse}/{uuid.uuid4()}"})


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestServer]:
    with PlacesOfItsOwn((tmp_path / "wh").as_uri()) as server:
        yield server


@pytest.fixture
def catalogs(rest: RestServer, tmp_path: Path) -> dict[str, Catalog]:
    warehouse = (tmp_path / "wh").as_uri()
    (tmp_path / "hadoop").mkdir()
    return {
        "memory": MemoryCatalog(namespaces=["db"]),
        "sql": load_catalog("prod", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse),
        "hadoop": load_catalog("prod", type="hadoop", warehouse=(tmp_path / "hadoop").as_uri()),
        "rest": load_catalog("prod", type="rest", uri=rest.uri, warehouse=warehouse),
    }


class TestEveryCatalog:
    """A name is refused in words, or it lives under its text: made, listed, loaded, renamed, dropped."""

    @pytest.mark.generated
    @pytest.mark.parametrize(
        "kind",
        [
            "memory",
            "hadoop",
            pytest.param("sql", marks=pytest.mark.costly),
            pytest.param("rest", marks=pytest.mark.costly),
        ],
    )
    def test_names_of_all_kinds(self, kind: str, catalogs: dict[str, Catalog]) -> None:
        live(catalogs[kind], Names(random.Random(SEED)), tables=sampled(80))

    @pytest.mark.parametrize("kind", ["memory", "sql", "rest"])
    def test_a_table_with_a_dot_holds_rows(self, kind: str, catalogs: dict[str, Catalog]) -> None:
        catalog = catalogs[kind]
        catalog.create_namespace("s")
        for name in ("s.`x.t`", 's."a `b`"'):
            Table.create(catalog, name, schema={"id": "long"}).append(pa.table({"id": [1]}))
        for each in catalog.list_tables("s"):
            assert Table.load(catalog, str(each)).scan().to_arrow().to_pylist() == [{"id": 1}]


class TestSql:
    """The database has the levels of a namespace joined by dots: a level with one could be no other."""

    def test_such_a_level_is_refused_by_every_call(self, catalogs: dict[str, Catalog]) -> None:
        catalog = catalogs["sql"]
        catalog.create_namespace("a.b")
        make_table(catalog, "a.b.t")
        metadata = new_metadata("file:///w/t")
        uses: list[Any] = [
            lambda: catalog.create_namespace("`a.b`"),
            lambda: catalog.list_namespaces("`a.b`"),
            lambda: catalog.list_namespaces(("a.b",)),
            lambda: catalog.list_tables(("a.b",)),
            lambda: catalog.namespace_exists("`a.b`"),
            lambda: catalog.drop_namespace("`a.b`"),
            lambda: catalog.load_namespace_properties("`a.b`"),
            lambda: catalog.update_namespace_properties("`a.b`", {"x": "1"}),
            lambda: catalog.load("`a.b`.t"),
            lambda: catalog.table_exists("`a.b`.t"),
            lambda: catalog.create("`a.b`.u", metadata),
            lambda: catalog.drop_table("`a.b`.t"),
            lambda: catalog.rename_table("a.b.t", "`a.b`.u"),
            lambda: catalog.rename_table("`a.b`.t", "a.b.u"),
            lambda: catalog.register_table("`a.b`.u", "file:///w/t/metadata/1.json"),
        ]
        for use in uses:
            with pytest.raises(InvalidInputError, match=r"`a\.b` cannot be a level of a namespace in catalog prod"):
                use()
        assert list(walk(catalog)) == [("a",), ("a", "b")]
        assert list(map(str, catalog.list_tables("a.b"))) == ["a.b.t"]

    def test_namespaces_that_cannot_be_named_are_not_listed(self, catalogs: dict[str, Catalog], tmp_path: Path) -> None:
        catalog = catalogs["sql"]
        catalog.create_namespace("db")
        make_table(catalog, "db.t")
        with sqlite3.connect(tmp_path / "catalog.db") as connection:
            for name in ("", ".", "..", ".a", "db..x", "db.", "a/b", "db.a/b", "x\ty", "db.a@b/c"):
                connection.execute(
                    "insert into iceberg_namespace_properties values ('prod', ?, 'exists', 'true')", (name,)
                )
            connection.execute(
                "insert into iceberg_tables select catalog_name, table_namespace, 'a@b/c', metadata_location, "
                "previous_metadata_location, iceberg_type from iceberg_tables"
            )
        assert list(walk(catalog)) == [("db",)]
        assert list(map(str, catalog.list_tables("db"))) == ["db.t"]

    def test_a_near_name_is_written_as_it_is_to_be_given(self, catalogs: dict[str, Catalog]) -> None:
        catalogs["sql"].create_namespace("db")
        make_table(catalogs["sql"], "db.`x.t`")
        with pytest.raises(NotFoundError, match=r"did you mean db\.`x\.t`\?"):
            Table.load(catalogs["sql"], "db.`x.tt`")
        with pytest.raises(NotFoundError, match=r"namespace db has `x\.t`"):
            Table.load(catalogs["sql"], "db.orders")


class TestRest:
    """Requests have the server's separator between two levels; a level with it in it would be two."""

    @pytest.mark.parametrize("separator", [".", "%2E", "-", "::"])
    def test_a_level_with_the_separator_is_refused_before_it_is_sent(self, separator: str, tmp_path: Path) -> None:
        level = "a:" if separator == "::" else f"a{unquote(separator)}b"
        with RestServer(tmp_path.as_uri(), overrides={"namespace-separator": separator}) as server:
            catalog = load_catalog("prod", type="rest", uri=server.uri, warehouse=tmp_path.as_uri())
            space = (level, "c")
            for use in (
                lambda: catalog.create_namespace(space),
                lambda: catalog.list_tables(space),
                lambda: catalog.list_namespaces(space),
                lambda: catalog.load(TableId(namespace=space, name="t")),
                lambda: catalog.rename_table("db.t", TableId(namespace=space, name="t")),
            ):
                with pytest.raises(InvalidInputError, match="cannot be named in catalog prod: its server writes"):
                    use()
            assert {request.path.partition("?")[0] for request in server.seen} == {"/v1/config"}
            server.namespaces |= {("a",): {}, (f"a{unquote(separator)}b",): {}}
            assert catalog.list_namespaces() == (("a",),)

    def test_without_one_of_its_own_a_dot_is_a_sign_like_others(self) -> None:
        assert ServerConfig.from_dict({}, {}).can_name(("a.b", "c"))
        assert not ServerConfig.from_dict({}, {}).can_name(("a\x1fb", "c"))

    def test_levels_that_cannot_be_named_are_not_listed(self) -> None:
        spaces = [["a.b"], ["a/b"], [""], ["..", "x"], ["a`b"], ["ok", ""], ["a@b/c"]]
        tables = [{"namespace": ["a.b"], "name": each} for each in ("x.t", "", "a/b", "..", "a@b/c", 't"')]

        def answer(request: Any) -> Any:
            if request.path.endswith("/config"):
                return document({})
            if "/tables" in request.path:
                return document({"identifiers": tables})
            return document({"namespaces": spaces})

        with HttpServer(answer) as server:
            catalog = load_catalog("prod", type="rest", uri=server.uri)
            assert catalog.list_namespaces() == (("a.b",), ("a`b",), ("ok",))
            assert list(map(str, catalog.list_tables("`a.b`"))) == ['`a.b`.t"', "`a.b`.`x.t`"]


class TestNessie:
    """A key may have dots, but none of the marks behind which a reference begins."""

    OWN = Ref(name=DEFAULT)

    @pytest.mark.parametrize(
        ("text", "key", "ref"),
        [
            ("sales.`x.t`", ("sales", "x.t"), OWN),
            ("sales.`x.t`@etl", ("sales", "x.t"), Ref(name="etl")),
            ("`a.b`.`x.t`@v1.2", ("a.b", "x.t"), Ref(name="v1.2")),
            ("sales.`x.t@etl`", ("sales", "x.t"), Ref(name="etl")),
            ("sales.`x``t`@feature/a.b", ("sales", "x`t"), Ref(name="feature/a.b")),
        ],
    )
    def test_it_may_be_followed_by_a_reference(self, text: str, key: tuple[str, ...], ref: Ref) -> None:
        place = place_of(TableId.parse(text), self.OWN)
        assert (place.key, place.ref) == (key, ref)
        assert place_of(TableId.parse(str(place)), self.OWN) == place

    @pytest.mark.parametrize("suffix", ["", "@etl", "@v1.2.3", "@feature/v1.2", "@etl@" + "3b2f" * 16, "#3b2f3b2f"])
    def test_what_is_listed_is_named_as_a_person_names_it(self, suffix: str) -> None:
        place = place_of(parse_namespace(f"sales{suffix}"), self.OWN)
        assert place.table(("sales", "orders")) == TableId.parse(f"sales.orders{suffix}")
        for key in (("sales", "x.t"), ("a.b", "`"), ("a", "b c", '"')):
            table = place.table(key)
            assert place_of(TableId.parse(str(table)), self.OWN) == Place(key=key, ref=place.ref, suffix=suffix)
            namespace = place.namespace(key)
            assert place_of(parse_namespace(join_levels(namespace)), self.OWN).key == key
