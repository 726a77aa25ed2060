"""OpenLineage: what a task has read and written, named as Iceberg's tables are in the lineage of Spark.

A dataset is the location of its table; the name in its catalog is a link to it. So the lineage of Airflow's tasks and
that of Spark's jobs is one graph. Airflow imports this module wherever it knows an asset, as while it parses a DAG: all
else is imported when it asks for lineage.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_iceberg.assets import table_of_uri
from airflow_iceberg.catalogs.names import split_levels
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.redaction import said, without_secrets

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Asset
    from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset

    from airflow_iceberg.commit.open_table import OpenTable
    from airflow_iceberg.commit.write_result import OperationResult
    from airflow_iceberg.format.snapshots import Snapshot
    from airflow_iceberg.operations.reports.commit import CommitReport

log = logging.getLogger(__name__)

# What others may write, at any length and in any number: an event is sent, and stored elsewhere.
_MOST_COLUMNS, _LONGEST = 5_000, 4_096
# As the lineage of Spark writes them: one scheme for each object store, whose names have no slash before them.
_OBJECT_STORES = {"s3": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfss", "wasb": "wasbs"}


def operator_lineage(
    table: OpenTable, result: OperationResult, inputs: Mapping[str, OpenTable], *, verb: str
) -> OperatorLineage[Any, Any]:
    """Return the lineage of a task.

    Args:
        table: the table of the task, after the commit.
        inputs: the tables that the rows were made from, by the names in the result.
        verb: the operation.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_iceberg.operations.reports.commit import NO_COMMIT, CommitReport

    report = None if result.outcome in NO_COMMIT else CommitReport.of(table, result, verb=verb)
    read = getattr(result, "inputs", {})
    snapshots = {name: (read.get(name) or {}).get("snapshot-id") for name in inputs}
    return OperatorLineage(
        inputs=[_input(one, snapshots[name]) for name, one in inputs.items()],
        outputs=[_output(table, report)],
    )


def asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset | None:
    """Return the dataset of a table's asset; None if the table cannot be loaded. Airflow calls this for its lineage.

    Args:
        lineage_context: what has told of the asset: the table itself, a hook, or None.
    """
    from openlineage.client.event_v2 import Dataset

    from airflow_iceberg.commit.open_table import OpenTable

    conn_id, name = table_of_uri(asset.uri)
    try:
        is_table = isinstance(lineage_context, OpenTable)
        table = lineage_context if is_table else IcebergHook(conn_id).load_table(name)
        return Dataset(*_identifier(table.location), facets=_facets(table, table.metadata.current_snapshot()))
    except IcebergError as error:
        log.debug("no lineage of %s: %s", asset.uri, error)
        return None


def _input(table: OpenTable, snapshot_id: str | None) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    snapshot = table.metadata.snapshot(int(snapshot_id)) if snapshot_id else None
    found: dict[str, Any] = {}
    if snapshot is not None:
        found["inputStatistics"] = statistics.InputStatisticsInputDatasetFacet(
            rowCount=_count(snapshot, "total-records"),
            size=_count(snapshot, "total-files-size"),
            fileCount=_count(snapshot, "total-data-files"),
        )
    return InputDataset(*_identifier(table.location), inputFacets=found, facets=_facets(table, snapshot))


def _output(table: OpenTable, report: CommitReport | None) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    snapshot = None if report is None else report.snapshot
    found: dict[str, Any] = {}
    if report is not None and snapshot is not None:
        result = report.result
        found["outputStatistics"] = statistics.OutputStatisticsOutputDatasetFacet(
            rowCount=getattr(result, "added_records", None),
            size=getattr(result, "added_files_size_bytes", None),
            fileCount=getattr(result, "added_data_files", None),
        )
        found["icebergCommitReport"] = _commit_report(snapshot)
        if report.partitions.names:
            found["subset"] = _partitions(report.partitions.names)
    return OutputDataset(*_identifier(table.location), outputFacets=found, facets=_facets(table, snapshot))


def _facets(table: OpenTable, snapshot: Snapshot | None) -> dict[str, Any]:
    from openlineage.client.facet_v2 import (
        catalog_dataset,
        dataset_version_dataset,
        schema_dataset,
        storage_dataset,
        symlinks_dataset,
    )

    from airflow_iceberg.format.properties.table_properties import TableProperties

    metadata = table.metadata
    schema_id = None if snapshot is None else snapshot.schema_id
    schema = metadata.schema() if schema_id is None else metadata.schema(schema_id)
    fields = [
        # Comments, properties and names are written by whoever may commit to the table.
        schema_dataset.SchemaDatasetFacetFields(
            name=_begun(one.name), type=_begun(str(one.type)), description=None if one.doc is None else _begun(one.doc)
        )
        for one in schema.fields[:_MOST_COLUMNS]
    ]
    kind, uri = _catalog(table)
    found: dict[str, Any] = {
        "schema": schema_dataset.SchemaDatasetFacet(fields=fields),
        "storage": storage_dataset.StorageDatasetFacet(
            storageLayer="iceberg",
            fileFormat=said(metadata.properties.get(TableProperties.file_format.name, "parquet")),
        ),
        "catalog": catalog_dataset.CatalogDatasetFacet(
            framework="iceberg",
            type=kind,
            name=table.catalog.name,
            metadataUri=uri,
            warehouseUri=_without_login(table.catalog.properties.get("warehouse")),
            source="airflow",
        ),
    }
    if len(schema.fields) > _MOST_COLUMNS:
        found["icebergColumns"] = _columns(len(schema.fields))
    if snapshot is not None:
        version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(snapshot.snapshot_id))
        found["version"] = version
    link = _link(table)
    if link is not None:
        identifier = symlinks_dataset.Identifier(namespace=link[0], name=link[1], type="TABLE")
        found["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=[identifier])
    return found


def _begun(text: str) -> str:
    """Return the beginning of a text without secrets, which are looked for in twice as much."""
    return said(text[: 2 * _LONGEST], _LONGEST)


def _identifier(location: str) -> tuple[str, str]:
    """Return namespace and name of a location: `s3://bucket` and `wh/db/orders`, `file` and `/wh/db/orders`."""
    scheme, authority, path = _parts_of(said(location))
    if scheme == "file":
        return "file", path or "/"
    is_store = scheme in _OBJECT_STORES.values()
    return f"{scheme}://{authority}", (path.lstrip("/") if is_store else path) or "/"


def _parts_of(location: str) -> tuple[str, str, str]:
    """Return scheme, authority and path of a location, whose names may have any characters."""
    scheme, colon, rest = location.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z][\w+.-]*", scheme):
        scheme, rest = "file", location
    authority, path = "", rest
    if rest.startswith("//"):
        authority, _, path = rest[2:].partition("/")
        path = f"/{path}"
    # An object store's variants are one: the longest name that the scheme begins with.
    store = max((name for name in _OBJECT_STORES if scheme.startswith(name)), default=None, key=len)
    # A container has its name before the account's; a login has a password.
    authority = re.sub("^[^@]*:[^@]*@", "", authority)
    return _OBJECT_STORES.get(store or "", scheme), authority, re.sub("/+", "/", path).rstrip("/")


def _catalog(table: OpenTable) -> tuple[str, str | None]:
    properties = table.catalog.properties
    kind = type(table.catalog).__name__.removesuffix("Catalog").lower()
    return properties.get("type") or kind, _without_login(properties.get("uri"))


def _link(table: OpenTable) -> tuple[str, str] | None:
    """Return the namespace and the name of a table in its catalog."""
    kind, uri = _catalog(table)
    properties, name = table.catalog.properties, table.name
    match kind:
        case "glue":
            region = properties.get("glue.region") or properties.get("client.region") or ""
            account = properties.get("glue.id") or ""
            # Without both the name would be that of other tables, too.
            is_known = bool(region and account)
            return (f"arn:aws:glue:{region}:{account}", "/".join(("table", *split_levels(name)))) if is_known else None
        case "hive" if uri:
            return f"hive://{urlsplit(uri.split(',')[0]).netloc}", name
        case "hadoop":
            return None if not properties.get("warehouse") else (_folder(properties["warehouse"]), name)
    return None if uri is None else (uri, name)


def _folder(location: str) -> str:
    """Return the namespace of what is in a folder: `s3://bucket/wh`, `file:/wh`."""
    scheme, authority, path = _parts_of(location)
    if scheme == "file":
        return f"file:{path}" if path else "file"
    return f"{scheme}://{authority}{path}"


def _without_login(uri: str | None) -> str | None:
    """Return an address, or several, without users, passwords and queries; None for what is none, or hides a secret."""
    text = re.sub(r"[?#][^,]*", "", re.sub(r"//[^/?#]*@", "//", uri or ""))
    # Where a password with a slash ends, nobody knows.
    is_login = re.search(r"//[^@]*:[^@]*@", text) is not None
    return text if text and not is_login and without_secrets(text) == text else None


def _partitions(names: tuple[str, ...]) -> Any:
    from openlineage.client.facet_v2 import base_subset_dataset as subset

    shown = [said(name) for name in names]
    partitions = [subset.Partition(identifier=name, dimensions=dict(_dimensions(name))) for name in shown]
    return subset.OutputSubsetOutputDatasetFacet(outputCondition=subset.PartitionSubsetCondition(partitions=partitions))


def _dimensions(name: str) -> Iterator[tuple[str, str]]:
    for part in name.split("/"):
        field, _, value = part.partition("=")
        yield field, value


def _columns(count: int) -> Any:
    """Return what says that a schema has more columns than are told."""
    import attr
    from openlineage.client.facet_v2 import DatasetFacet

    @attr.define
    class IcebergColumns(DatasetFacet):
        columns: int
        toldColumns: int  # noqa: N815

    return IcebergColumns(columns=count, toldColumns=_MOST_COLUMNS)


def _commit_report(snapshot: Snapshot) -> Any:
    """Return what Spark's lineage says of a commit, in its words."""
    import attr
    from openlineage.client.facet_v2 import OutputDatasetFacet

    @attr.define
    class IcebergCommitReport(OutputDatasetFacet):
        snapshotId: int  # noqa: N815
        sequenceNumber: int  # noqa: N815
        operation: str
        commitMetrics: dict[str, int | None]  # noqa: N815
        metadata: dict[str, str]

        @staticmethod
        def _get_schema() -> str:
            name = "IcebergCommitReportOutputDatasetFacet"
            return f"https://openlineage.io/spec/facets/1-0-2/{name}.json#/$defs/{name}"

    summary = snapshot.summary
    metrics = {metric: _count(snapshot, name) for name, metric in _METRICS.items() if name in summary}
    own = {name: said(value) for name, value in summary.items() if name.startswith("airflow.")}
    return IcebergCommitReport(
        snapshotId=snapshot.snapshot_id,
        sequenceNumber=snapshot.sequence_number,
        operation=snapshot.operation,
        commitMetrics=metrics,
        metadata=own,
    )


_COUNTED = {
    "data-files": "DataFiles",
    "delete-files": "DeleteFiles",
    "records": "Records",
    "files-size": "FilesSizeInBytes",
    "position-delete-files": "PositionalDeleteFiles",
    "equality-delete-files": "EqualityDeleteFiles",
    "position-deletes": "PositionalDeletes",
    "equality-deletes": "EqualityDeletes",
    "dvs": "DVs",
}
_VERBS = {"added": "added", "deleted": "removed", "removed": "removed", "total": "total"}
# The entries of a summary, and what the report calls them.
_METRICS = {f"{verb}-{what}": told + name for what, name in _COUNTED.items() for verb, told in _VERBS.items()}


def _count(snapshot: Snapshot, name: str) -> int | None:
    text = snapshot.summary.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
