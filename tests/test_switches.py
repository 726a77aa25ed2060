"""A text that is meant as a truth value is true or false, wherever it is set; all else is refused, in one sentence.

Read as false, `yes` would leave out TLS, a login or a lock; read as true, `no` would create tables.
"""

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.hive.swap import Swapper
from airflow_iceberg.catalogs.hive.tables import Options
from airflow_iceberg.catalogs.hive.transport import TransportOptions
from airflow_iceberg.catalogs.http.auth import auth_for
from airflow_iceberg.catalogs.sql.tables import creates_tables
from airflow_iceberg.errors import InvalidInputError, switch, true_or_false
from airflow_iceberg.format.properties import kinds
from airflow_iceberg.jobs.sources.csv_files import _flag
from airflow_iceberg.plan.compact import RewriteOptions
from airflow_iceberg.storage.stores.adls import _options
from airflow_iceberg.storage.stores.s3 import _addressing, _open
from airflow_iceberg.storage.stores.s3_signing import signer_of

_HIVE = {"uri": "thrift://localhost:9083"}
_SQLITE = {"uri": "sqlite://", "warehouse": "file:///nowhere"}
_REST = {"credential": "id:word"}
SWITCHES = {
    "init_catalog_tables": lambda given: creates_tables("lake", given),
    "glue.skip-archive": lambda given: load_catalog("lake", type="glue", warehouse="s3://b/wh", **given),
    "unique-table-location": lambda given: load_catalog("lake", type="sql", **_SQLITE, **given).new_location("s.t"),
    "rest.sigv4-enabled": lambda given: auth_for("lake", given, dict),
    "token-refresh-enabled": lambda given: auth_for("lake", _REST | given, dict),
    "engine.hive.enabled": Options,
    "iceberg.engine.hive.enabled": Options,
    "hive.hive2-compatible": Options,
    "hive.kerberos-authentication": lambda given: TransportOptions.of("lake", _HIVE | given),
    "hive.metastore.sasl.enabled": lambda given: TransportOptions.of("lake", _HIVE | given),
    "hive.metastore.use.SSL": lambda given: TransportOptions.of("lake", _HIVE | given),
    "metastore.use.SSL": lambda given: TransportOptions.of("lake", _HIVE | given),
    "hive.metastore.thrift.framed.transport.enabled": lambda given: TransportOptions.of("lake", _HIVE | given),
    "hive.metastore.thrift.compact.protocol.enabled": lambda given: TransportOptions.of("lake", _HIVE | given),
    "s3.anonymous": lambda given: _open(given, None),
    "s3.path-style-access": _addressing,
    "s3.force-virtual-addressing": _addressing,
    "s3.remote-signing-enabled": signer_of,
    "adls.anon": lambda given: _options("a.dfs.core.windows.net", given),
    "adls.anonymous": lambda given: _options("a.dfs.core.windows.net", given),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_property_of_a_connection(name):
    for text in ("yes", "no", "1", "0", "on", "tru", "None"):
        with pytest.raises(InvalidInputError, match=rf"property '{name}' is '{text}', expected true or false$"):
            SWITCHES[name]({name: text})


def test_the_lock_of_the_metastore():
    def swapper(**given):
        return Swapper("lake", None, given, settings=None, options=None)

    for name in ("engine.hive.lock-enabled", "iceberg.engine.hive.lock-enabled"):
        with pytest.raises(InvalidInputError, match=f"property '{name}' is 'no', expected true or false"):
            swapper(**{name: "no"})
        # A table's own is read as Iceberg Java's commits left it.
        one = swapper(**{name: "False "})
        assert one._is_locking({}) is False
        assert one._is_locking({"engine.hive.lock-enabled": "true"}) is True


def test_an_empty_field_is_none():
    for given in ({}, {"a": ""}, {"a": " ", "b": ""}):
        assert switch(given, "a", "b") is False
        assert switch(given, "a", "b", default=True) is True
    assert switch({"a": "", "b": " TRUE"}, "a", "b") is True
    assert _addressing({"s3.path-style-access": "", "s3.endpoint": "http://localhost"}) == "path"


def test_all_say_the_same():
    asked = {
        "x": lambda: true_or_false("x", "yes"),
        "property gc.enabled": lambda: kinds.boolean("gc.enabled", "yes"),
        "option 'header'": lambda: _flag({"header": "yes"}, "header", default=True),
        "option rewrite-all": lambda: RewriteOptions.of({"rewrite-all": "yes"}, {}),
    }
    for what, ask in asked.items():
        with pytest.raises(InvalidInputError) as found:
            ask()
        assert str(found.value) == f"{what} is 'yes', expected true or false"


def test_a_long_text_is_cut():
    with pytest.raises(InvalidInputError) as found:
        true_or_false("x", "y" * 10_000)
    assert len(str(found.value)) < 200
