"""Names of tables on branches, tags and commits of Nessie, and the properties of the catalog; no server is asked."""

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId, parse_namespace
from airflow_iceberg.catalogs.nessie.client import key_path
from airflow_iceberg.catalogs.nessie.keys import DEFAULT, Ref, place_of
from airflow_iceberg.errors import InvalidInputError, UnsupportedError

URI = "http://127.0.0.1:1/api/v2"
OWN = Ref(name=DEFAULT)
HASH = "3b2f" * 16


class TestATableSaysWhereItIsMeant:
    """`sales.orders@etl` is the table orders on the branch or tag etl."""

    @pytest.mark.parametrize(
        ("text", "ref"),
        [
            ("sales.orders", OWN),
            ("sales.orders@etl", Ref(name="etl")),
            ("sales.orders@main", Ref(name="main")),
            ("sales.orders@release-1.2", Ref(name="release-1.2")),
            ("sales.orders@feature/v1.2.3_x", Ref(name="feature/v1.2.3_x")),
            (f"sales.orders@etl@{HASH}", Ref(name="etl", hash=HASH)),
            (f"sales.orders@etl#{HASH}", Ref(name="etl", hash=HASH)),
            ("sales.orders@etl#3B2F3b2f", Ref(name="etl", hash="3b2f3b2f")),
            (f"sales.orders@{HASH}", Ref(name="", hash=HASH)),
            (f"sales.orders#{HASH}", Ref(name="", hash=HASH)),
        ],
    )
    def test_a_name_is_key_and_reference(self, text, ref):
        place = place_of(TableId.parse(text), OWN)
        assert place.key == ("sales", "orders")
        assert place.ref == ref
        assert str(place) == text

    def test_a_hash_alone_is_one_of_the_catalog_s_own_branch(self):
        assert place_of(TableId.parse(f"a.b#{HASH}"), Ref(name="etl")).ref == Ref(name="etl", hash=HASH)

    def test_a_namespace_says_it_as_well(self):
        assert place_of(parse_namespace("sales@release-1.2"), OWN).key == ("sales",)
        assert place_of(parse_namespace("a.b@etl"), OWN).ref == Ref(name="etl")
        assert place_of(parse_namespace("@etl"), OWN).key == ()

    def test_the_namespace_of_a_table_is_on_the_table_s_branch(self):
        catalog = load_catalog("prod", type="nessie", uri=URI)
        assert catalog.namespace_of("sales.orders") == ("sales",)
        assert catalog.namespace_of("a.b.orders@etl") == ("a", "b@etl")
        assert ".".join(catalog.namespace_of("sales.orders@release-1.2")) == "sales@release-1.2"

    def test_what_is_listed_at_a_reference_can_be_asked_for_again(self):
        place = place_of(parse_namespace("a@release-1.2"), OWN)
        table = place.table(("a", "t"))
        assert str(table) == "a.t@release-1.2"
        assert place_of(table, OWN) == place_of(TableId.parse(str(table)), OWN)
        assert place_of(place.namespace(("a", "b")), OWN).key == ("a", "b")

    @pytest.mark.parametrize("ref", ["", "1.2", "a b", "a..b", "a@nothex", "a@abc", f"@{HASH}x", "a/", "é"])
    def test_what_is_no_reference_is_refused(self, ref):
        with pytest.raises(InvalidInputError, match="is not a reference of Nessie"):
            place_of(TableId(namespace=("sales",), name=f"orders@{ref}"), OWN)

    def test_a_dot_in_a_name_and_a_slash_in_a_reference_survive_the_way_to_the_server(self):
        assert key_path(("a", "b.c/d e")) == "a.b%1Dc%2Fd%20e"
        assert Ref(name="feature/x").path == "trees/feature%2Fx"
        assert Ref(name="etl", hash=HASH).path == f"trees/etl@{HASH}"
        assert Ref(name="", hash=HASH).path == f"trees/@{HASH}"


class TestPropertiesOfTheCatalog:
    """What the catalog can't do with is refused before anything is sent, in words that say what to do."""

    @pytest.mark.parametrize("name", ["ref", "nessie.ref"])
    def test_its_own_reference_is_a_property(self, name):
        assert "ref='etl'" in repr(load_catalog("prod", type="nessie", uri=URI, **{name: "etl"}))

    def test_its_own_reference_may_be_a_commit(self):
        assert f"ref='etl@{HASH}'" in repr(load_catalog("prod", type="nessie", uri=URI, ref=f"etl@{HASH}"))
        pinned = load_catalog("prod", type="nessie", uri=URI, **{"ref": "etl", "ref.hash": HASH})
        assert f"ref='etl@{HASH}'" in repr(pinned)
        assert "ref='the default branch'" in repr(load_catalog("prod", type="nessie", uri=URI))

    @pytest.mark.parametrize(
        ("properties", "message"),
        [
            ({}, "property 'uri' is missing"),
            ({"uri": "127.0.0.1/api/v2"}, "its uri is not understood"),
            ({"uri": "http://127.0.0.1:19120/iceberg"}, r"does not end in /api/v2, expected for example http://127\.0"),
            ({"uri": URI, "ref": "no name"}, "property ref: 'no name' is not a reference of Nessie"),
            ({"uri": URI, "authentication.type": "BEARER"}, "authentication.type is BEARER and there is no token"),
            ({"uri": URI, "transport.read-timeout": "5s"}, "transport.read-timeout is not a number of milliseconds"),
        ],
    )
    def test_a_wrong_one_is_named(self, properties, message):
        with pytest.raises(InvalidInputError, match=f"catalog prod: .*{message}"):
            load_catalog("prod", type="nessie", **properties)

    @pytest.mark.parametrize(
        "properties", [{"uri": "http://127.0.0.1:1/api/v1"}, {"uri": URI, "nessie.authentication.type": "AWS"}]
    )
    def test_what_is_not_supported_is_said_so(self, properties):
        with pytest.raises(UnsupportedError, match="is not supported"):
            load_catalog("prod", type="nessie", **properties)

    def test_a_login_in_the_uri_is_refused_and_not_shown(self):
        with pytest.raises(InvalidInputError, match="holds a login") as raised:
            load_catalog("prod", type="nessie", uri="http://me:s3cret@127.0.0.1/api/v2")
        assert "s3cret" not in str(raised.value)

    def test_no_secret_is_shown(self):
        catalog = load_catalog("prod", type="nessie", uri=URI, token="s3cret")
        assert "s3cret" not in f"{catalog!r}{catalog._client}{vars(catalog)['_client']!r}"
