"""The links of a task in Airflow's UI: its table, the snapshot it committed, its job's folder and Spark application.

Airflow asks for them where the task runs, when it ends. A link that leads nowhere is none. Pages of tables and
snapshots are those that the catalog's connection names, `"table-url": "https://lake.example.com/{namespace}/{name}"`,
and else the pages in Airflow's UI. Not here: what is known of a Spark application (`backends.pages`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.redaction import said
from airflow_iceberg.ui.addresses import committed_address, snapshot_address, table_address

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

    from airflow_iceberg.backends.pages import SparkPages
    from airflow_iceberg.hooks.connection import CatalogConfig
    from airflow_iceberg.hooks.paimon import PaimonConfig

log = logging.getLogger(__name__)

SPARK_APPLICATION = "spark_application"
"""The key in XCom of a task's last Spark application: `application_id`, `page`, `is_kept`, `history_page`."""
STAGING_LOCATION = "staging_location"
"""The key in XCom of the folder of a try's last job; it is deleted when the try ends, unless the worker was killed."""
_PLACEHOLDER = re.compile(r"\{(\w*)\}")


class TableLink(BaseOperatorLink):
    """The page of the task's table."""

    name = "Iceberg table"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, or nothing."""
        return str(operator.pages(ti_key).get("table-url", ""))


class SnapshotLink(BaseOperatorLink):
    """The page of the snapshot that the task has committed, or has found; of several, that of them all."""

    name = "Iceberg snapshot"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, or nothing."""
        return str(operator.pages(ti_key).get("snapshot-url", ""))


class PaimonTableLink(TableLink):
    """The page of the Paimon table that a sensor watches."""

    name = "Paimon table"


class PaimonSnapshotLink(SnapshotLink):
    """The page of the Paimon snapshot that a sensor has found."""

    name = "Paimon snapshot"


class IcebergMirrorLink(BaseOperatorLink):
    """The page of the Iceberg table that Paimon keeps of a table."""

    name = "Iceberg table"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, or nothing."""
        return str(operator.pages(ti_key).get("mirror-url", ""))


class SparkUiLink(BaseOperatorLink):
    """The page of the Spark application: while it runs, and on YARN also afterwards."""

    name = "Spark UI"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, or nothing."""
        told = _application(operator, ti_key)
        return str(told.get("page") or "") if told.get("is_kept") else ""


class SparkHistoryLink(BaseOperatorLink):
    """The page of the Spark application on the history server."""

    name = "Spark history server"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, or nothing."""
        return str(_application(operator, ti_key).get("history_page") or "")


class StagingLink(BaseOperatorLink):
    """The page of a try whose job has a staging folder: while it runs, and after its worker was killed."""

    name = "Staging folder"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, or nothing: a try that ends deletes its folder, and one that is deferred leaves it."""
        return _committed_by(ti_key) if operator.leaves_staging else ""


def _committed_by(instance: Any) -> str:
    return committed_address(instance.dag_id, instance.run_id, instance.task_id, instance.map_index)


def tell_staging(instance: Any, location: str) -> None:
    """Let Airflow's UI show the staging folder of a job while it runs, and when its worker is killed."""
    remember(instance, STAGING_LOCATION, location)
    remember(instance, StagingLink().xcom_key, _committed_by(instance))


def _application(operator: Any, ti_key: TaskInstanceKey) -> dict[str, Any]:
    """Return what was told of the task's application, also in the process that had started it before a deferral."""
    from airflow.providers.common.compat.sdk import XCom

    if operator.spark_conn_id is None or not operator.has_jobs:
        return {}  # Airflow logs an error for a value that is missing
    told = XCom.get_value(ti_key=ti_key, key=SPARK_APPLICATION)
    return told if isinstance(told, dict) else {}


def tell_application(instance: Any, pages: SparkPages) -> None:
    """Let Airflow's UI show a Spark application while it runs."""
    remember(instance, SPARK_APPLICATION, pages.to_xcom())
    if pages.page is not None:
        remember(instance, SparkUiLink().xcom_key, pages.page)


def remember(instance: Any, key: str, value: Any) -> None:
    """Store a value in XCom; a job does not fail because that cannot be done.

    Args:
        instance: the task instance.
    """
    try:
        instance.xcom_push(key=key, value=value)
    except Exception as error:  # noqa: BLE001 - it is only for people to look at
        log.warning("cannot store %s in XCom: %s", key, said(error))


def pages(operator: Any, config: CatalogConfig, snapshot_ids: Sequence[int], ti_key: TaskInstanceKey) -> dict[str, str]:
    """Return the addresses of the pages of a task: those that the connection names, and else those in Airflow's UI.

    Args:
        snapshot_ids: those that the task has made, or, of a sensor, the one that it has found.
    """
    conn_id, table = operator.iceberg_conn_id, operator.table
    return {**_own_pages(conn_id, table, snapshot_ids, ti_key), **pages_of(config, table, snapshot_ids)}


def _own_pages(conn_id: str, table: str, made: Sequence[int], ti_key: TaskInstanceKey) -> dict[str, str]:
    found = {"table-url": table_address(conn_id, table)}
    if len(made) == 1:
        found["snapshot-url"] = snapshot_address(conn_id, table, made[0])
    elif made:
        found["snapshot-url"] = _committed_by(ti_key)
    return found


def pages_of(config: CatalogConfig, table: str, made: Sequence[int]) -> dict[str, str]:
    """Return the addresses of a table's page and of that of a task's last snapshot, by the fields that name them.

    Args:
        config: the connection of the catalog.
        made: the snapshots of the task; none if it has failed.
    """
    return _named_pages(config.pages, config.name, table, made)


def paimon_pages(config: PaimonConfig, table: str | None, found: Sequence[int]) -> dict[str, str]:
    """Return the addresses of the pages of a Paimon table, and that of its Iceberg table in Airflow's UI.

    Args:
        config: the connection.
        table: as of the sensor: a name, a location, or None for that of the connection.
        found: the snapshot that the sensor has found, if it has.
    """
    name = config.name_of(table)
    if name is None:
        return {}
    mirror = {"mirror-url": table_address(config.iceberg_conn_id, name)} if config.iceberg_conn_id else {}
    return {**mirror, **_named_pages(config.pages, config.conn_id, name, found)}


def _named_pages(templates: Mapping[str, str], catalog: str, table: str, made: Sequence[int]) -> dict[str, str]:
    from airflow_iceberg.catalogs.names import join_levels, split_levels

    try:
        *namespace, name = split_levels(table)
    except InvalidInputError:
        return {}
    values = {"catalog": catalog, "table": table, "namespace": join_levels(namespace), "name": name}
    found = {"table-url": _filled(templates.get("table-url"), values)}
    if made:
        found["snapshot-url"] = _filled(templates.get("snapshot-url"), {**values, "snapshot_id": str(made[-1])})
    return {field: address for field, address in found.items() if address is not None}


def _filled(template: str | None, values: dict[str, str]) -> str | None:
    """Return an address with its placeholders filled in; None without one, and for one that leads nowhere."""
    if not template:
        return None
    from airflow_iceberg.backends.pages import web_address

    unknown = [name for name in _PLACEHOLDER.findall(template) if name not in values]
    address = None if unknown else web_address(_PLACEHOLDER.sub(lambda one: quote(values[one[1]], safe=""), template))
    # A table must not choose the host.
    if address is None or "{" in urlsplit(template).netloc:
        log.warning(
            "no link: the connection's address of a page is unusable; expected https://host/… without a login, with "
            "the placeholders %s after the host",
            ", ".join(f"{{{name}}}" for name in values),
        )
        return None
    return address
