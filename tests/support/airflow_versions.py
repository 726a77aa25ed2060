"""Names that Airflow 3.1, 3.2 and 3.3 have in different modules, and what only the later ones have.

`make test-airflow` runs the tests of tests/airflow in each of them. Nothing of this is needed by the package itself.
"""

import importlib.metadata
from typing import Any

import airflow.sdk
import pytest
from packaging.version import Version

AIRFLOW = Version(importlib.metadata.version("apache-airflow-core"))

needs_partitions = pytest.mark.skipif(Version("3.3") > AIRFLOW, reason="Airflow before 3.3 has no partitions of events")
needs_commands = pytest.mark.skipif(Version("3.2") > AIRFLOW, reason="Airflow 3.1 offers no commands of providers")
needs_policies = pytest.mark.skipif(Version("3.3") > AIRFLOW, reason="Airflow before 3.3 has no retry policies")

RetryAction = getattr(airflow.sdk, "RetryAction", None)

if Version("3.2") <= AIRFLOW:
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.sdk.exceptions import TaskDeferralTimeout
    from airflow.sdk.lineage import HookLineageCollector
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
    from airflow.serialization.serialized_objects import DagSerialization
else:
    from airflow.exceptions import TaskDeferralTimeout
    from airflow.lineage.hook import HookLineageCollector
    from airflow.models.dagbag import DagBag, sync_bag_to_db
    from airflow.providers_manager import ProvidersManager as ProvidersManagerTaskRuntime
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization

__all__ = [
    "AIRFLOW",
    "DagBag",
    "DagSerialization",
    "HookLineageCollector",
    "ProvidersManagerTaskRuntime",
    "RetryAction",
    "TaskDeferralTimeout",
    "as_the_scheduler_has_it",
    "needs_commands",
    "needs_partitions",
    "needs_policies",
    "sync_bag_to_db",
]


def as_the_scheduler_has_it(dag: Any) -> Any:
    """Return a DAG as it comes out of Airflow's database."""
    return DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
