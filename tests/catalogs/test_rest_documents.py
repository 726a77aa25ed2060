"""Answers of a REST server that have another form: an error names catalog, purpose, place and what is there."""

import json
from random import Random

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import FormatError, IcebergError
from airflow_iceberg.storage.base import FileIO
from tests.catalogs.test_rest_http import LOAD, Script, table
from tests.fuzz.documents import dumped, mutate_document
from tests.support.http_server import Reply, document
from tests.support.sampling import SEED, sampled

NAMESPACES, TABLES, NAMESPACE = "GET /v1/namespaces", "GET /v1/namespaces/db/tables", "GET /v1/namespaces/db"


@pytest.fixture
def server():
    with Script() as server:
        yield server


@pytest.fixture
def catalog(server):
    return load_catalog("prod", uri=server.uri)


class TestLists:
    """An entry is a list of texts, or an object with two fields; names that cannot be written here are left out."""

    @pytest.mark.parametrize(
        ("items", "problem"),
        [
            ([[1]], r"type int \(expected str\) in 'namespaces\[0\]\[0\]'"),
            ([["a"], [None]], r"type null \(expected str\) in 'namespaces\[1\]\[0\]'"),
            (["db"], r"type str \(expected list\) in 'namespaces\[0\]'"),
            ([{"a": 1}], r"type object \(expected list\) in 'namespaces\[0\]'"),
            ([7], r"type int \(expected list\) in 'namespaces\[0\]'"),
            ("db", r"type str \(expected list\) in 'namespaces'"),
            (False, r"type bool \(expected list\) in 'namespaces'"),
            ({}, r"type object \(expected list\) in 'namespaces'"),
        ],
    )
    def test_of_namespaces(self, server, catalog, items, problem):
        server.on(NAMESPACES, document({"namespaces": items}))
        with pytest.raises(FormatError, match=rf"^catalog prod cannot list the namespaces, .*{problem}; check the uri"):
            catalog.list_namespaces()

    @pytest.mark.parametrize(
        ("items", "problem"),
        [
            ([{"namespace": "db", "name": "t"}], r"type str \(expected list\) in 'identifiers\[0\]\.namespace'"),
            ([{"namespace": [1], "name": "t"}], r"type int \(expected str\) in 'identifiers\[0\]\.namespace\[0\]'"),
            ([{"namespace": ["db"], "name": 1}], r"type int \(expected str\) in 'identifiers\[0\]\.name'"),
            ([{"namespace": ["db"], "name": None}], r"type null \(expected str\) in 'identifiers\[0\]\.name'"),
            ([{"namespace": ["db"]}], r"missing field 'identifiers\[0\]\.name'"),
            ([{"name": "t"}], r"missing field 'identifiers\[0\]\.namespace'"),
            (["t"], r"type str \(expected object\) in 'identifiers\[0\]'"),
            ([["db", "t"]], r"type list \(expected object\) in 'identifiers\[0\]'"),
        ],
    )
    def test_of_tables(self, server, catalog, items, problem):
        server.on(TABLES, document({"identifiers": items}))
        with pytest.raises(
            FormatError, match=rf"^catalog prod cannot list the tables of db, .*{problem}; check the uri"
        ):
            catalog.list_tables("db")

    def test_names_that_cannot_be_written_are_left_out(self, server, catalog):
        items = [{"namespace": ["db"], "name": name} for name in ("t", "../x", "")]
        server.on(TABLES, document({"identifiers": items}))
        assert [found.name for found in catalog.list_tables("db")] == ["t"]

    @pytest.mark.parametrize("document_", [{}, {"namespaces": None}, {"namespaces": []}])
    def test_an_empty_one_may_be_left_out(self, server, catalog, document_):
        server.on(NAMESPACES, document(document_))
        assert catalog.list_namespaces() == ()


class TestATable:
    """An answer without metadata names the catalog and the table."""

    @pytest.mark.parametrize(
        "answer", [{}, {"metadata": None}, {"metadata": []}, {"metadata-location": "s3://b/1.json"}]
    )
    def test_without_metadata(self, server, catalog, answer):
        server.on(LOAD, document(answer))
        with pytest.raises(
            FormatError, match=r"^catalog prod cannot read table db\.t, .*\(expected object\) in 'metadata'"
        ):
            catalog.load("db.t")

    @pytest.mark.parametrize(
        ("more", "problem"),
        [
            ({"metadata-location": 7}, r"type int \(expected str\) in 'metadata-location'"),
            (
                {"storage-credentials": [{"prefix": 1}]},
                r"type int \(expected str\) in 'storage-credentials\[0\]\.prefix'",
            ),
            ({"storage-credentials": {}}, r"type object \(expected list\) in 'storage-credentials'"),
            ({"config": []}, "in 'config'"),
        ],
    )
    def test_with_other_fields(self, server, catalog, more, problem):
        server.on(LOAD, document(table(**more)) if "metadata-location" not in more else document({**table(), **more}))
        with pytest.raises(FormatError, match=rf"^catalog prod cannot read table db\.t, .*{problem}"):
            catalog.load("db.t")

    def test_without_a_location_of_its_metadata(self, server, catalog):
        answer = {"metadata": {"format-version": 2}}
        server.on(LOAD, document(answer))
        with pytest.raises(FormatError, match=r"^catalog prod cannot read table db\.t, .* missing field"):
            catalog.load("db.t")


def test_a_namespace(server, catalog):
    server.on(NAMESPACE, document({"namespace": ["db"], "properties": ["a"]}))
    with pytest.raises(FormatError, match=r"^catalog prod cannot load namespace db, .*type list \(expected object\)"):
        catalog.load_namespace_properties("db")


def test_a_configuration():
    with Script(defaults=["a"]) as server:
        with pytest.raises(
            FormatError, match=r"^catalog prod cannot read the server's configuration, .* in 'defaults'"
        ):
            load_catalog("prod", uri=server.uri).list_namespaces()


ASKS = {
    NAMESPACES: (
        {"namespaces": [["a"], ["b", "c"]], "next-page-token": None},
        lambda catalog: catalog.list_namespaces(),
    ),
    TABLES: (
        {"identifiers": [{"namespace": ["db"], "name": "t"}, {"namespace": ["db"], "name": "u"}]},
        lambda catalog: catalog.list_tables("db"),
    ),
    NAMESPACE: (
        {"namespace": ["db"], "properties": {"location": "file:///w/db", "a": "b"}},
        lambda catalog: catalog.load_namespace_properties("db"),
    ),
    LOAD: (
        {
            **table(),
            "config": {"s3.region": "x"},
            "storage-credentials": [{"prefix": "file:///w", "config": {"a": "b"}}],
        },
        lambda catalog: catalog.load("db.t"),
    ),
}


@pytest.mark.generated
def test_mutants_are_understood_or_our_own_errors(server):
    """Whatever a server answers, what comes of it has the right types, or is an error of ours."""
    chance, accepted = Random(f"REST {SEED}"), 0
    catalog = load_catalog("prod", uri=server.uri)
    for _ in range(sampled(1_000)):
        what = chance.choice(list(ASKS))
        sample, ask = ASKS[what]
        server.on(what, Reply(body=dumped(mutate_document(sample, chance), chance)))
        accepted += is_understood(ask, catalog, what)
    assert accepted > 50


def is_understood(ask, catalog, what) -> bool:
    try:
        found = ask(catalog)
    except IcebergError:
        return False
    if what in (NAMESPACES, TABLES):
        assert all(isinstance(name, str) for each in found for name in (each if what == NAMESPACES else each.namespace))
    elif what == NAMESPACE:
        assert all(isinstance(text, str) for pair in found.items() for text in pair)
    else:
        assert isinstance(found.metadata_location, str)
        assert found.io is None or isinstance(found.io, FileIO)
    return True


def test_the_samples_themselves_are_understood(server, catalog):
    for what, (sample, ask) in ASKS.items():
        server.on(what, Reply(body=json.dumps(sample).encode()))
        assert is_understood(ask, catalog, what)
