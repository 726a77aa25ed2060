"""What Airflow reads about this provider when it starts; plain data, and nothing is imported for it.

Connection types are described in the declarative form (Airflow 3.2 and later), so that the form of a connection can be
shown without importing the hook.
"""

from __future__ import annotations

from typing import Any

INTEGRATION = "Apache Iceberg (airflow-iceberg)"
PAIMON = "Apache Paimon (airflow-iceberg)"
# With slashes: `history.undo` would look like a property of a table.
_OPERATORS = (
    "add_files",
    "alter_table",
    "append",
    "compact",
    "create_table",
    "delete",
    "expire_snapshots",
    "history/undo",
    "merge",
    "new_table",
    "overwrite",
    "refs/branch",
    "refs/move",
    "refs/publish",
    "register_table",
    "remove_orphan_files",
    "rewrite_manifests",
    "update",
    "wap/audit",
    "wap/publish",
)
_LINKS = ("TableLink", "SnapshotLink", "SparkUiLink", "SparkHistoryLink")
TRIGGERS = ("iceberg", "conditions", "watcher", "job")


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description, valid against Airflow's `provider_info.schema.json`."""
    return {
        "package-name": "airflow-iceberg",
        "name": "Apache Iceberg Operations",
        "description": "Apache Iceberg table operations as Airflow tasks, each committed exactly once.",
        "integrations": [
            {
                "integration-name": INTEGRATION,
                "external-doc-url": "https://iceberg.apache.org/",
                "tags": ["apache", "software"],
            },
            {
                "integration-name": PAIMON,
                "external-doc-url": "https://paimon.apache.org/",
                "tags": ["apache", "software"],
            },
        ],
        "operators": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [f"airflow_iceberg.operators.{name.replace('/', '.')}" for name in _OPERATORS],
            }
        ],
        "sensors": [
            {
                "integration-name": INTEGRATION,
                "python-modules": ["airflow_iceberg.sensors.iceberg", "airflow_iceberg.sensors.conditions"],
            },
            {"integration-name": PAIMON, "python-modules": ["airflow_iceberg.sensors.paimon"]},
        ],
        "hooks": [
            {"integration-name": INTEGRATION, "python-modules": ["airflow_iceberg.hooks.iceberg"]},
            {"integration-name": PAIMON, "python-modules": ["airflow_iceberg.hooks.paimon"]},
        ],
        "triggers": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [f"airflow_iceberg.triggers.{name}" for name in TRIGGERS],
            },
            {"integration-name": PAIMON, "python-modules": ["airflow_iceberg.triggers.paimon"]},
        ],
        "connection-types": [_iceberg_catalog(), _paimon()],
        "task-decorators": [
            {"name": f"iceberg_{verb}", "class-name": f"airflow_iceberg.decorators.iceberg.{verb}_task"}
            for verb in ("append", "overwrite", "merge")
        ],
        "extra-links": [f"airflow_iceberg.links.{name}" for name in _LINKS],
        "cli": ["airflow_iceberg.cli.commands.get_iceberg_commands"],
        "asset-uris": [
            {
                "schemes": ["iceberg"],
                "handler": "airflow_iceberg.assets.sanitize_uri",
                "factory": "airflow_iceberg.assets.iceberg_asset",
                "to_openlineage_converter": "airflow_iceberg.lineage.asset_to_openlineage",
            }
        ],
        "config": _config(),
    }


def _config() -> dict[str, Any]:
    return {
        "airflow_iceberg": {
            "description": "Options of the provider airflow-iceberg.",
            "options": {
                "installation_id": {
                    "description": "The name of this Airflow installation in operation keys, by which a task finds "
                    "its own commit in a table. It has to be the same on all workers, and to stay the same, and to "
                    "differ from that of any other installation that writes to the same tables. If empty, a digest of "
                    "``[api] base_url`` and ``[core] execution_api_server_url``, or of AIRFLOW_HOME if both name the "
                    "local machine.\n",
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "production",
                    "default": "",
                }
            },
        }
    }


def _iceberg_catalog() -> dict[str, Any]:
    return {
        # The type `iceberg` belongs to the official provider; the hook accepts its connections as they are.
        "connection-type": "iceberg_catalog",
        "hook-class-name": "airflow_iceberg.hooks.iceberg.IcebergHook",
        "hook-name": "Iceberg Catalog",
        "ui-field-behaviour": {
            "hidden-fields": ["schema"],
            "relabeling": {
                "host": "Catalog URI",
                "login": "Client ID or user",
                "password": "Client secret or password",
            },
            "placeholders": {
                "host": "https://catalog.example.com/api or postgresql+psycopg://db.example.com/iceberg",
                "extra": '{"s3.endpoint": "https://s3.example.com"}',
            },
        },
        "conn-fields": _catalog_fields(),
    }


def _catalog_fields() -> dict[str, Any]:
    text, secret = {"type": ["string", "null"]}, {"type": ["string", "null"], "format": "password"}
    return {
        "type": {
            "label": "Catalog type",
            "description": "How the catalog is reached; left empty it is guessed from the URI.",
            "schema": {
                "type": ["string", "null"],
                "enum": ["sql", "hadoop", "rest", "hive", "nessie", "glue"],
            },
        },
        "catalog_name": {
            "label": "Catalog name",
            "description": "SQL catalogs keep tables under this name: use the one that Spark or PyIceberg use. "
            "The connection id if empty.",
            "schema": text,
        },
        "warehouse": {
            "label": "Warehouse",
            "description": "Location where new tables are created, such as s3://bucket/warehouse; for some REST "
            "catalogs a name.",
            "schema": text,
        },
        "allowed-locations": {
            "label": "Allowed locations",
            "description": "Prefixes of locations outside of the warehouse's bucket that tables may use, separated by "
            "commas.",
            "schema": text,
        },
        "token": {
            "label": "Bearer token",
            "description": "For REST catalogs, instead of client ID and secret.",
            "schema": secret,
        },
        "s3.endpoint": {
            "label": "S3 endpoint",
            "description": "Only for stores other than Amazon's, such as https://s3.example.com.",
            "schema": text,
        },
        "s3.access-key-id": {
            "label": "S3 access key ID",
            "schema": secret,
        },
        "s3.secret-access-key": {
            "label": "S3 secret access key",
            "schema": secret,
        },
        "adls.account-key": {
            "label": "Azure account key",
            "schema": secret,
        },
        **_page_fields(),
        "properties": {
            "label": "Further properties",
            "description": "Catalog and storage properties under PyIceberg's names, as a JSON object.",
            "schema": {"type": ["object", "null"]},
        },
    }


def _page_fields() -> dict[str, Any]:
    text = {"type": ["string", "null"]}
    return {
        "table-url": {
            "label": "Page of a table",
            "description": "For links of tasks, such as https://lake.example.com/{namespace}/{name}.",
            "schema": text,
        },
        "snapshot-url": {
            "label": "Page of a snapshot",
            "description": "For links of tasks, such as https://lake.example.com/{table}/snapshots/{snapshot_id}.",
            "schema": text,
        },
    }


def _paimon() -> dict[str, Any]:
    return {
        "connection-type": "paimon",
        "hook-class-name": "airflow_iceberg.hooks.paimon.PaimonHook",
        "hook-name": "Apache Paimon",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "host", "port", "login", "password"],
            "relabeling": {},
            "placeholders": {"extra": '{"s3.endpoint": "https://s3.example.com"}'},
        },
        "conn-fields": {
            "warehouse": {
                "label": "Warehouse",
                "description": "Location of the databases, such as s3://bucket/warehouse: a table is "
                "<warehouse>/<database>.db/<table>.",
                "schema": {"type": ["string", "null"]},
            },
            "path": {
                "label": "Table path",
                "description": "Location of one table, for a connection to nothing else.",
                "schema": {"type": ["string", "null"]},
            },
            "allowed-locations": {
                "label": "Allowed locations",
                "description": "Prefixes of locations outside of the table's bucket that it may use, separated by "
                "commas.",
                "schema": {"type": ["string", "null"]},
            },
            "s3.access-key-id": {
                "label": "S3 access key ID",
                "schema": {"type": ["string", "null"], "format": "password"},
            },
            "s3.secret-access-key": {
                "label": "S3 secret access key",
                "schema": {"type": ["string", "null"], "format": "password"},
            },
            "properties": {
                "label": "Further properties",
                "description": "Storage properties under PyIceberg's names, as a JSON object.",
                "schema": {"type": ["object", "null"]},
            },
        },
    }
