"""Names of all kinds on real servers: each takes a name as it is, or refuses it; none makes another one of it."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
import requests

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog, TableId
from airflow_iceberg.catalogs.names import join_levels
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.table import Table
from tests.catalogs.hive_contract import empty_metastore
from tests.catalogs.odd_names import PIECES, Names, live, walk
from tests.catalogs.rest_servers import SERVERS
from tests.services.glue import KEYS
from tests.support.sampling import SEED

pytestmark = pytest.mark.services
DOTTED = ("s.`x.t`", "s.`a``b`", "s.` t`")


def held(catalog: Catalog, space: str = "s") -> dict[str, bool]:
    """Make tables of odd names, and return which of them a catalog holds; none of them is another one."""
    catalog.create_namespace(space, if_not_exists=True)
    found: dict[str, bool] = {}
    for name in DOTTED:
        try:
            made = Table.create(catalog, name.replace("s.", f"{space}.", 1), schema={"id": "long"})
        except IcebergError:
            found[name] = False
        else:
            uuids = {str(each): catalog.load(str(each)).metadata.table_uuid for each in catalog.list_tables(space)}
            assert uuids[made.name] == made.metadata.table_uuid
            found[name] = True
    return found


def told_apart(catalog: Catalog, space: str) -> bool:
    """Make a namespace with a dot in its name, and those that the dot would divide: none of them is another one.

    Return whether the first of them is taken.
    """
    dotted, made = f"{space}.`x.y`", {}
    for name in (dotted, f"{space}.x", f"{space}.x.y"):
        try:
            catalog.create_namespace(name)
            made[name] = Table.create(catalog, f"{name}.t", schema={"id": "long"}).metadata.table_uuid
        except IcebergError as error:
            print(f"{name}: {error}")
    assert {name: catalog.load(f"{name}.t").metadata.table_uuid for name in made} == made
    assert [str(one) for name in made for one in catalog.list_tables(name)] == [f"{name}.t" for name in made]
    assert len(set(made.values())) == len(made)
    listed = {join_levels(one) for one in catalog.list_namespaces(space)}
    assert made.keys() - {f"{space}.x.y"} <= listed <= {dotted, f"{space}.x"}
    return dotted in made


class TestNessie:
    """A key is a list of elements, and its form in a path escapes dots."""

    @pytest.fixture
    def properties(self, nessie: str, tmp_path: Path) -> Mapping[str, str]:
        name = f"names-{random.randrange(10**9)}-v1.2"
        start = requests.get(f"{nessie}/config", timeout=10).json()["noAncestorHash"]
        source = {"type": "BRANCH", "name": "main", "hash": start}
        asked = {"name": name, "type": "BRANCH"}
        requests.post(f"{nessie}/trees", params=asked, json=source, timeout=10).raise_for_status()
        return {"type": "nessie", "uri": nessie, "ref": name, "warehouse": tmp_path.as_uri()}

    def test_names_of_all_kinds(self, properties: Mapping[str, str]) -> None:
        live(load_catalog("prod", **properties), Names(random.Random(SEED)), tables=40, may_fail=True)

    def test_it_holds_them(self, properties: Mapping[str, str]) -> None:
        assert all(held(load_catalog("prod", **properties)).values())

    def test_at_a_reference_with_a_dot(self, properties: Mapping[str, str]) -> None:
        """What is listed there is named as a person names it, and stays on that branch."""
        catalog = load_catalog("prod", **properties)
        own = catalog.properties["ref"]
        default = load_catalog("prod", **{**properties, "ref": "main"})
        catalog.create_namespace("`a.b`")
        made = [Table.create(catalog, name, schema={"id": "long"}) for name in ("`a.b`.`x.t`", "`a.b`.t")]
        (space,) = default.list_namespaces(f"@{own}")
        listed = default.list_tables(join_levels(space))
        assert listed == (TableId.parse(f"`a.b`.t@{own}"), TableId.parse(f"`a.b`.`x.t`@{own}"))
        uuids = [default.load(str(each)).metadata.table_uuid for each in listed]
        assert uuids == [each.metadata.table_uuid for each in reversed(made)]
        default.rename_table(f"`a.b`.`x.t`@{own}", f"`a.b`.`y.t`@{own}")
        assert list(map(str, catalog.list_tables("`a.b`"))) == ["`a.b`.t", "`a.b`.`y.t`"]
        with pytest.raises(InvalidInputError, match=r"namespace `a\.b` is not empty: it holds table `a\.b`\."):
            catalog.drop_namespace("`a.b`")


class TestGlue:
    """It takes any name in lower case."""

    def test_names_of_all_kinds(self, glue_address: str, tmp_path: Path) -> None:
        requests.post(f"{glue_address}/moto-api/reset", timeout=10).raise_for_status()
        given = {"type": "glue", "glue.endpoint": glue_address, "warehouse": tmp_path.as_uri(), **KEYS}
        live(load_catalog("prod", **given), Names(random.Random(SEED)), tables=40, may_fail=True)


class TestHive:
    """A metastore of Hive 2 takes letters, digits and underscores, one of Hive 4 more; names are in small letters."""

    @pytest.mark.parametrize("metastore", ["hive_2_3_10", "hive_4"])
    def test_names_of_all_kinds(self, metastore: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        server = request.getfixturevalue(metastore)
        empty_metastore(server.uri)
        catalog = load_catalog("prod", type="hive", uri=server.uri, warehouse=tmp_path.as_uri())
        assert list(held(catalog).values()) == [metastore == "hive_4"] * 2 + [False]
        empty_metastore(server.uri)
        names = Names(random.Random(SEED), pieces=[each for each in PIECES if each == each.lower()])
        live(catalog, names, tables=25, most_levels=1, may_fail=True)
        assert list(walk(catalog))
        for name in ("a#", "#", "a!"):
            with pytest.raises(InvalidInputError, match="can no longer drop it"):
                catalog.create_namespace(join_levels((name,)))
        empty_metastore(server.uri)  # all that were made can be dropped


class TestRest:
    """Each server has its own way with odd names; a name that it takes is listed and loaded as it was given."""

    # Which of the tables with odd names a server takes, and whether a namespace with a dot in its name.
    TAKEN: Mapping[str, tuple[tuple[bool, ...], bool]] = {
        "Iceberg Java 1.11": ((True, True, True), False),
        "SeaweedFS 4.48": ((False, False, False), False),
        "Nessie 0.99": ((True, True, True), True),
        "Lakana 0.20": ((False, True, True), False),
    }

    @pytest.mark.parametrize("server", SERVERS)
    def test_names_of_all_kinds(self, server: str) -> None:
        with SERVERS[server]() as peer:
            tables, has_dots = tuple(held(peer.catalog, peer.space).values()), told_apart(peer.catalog, peer.space)
        assert (tables, has_dots) == self.TAKEN[server]
