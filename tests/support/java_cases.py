"""Java's side of generated cases: what runs in the process of `iceberg_java`, called by `IcebergJava.call`.

Here: tables are made, statements run, rows read, in a session of its own beside the one that SQL is asked in. Not here:
what the cases are (`cases`) and who compares (`case_runs`).
"""

import contextlib
import json
import re
from typing import Any

from tests.support.iceberg_java import SMALL, items_of, plain, table_of

_CONF = {**SMALL, "spark.sql.session.timeZone": "UTC"}
_sessions: list[Any] = []


def _session(spark: Any) -> Any:
    if not _sessions:
        session = spark.newSession()
        for key, value in _CONF.items():
            session.conf.set(key, value)
        _sessions.append(session)
    return _sessions[0]


def create(spark: Any, *, table: str, schema: dict, spec: dict, properties: dict[str, str]) -> list[Any]:
    """Create a table in the catalog `ref` by Java's own classes: they know all types, which its SQL does not."""
    session = _session(spark)
    jvm = session._jvm
    iceberg = jvm.org.apache.iceberg
    catalog = iceberg.spark.Spark3Util.loadIcebergCatalog(session._jsparkSession, "ref")
    columns = iceberg.SchemaParser.fromJson(json.dumps(schema))
    partitioning = iceberg.PartitionSpecParser.fromJson(columns, json.dumps(spec))
    name = iceberg.catalog.TableIdentifier.parse(table)
    settings = jvm.java.util.HashMap()
    for key, value in properties.items():
        settings.put(key, value)
    catalog.createTable(name, columns, partitioning, None, settings)
    return []


def run(spark: Any, *, statements: list[str], conf: dict[str, str] | None = None) -> list[Any]:
    session = _session(spark)
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
    for key, value in (conf or {}).items():
        session.conf.set(key, value)
    for statement in statements:
        session.sql(statement).collect()
    return []


def overwrite(spark: Any, *, table: str, rows: str, condition: str) -> list[Any]:
    """Put the rows of a query in the place of those that a condition selects, as `DataFrameWriterV2` does it."""
    from pyspark.sql import functions

    session = _session(spark)
    session.sql(rows).writeTo(table).overwrite(functions.expr(condition))
    return []


def rows(spark: Any, *, locations: list[str], columns: list[str], snapshot_ids: list[int] | None = None) -> list[Any]:
    """Return the rows of tables by their metadata files, a list of rows each."""
    session = _session(spark)
    found = []
    for number, location in enumerate(locations):
        reader = session.read.format("iceberg")
        if snapshot_ids:
            reader = reader.option("snapshot-id", str(snapshot_ids[number]))
        frame = reader.load(location).select(*columns)
        found.append([[plain(value) for value in row] for row in frame.collect()])
    return found


def generic_rows(spark: Any, *, locations: list[str]) -> list[Any]:
    """Return rows as Java's own reader has them, which knows the types that Spark does not; see `_text`."""
    found = []
    for location in locations:
        generics = spark._jvm.org.apache.iceberg.data.IcebergGenerics
        with contextlib.closing(generics.read(table_of(spark, location)).build()) as records:
            rows = [[_text(spark._jvm, record.get(n)) for n in range(record.size())] for record in items_of(records)]
        found.append(rows)
    return found


def _text(jvm: Any, value: Any) -> Any:
    """Return a value as JSON has it, and text of what it has not."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if not hasattr(value, "getClass"):
        return str(value)
    kind = value.getClass().getName()
    if "ByteBuffer" in kind:
        return bytes(jvm.org.apache.iceberg.util.ByteBuffers.toByteArray(value)).hex()
    if "Record" in kind:
        return [_text(jvm, value.get(place)) for place in range(value.size())]
    if "List" in kind:
        return [_text(jvm, item) for item in value]
    return str(value.toString())


def each(spark: Any, *, statements: list[list[Any]]) -> list[Any]:
    """Run statements with settings of their own, and return the error of each, or None.

    A text `{staged w1}` stands for the id of the snapshot that was staged with this `wap.id`, in the table of the last
    statement that named one as `ref.db.name`.
    """
    session, found, table = _session(spark), [], ""
    for statement, conf in statements:
        table = next((name for name in re.findall(r"ref\.db\.\w+", statement)), table)
        for wap_id in re.findall(r"\{staged (\w+)\}", statement):
            rows = session.sql(
                f"select snapshot_id from {table}.snapshots where summary['wap.id'] = '{wap_id}'"
            ).collect()
            statement = statement.replace(f"{{staged {wap_id}}}", str(rows[0][0]))
        for key, value in conf.items():
            session.conf.set(key, value)
        try:
            session.sql(statement).collect()
            found.append(None)
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}"[:500])
        finally:
            for key in conf:
                session.conf.unset(key)
    return found


def use_aws_keys(spark: Any, *, key_id: str, secret: str) -> list[Any]:
    """Let clients of AWS whose credentials are properties of the system sign with these."""
    system = spark._jvm.java.lang.System
    system.setProperty("aws.accessKeyId", key_id)
    system.setProperty("aws.secretAccessKey", secret)
    return []
