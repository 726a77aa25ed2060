"""What a process that only looks at a table has to import."""

import subprocess
import sys

import pytest

from tests.support.builders import id_rows, new_table

LOOK = """
import sys
from airflow_iceberg.table import Table
table = Table.from_metadata(sys.argv[1])
{what}
print(*sorted({{"pyarrow", "pyspark", "airflow"}} & set(sys.modules)))
"""


class TestLookingAtATable:
    """A sensor looks at the metadata, and a plan reads manifests: neither needs the 40 MB of pyarrow."""

    @pytest.mark.costly
    @pytest.mark.parametrize("what", ["table.current_snapshot()", "assert len(table.scan('id > 1').plan_files()) == 1"])
    def test_it_imports_no_pyarrow(self, tmp_path, what):
        table = new_table(tmp_path)
        table.append(id_rows([1, 2]))
        command = [sys.executable, "-c", LOOK.format(what=what), table.metadata_location]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == ""
