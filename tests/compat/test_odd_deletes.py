"""Tables with deletes that only other writers make, and our changes of them, are read by Iceberg Java as by the model.

Not those with a vector that is older than its file: Java refuses them. More cases: `make stress ARGS=…`.
"""

from collections import Counter

import pytest

from tests.operations.test_odd_deletes_model import changed
from tests.support.odd_deletes import SCHEMA, OddTable
from tests.support.sampling import SEED, sampled


@pytest.mark.java
@pytest.mark.sample(4)
@pytest.mark.generated
@pytest.mark.parametrize("number", range(sampled(60)))
def test_java_reads_the_same(java, tmp_path, number):
    def judge(odd, rows):
        if any(task.outdated for task in odd.table.scan().plan_files()):
            return
        found = java.load(odd.table.metadata_location)
        assert Counter(tuple(row[name] for name in SCHEMA) for row in found) == rows

    changed(OddTable.make(tmp_path, SEED * 1_000_003 + 700_000 + number), judge)
