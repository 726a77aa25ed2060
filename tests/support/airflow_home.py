"""An Airflow of the test session's own: a folder, a SQLite database, no examples, no telemetry.

`point_airflow_at` has to run before anything imports airflow, which reads its configuration once; tests/conftest.py
calls it first thing. The database is made on demand by the fixture `airflow_db`.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.services.launch import cached

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "dags_examples"


def settings(home: Path, *, dags_folder: Path | None = None) -> dict[str, str]:
    """Return the environment variables of an Airflow that lives in one folder and opens no port.

    Args:
        dags_folder: by default one that is empty: `dag.test()` reads all DAGs of the folder each time.
    """
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags_folder or home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def point_airflow_at(home: Path) -> None:
    """Make the Airflow of this process, and of its children, live in `home`."""
    assert "airflow" not in sys.modules, "airflow was imported before its home was chosen"
    os.environ.update(settings(home))


def migrate(home: Path) -> None:
    """Put Airflow's database into `home`: a copy of one that was migrated when this Airflow was first used."""
    home.mkdir(exist_ok=True)
    made = cached(f"airflow-{importlib.metadata.version('apache-airflow-core')}", _migrate)
    shutil.copy(made / "airflow.db", home)


def register(dag: Any) -> None:
    """Let Airflow's database know a DAG that is in no file of the DAGs' folder."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    from tests.support.airflow_versions import DagBag, sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)


def xcom(run: Any, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
    """Return an XCom of a DAG run, by default what a task returned."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    which = {"run_id": run.run_id, "dag_ids": run.dag_id, "task_ids": task_id, "key": key, "map_indexes": map_index}
    with create_session() as session:
        found = session.scalars(XComModel.get_many(**which)).first()
        return None if found is None else XComModel.deserialize_value(found)


def _migrate(home: Path) -> None:
    # In a process of its own: it takes seconds and logs a lot.
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=os.environ | settings(home),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, f"airflow db migrate failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
