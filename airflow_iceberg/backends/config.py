"""The settings of a submission: Spark's, and those of the machine that the driver starts on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.redaction import HIDDEN, hide, is_secret_setting, is_secret_variable

if TYPE_CHECKING:
    from airflow_iceberg.commit.open_table import OpenTable

STORAGE_VARIABLE = "AIRFLOW_ICEBERG_STORAGE"
PRIVATE_VARIABLE = "AIRFLOW_ICEBERG_PRIVATE"

# The properties by which a job reaches the table's files. A job gets no others of the catalog's properties, which can
# be its credentials.
STORAGE_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.")


@dataclass(frozen=True, kw_only=True, slots=True)
class SparkConfig:
    """Resources and options of a submitted job, all optional; the connection says where it runs.

    A server of Spark Connect runs already: for it, only `conf` (settings that a session may change) and `py_files`.

    Attributes:
        conf: Spark properties, `{"spark.sql.shuffle.partitions": "16"}`; in deploy mode cluster without secrets.
        env_vars: environment variables of the driver; in deploy mode cluster without secrets.
        driver_memory, executor_memory: amounts of memory, such as "4g".
        num_executors, executor_cores, total_executor_cores: numbers, with the meaning that they have for spark-submit.
        py_files, jars, packages: further Python files, jars and Maven coordinates.
        deploy_mode: "client" or "cluster"; the connection's own by default.
        queue: YARN queue; the connection's own by default.
        properties_file: a replacement of spark-defaults.conf.
        proxy_user: the user to act for.
    """

    conf: Mapping[str, str] = field(default_factory=dict)
    env_vars: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str | None = None
    executor_memory: str | None = None
    num_executors: int | None = None
    executor_cores: int | None = None
    total_executor_cores: int | None = None
    py_files: Sequence[str] = ()
    jars: Sequence[str] = ()
    packages: Sequence[str] = ()
    deploy_mode: str | None = None
    queue: str | None = None
    properties_file: str | None = None
    proxy_user: str | None = None

    @classmethod
    def of(cls, given: SparkConfig | Mapping[str, Any] | None) -> SparkConfig:
        """Return the settings, which may be given as a dictionary of their fields."""
        return given if isinstance(given, cls) else cls(**checked_fields(cls, "spark_config", given))

    def serialize(self) -> dict[str, Any]:
        """Return the settings that were made, without secrets, for Airflow to show and store with the DAG."""
        settings = {name: getattr(self, name) for name in self.__slots__}
        shown = {name: value for name, value in settings.items() if value not in (None, (), {}, [])}
        hidden = {name: hide(name, list(value) if isinstance(value, tuple) else value) for name, value in shown.items()}
        for name, is_hidden in {"conf": is_secret_setting, "env_vars": is_secret_variable}.items():
            if name in shown:
                texts = {key: hide(key, value) for key, value in shown[name].items()}
                hidden[name] = {
                    key: HIDDEN if text == shown[name][key] and is_hidden(key, str(text)) else text
                    for key, text in texts.items()
                }
        return hidden

    def __repr__(self) -> str:
        return f"SparkConfig({self.serialize()!r})"

    # Airflow converts values of unknown types to text.
    __str__ = __repr__


def checked_fields(kind: type, name: str, given: Any) -> dict[str, Any]:
    """Return the fields of an options class, given as a dictionary; none for None. Messages call the argument `name`.

    Raises:
        InvalidInputError: not a dictionary, or a key that the class does not have.
    """
    known = [item.name for item in fields(kind)]
    if not isinstance(given or {}, Mapping):
        raise InvalidInputError(f"{name} is {given!r}, expected a {kind.__name__} or a dictionary of its fields")
    unknown = sorted(str(key) for key in (given or {}) if key not in known)
    if unknown:
        raise InvalidInputError(f"unknown {name} key {unknown[0]!r}; one of {', '.join(known)}")
    return dict(given or {})


def storage_of(table: OpenTable) -> dict[str, str]:
    """Return the properties by which a job reaches a table's files, with what its catalog has lent for them."""
    lent = getattr(table.io, "current_properties", None)
    # Not both together: a session of our own would be sent to where the catalog's server has its keys.
    return storage_properties(table.catalog.properties if lent is None else lent())


def storage_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return those of a catalog's properties by which a job reaches the table's files."""
    found = {key: value for key, value in properties.items() if key.startswith(STORAGE_PREFIXES)}
    if any(key.startswith("hdfs.") for key in found):  # its credentials are for the hosts that these name
        found |= {key: properties[key] for key in ("warehouse", "allowed-locations") if properties.get(key)}
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """How Spark is started on this machine.

    Attributes:
        binary: the path of spark-submit.
        environment: all variables of that process; they are sent to no cluster and are on no command line.
        folder: a folder for the files of one submission, which only this user can enter.
    """

    binary: str
    environment: Mapping[str, str] = field(repr=False)
    folder: str = ""
