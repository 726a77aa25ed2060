"""Runs jobs as the worker of a cluster would: with nothing but the standard library, pyarrow (with numpy) and fsspec.

    python bare_program.py <location of a plan>

Every other import fails as it does where the package is not installed.
"""

import sys
from importlib.abc import MetaPathFinder

ALLOWED = {*sys.stdlib_module_names, "pyarrow", "numpy", "fsspec", "airflow_iceberg"}


class Bare(MetaPathFinder):
    """Finds nothing that a bare worker has not."""

    def find_spec(self, name, path=None, target=None):
        # Private modules are of an interpreter, such as _sysconfigdata__linux_x86_64-linux-gnu.
        if name.partition(".")[0] not in ALLOWED and not name.startswith("_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Bare())

from airflow_iceberg.jobs.protocol.plan import JobPlan  # noqa: E402
from airflow_iceberg.jobs.run_local import run_local  # noqa: E402
from airflow_iceberg.storage.stores.fsspec_io import load_file_io  # noqa: E402

io = load_file_io()
location = sys.argv[1]
run_local(JobPlan.from_json(io.read(location), path=location), io, threads=1)
print(*sorted({"sqlglot", "fastavro"} & sys.modules.keys()) or ["nothing else"])
