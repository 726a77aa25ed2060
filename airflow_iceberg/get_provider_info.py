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
_LINKS = (
    *("TableLink", "SnapshotLink", "SparkUiLink", "SparkHistoryLink", "StagingLink"),
    *("PaimonTableLink", "PaimonSnapshotLink", "IcebergMirrorLink"),
)
# The port 0 that its button sends differs from that of the stored connection, and the answer is "Bad Request".
_ANY_PORT = "any, such as 443: Airflow 3.3.2 tests no stored connection without one"
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
                },
                "job_environment_variables": {
                    "description": "Further variables of the workers that Spark jobs get, beyond the list in the "
                    "documentation (Security, The Spark job): names between commas. One that ends with ``*`` is for "
                    "all names that begin so, but not for variables that are secrets by their name or value. Those of "
                    "Airflow itself cannot be named.\n",
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "NLS_LANG, ORACLE_*, HADOOP_CREDSTORE_PASSWORD",
                    "default": "",
                },
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
                "port": _ANY_PORT,
                "host": "https://catalog.example.com/api or postgresql+psycopg://db.example.com/iceberg",
                "extra": '{"s3.endpoint": "https://s3.example.com"}',
            },
        },
        "conn-fields": _catalog_fields(),
    }


_TEXT: dict[str, Any] = {"type": ["string", "null"]}
_SECRET: dict[str, Any] = {**_TEXT, "format": "password"}
# A box to tick would set what nobody has touched.
_SWITCH: dict[str, Any] = {**_TEXT, "enum": ["true", "false"]}

# The fields of catalogs: name of the property, label, help, kind. All other properties are in "Further properties".
_OF_CATALOGS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("token", "REST, Nessie: bearer token", "Instead of client ID and secret.", _SECRET),
    ("credential", "REST: credential", "ID and secret in one, id:secret, instead of login and password.", _SECRET),
    ("oauth2-server-uri", "REST: token endpoint", "Address that issues tokens, if not the catalog's own.", _TEXT),
    ("scope", "REST: OAuth2 scope", "Such as PRINCIPAL_ROLE:ALL; catalog if empty.", _TEXT),
    ("audience", "REST: OAuth2 audience", "Parameter of the request for a token.", _TEXT),
    ("resource", "REST: OAuth2 resource", "Parameter of the request for a token.", _TEXT),
    (
        *("rest.auth.type", "REST: kind of login", "OAuth2 with a client ID and secret, or a token, if empty."),
        {**_TEXT, "enum": ["oauth2", "basic", "none"]},
    ),
    ("rest.auth.basic.username", "REST: user", "Of HTTP's basic authentication.", _TEXT),
    ("rest.auth.basic.password", "REST: password", "Of HTTP's basic authentication.", _SECRET),
    ("rest.sigv4-enabled", "REST: sign for AWS", "true: every request is signed, as Glue and S3 Tables ask.", _SWITCH),
    ("rest.signing-name", "REST: AWS service", "glue, s3tables or execute-api.", _TEXT),
    ("rest.signing-region", "REST: AWS region", "Region that requests are signed for.", _TEXT),
    ("rest.access-key-id", "REST: AWS access key ID", "The environment's if empty.", _SECRET),
    ("rest.secret-access-key", "REST: AWS secret access key", "The environment's if empty.", _SECRET),
    ("ssl.cabundle", "REST, Nessie: trusted certificates", "File on the workers and the triggerer.", _TEXT),
    ("ssl.client.cert", "REST, Nessie: client certificate", "File on the workers and the triggerer.", _TEXT),
    ("ssl.client.key", "REST, Nessie: key of the certificate", "File on the workers and the triggerer.", _TEXT),
    ("rest.client.proxy.hostname", "REST: host of a proxy", "That of the environment if empty.", _TEXT),
    ("rest.client.proxy.port", "REST: port of the proxy", "With the host of the proxy.", _TEXT),
    ("rest.client.proxy.username", "REST: user of the proxy", "If it asks for one.", _TEXT),
    ("rest.client.proxy.password", "REST: password of the proxy", "If it asks for one.", _SECRET),
    ("ref", "Nessie: branch or tag", "Of names without an @; the server's default branch if empty.", _TEXT),
    ("user", "Nessie: author of commits", "The login if empty.", _TEXT),
    (
        *("authentication.type", "Nessie: kind of login", "BEARER with a token, if empty."),
        {**_TEXT, "enum": ["BEARER", "OAUTH2", "NONE"]},
    ),
    ("authentication.token", "Nessie: token", "The same as the bearer token.", _SECRET),
    ("authentication.oauth2.token-endpoint", "Nessie: token endpoint", "Address that issues tokens.", _TEXT),
    ("authentication.oauth2.issuer-url", "Nessie: issuer", "The realm that names the token endpoint.", _TEXT),
    ("authentication.oauth2.client-id", "Nessie: client ID", "Of OAuth2.", _TEXT),
    ("authentication.oauth2.client-secret", "Nessie: client secret", "Of OAuth2.", _SECRET),
    ("authentication.oauth2.client-scopes", "Nessie: scopes", "Separated by spaces.", _TEXT),
    (
        *("authentication.oauth2.grant-type", "Nessie: grant", "client_credentials if empty."),
        {**_TEXT, "enum": ["client_credentials", "password"]},
    ),
    ("authentication.oauth2.username", "Nessie: user of the grant", "With the grant password.", _TEXT),
    ("authentication.oauth2.password", "Nessie: password of the grant", "With the grant password.", _SECRET),
    ("glue.region", "Glue: region", "Such as eu-central-1.", _TEXT),
    ("glue.id", "Glue: account", "Number of the account that has the catalog, if it is another one.", _TEXT),
    ("glue.profile-name", "Glue: profile", "A profile of boto3's configuration.", _TEXT),
    ("glue.endpoint", "Glue: endpoint", "Address other than that of AWS; the host does the same.", _TEXT),
    ("glue.access-key-id", "Glue: access key ID", "The login does the same; boto3's sources if empty.", _SECRET),
    ("glue.secret-access-key", "Glue: secret access key", "The password does the same.", _SECRET),
    ("glue.session-token", "Glue: session token", "Of temporary keys.", _SECRET),
    ("ugi", "Hive: identity", "user or user:group, for a metastore that does not authenticate.", _SECRET),
    ("engine.hive.lock-enabled", "Hive: commit under a lock", "true if empty; see the documentation.", _SWITCH),
    ("hive.metastore.use.SSL", "Hive: TLS", "true: the connection uses TLS.", _SWITCH),
    ("hive.metastore.truststore.path", "Hive: trusted certificates", "A PEM file; the system's if empty.", _TEXT),
    ("hive.metastore.keystore.path", "Hive: client certificate", "A PEM file with certificate and key.", _TEXT),
    ("hive.metastore.keystore.password", "Hive: password of the key", "If it has one.", _SECRET),
    ("hive.metastore.client.auth.mode", "Hive: kind of login", "PLAIN: login and password are used.", _TEXT),
    ("hive.kerberos-authentication", "Hive: Kerberos", "true: with the ticket of the process.", _SWITCH),
    ("hive.kerberos-service-name", "Hive: Kerberos service", "hive if empty.", _TEXT),
)
_OF_S3: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("s3.endpoint", "S3: endpoint", "Only for stores other than Amazon's, such as https://s3.example.com.", _TEXT),
    ("s3.region", "S3: region", "Such as eu-central-1.", _TEXT),
    ("s3.profile-name", "S3: profile", "A profile of boto3's configuration.", _TEXT),
    ("s3.access-key-id", "S3: access key ID", "The credentials of the process if empty.", _SECRET),
    ("s3.secret-access-key", "S3: secret access key", "The credentials of the process if empty.", _SECRET),
    ("s3.session-token", "S3: session token", "Of temporary keys.", _SECRET),
    ("s3.path-style-access", "S3: bucket in the path", "true or false; with an endpoint true if empty.", _SWITCH),
    ("s3.anonymous", "S3: anonymous", "true: requests are not signed.", _SWITCH),
)
_OF_STORES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    *_OF_S3,
    ("gcs.oauth2.token", "GCS: token or key file", "The credentials of the process if empty.", _SECRET),
    ("gcs.project-id", "GCS: project", "Project that requests are made for.", _TEXT),
    ("gcs.service.host", "GCS: endpoint", "Only for an emulator or a private endpoint.", _TEXT),
    ("gcs.session-kwargs", "GCS: options of the HTTP session", "A JSON object.", _SECRET),
    ("adls.account-name", "Azure: account", "If it is not part of the locations.", _TEXT),
    ("adls.account-key", "Azure: account key", "One of key, SAS token, connection string, principal.", _SECRET),
    ("adls.sas-token", "Azure: SAS token", "Instead of the key.", _SECRET),
    ("adls.connection-string", "Azure: connection string", "Instead of the key.", _SECRET),
    ("adls.tenant-id", "Azure: tenant", "Of a service principal.", _TEXT),
    ("adls.client-id", "Azure: client ID", "Of a service principal.", _TEXT),
    ("adls.client-secret", "Azure: client secret", "Of a service principal.", _SECRET),
    ("adls.account-host", "Azure: host", "Only for an emulator or a private endpoint.", _TEXT),
    ("adls.anon", "Azure: anonymous", "true: no credentials are used.", _SWITCH),
    ("hdfs.user", "HDFS: user", "HADOOP_USER_NAME if empty.", _TEXT),
)


def _fields(*rows: tuple[str, str, str, dict[str, Any]]) -> dict[str, Any]:
    return {name: {"label": label, "description": text, "schema": kind} for name, label, text, kind in rows}


def _catalog_fields() -> dict[str, Any]:
    return {
        "type": {
            "label": "Catalog type",
            "description": "How the catalog is reached; left empty it is guessed from the URI.",
            "schema": {**_TEXT, "enum": ["sql", "hadoop", "rest", "hive", "nessie", "glue"]},
        },
        "catalog_name": {
            "label": "Catalog name",
            "description": "SQL catalogs keep tables under this name: use the one that Spark or PyIceberg use. "
            "The connection id if empty.",
            "schema": _TEXT,
        },
        "warehouse": {
            "label": "Warehouse",
            "description": "Location where new tables are created, such as s3://bucket/warehouse; for some REST "
            "catalogs a name.",
            "schema": _TEXT,
        },
        "allowed-locations": {
            "label": "Allowed locations",
            "description": "Prefixes of locations outside of the warehouse's bucket that tables may use, separated by "
            "commas.",
            "schema": _TEXT,
        },
        **_fields(*_OF_CATALOGS, *_OF_STORES),
        **_page_fields(),
        "properties": {
            "label": "Further properties",
            "description": "Catalog and storage properties under PyIceberg's names, as a JSON object.",
            "schema": {"type": ["object", "null"]},
        },
    }


def _page_fields() -> dict[str, Any]:
    return {
        "table-url": {
            "label": "Page of a table",
            "description": "For links of tasks, such as https://lake.example.com/{namespace}/{name}.",
            "schema": _TEXT,
        },
        "snapshot-url": {
            "label": "Page of a snapshot",
            "description": "For links of tasks, such as https://lake.example.com/{table}/snapshots/{snapshot_id}.",
            "schema": _TEXT,
        },
    }


def _paimon() -> dict[str, Any]:
    return {
        "connection-type": "paimon",
        "hook-class-name": "airflow_iceberg.hooks.paimon.PaimonHook",
        "hook-name": "Apache Paimon",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "host", "login", "password"],
            "relabeling": {},
            "placeholders": {"port": _ANY_PORT, "extra": '{"s3.endpoint": "https://s3.example.com"}'},
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
            **_fields(*_OF_STORES),
            **_page_fields(),
            "iceberg-conn-id": {
                "label": "Connection of the Iceberg catalog",
                "description": "In which the tables are Iceberg tables, too (metadata.iceberg.storage); for links of "
                "tasks.",
                "schema": _TEXT,
            },
            "properties": {
                "label": "Further properties",
                "description": "Storage properties under PyIceberg's names, as a JSON object.",
                "schema": {"type": ["object", "null"]},
            },
        },
    }
