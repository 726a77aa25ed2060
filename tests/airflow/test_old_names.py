"""Names that were others before the first release: the old spelling is an error that gives the new one."""

import pytest

from airflow_iceberg import operators
from airflow_iceberg.decorators.iceberg import append_task, merge_task, overwrite_task
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.hooks.signatures import RENAMED, arguments_of
from airflow_iceberg.hooks.task_table import TaskTable
from airflow_iceberg.operators import IcebergAppendOperator, IcebergRemoveOrphanFilesOperator
from airflow_iceberg.operators._job import TableOperator

RENAMED_ARGUMENT = "has no argument 'partition_keys': it is called 'partition_key_format' now"


def rows():
    """The function of a decorated task."""


class TestArguments:
    """Of operators, of decorators and of the hook."""

    def test_the_new_names_are_those_of_arguments(self):
        kinds = [getattr(operators, name) for name in operators.__all__ if name.endswith("Operator")]
        known = {one.name for kind in kinds for one in arguments_of(kind)}
        assert set(RENAMED.values()) <= known
        assert not set(RENAMED) & known

    def test_of_an_operator(self):
        given = {"task_id": "a", "table": "s.t", "files": "f.parquet"}
        with pytest.raises(TypeError, match=f"IcebergAppendOperator {RENAMED_ARGUMENT}"):
            IcebergAppendOperator(**given, partition_keys="value")
        with pytest.raises(TypeError, match=RENAMED_ARGUMENT):
            IcebergAppendOperator.partial(**given, partition_keys="value")

    @pytest.mark.parametrize("decorator", [append_task, overwrite_task, merge_task])
    def test_of_a_decorator(self, decorator):
        with pytest.raises(TypeError, match=RENAMED_ARGUMENT):
            decorator(table="s.t", partition_keys="value")
        decorated = decorator(table="s.t")(rows)
        with pytest.raises(TypeError, match=RENAMED_ARGUMENT):
            decorated.override(partition_keys="value")

    def test_of_the_hook(self):
        with pytest.raises(TypeError, match=f"task_table {RENAMED_ARGUMENT}"):
            IcebergHook().task_table("s.t", partition_keys="value")
        with pytest.raises(TypeError, match="unexpected keyword argument 'partition_keys'"):
            TaskTable.bound(None, "s.t", {}, partition_keys="value")

    def test_an_author_may_have_an_argument_of_this_name(self):
        class Mine(IcebergAppendOperator):
            def __init__(self, *, partition_keys, **kwargs):
                super().__init__(**kwargs)
                self.columns = partition_keys

        class Derived(Mine):
            """It has no constructor of its own."""

        given = {"task_id": "a", "table": "s.t", "files": "f.parquet"}
        for kind in (Mine, Derived):
            assert kind(**given, partition_keys=["day"]).columns == ["day"]


class TestClasses:
    def test_are_imported_by_their_new_name(self):
        with pytest.raises(ImportError, match="IcebergPublishOperator is called IcebergPublishBranchOperator now"):
            from airflow_iceberg.operators import IcebergPublishOperator  # noqa: F401
        with pytest.raises(AttributeError, match="has no attribute 'IcebergNothingOperator'"):
            operators.IcebergNothingOperator  # noqa: B018
        assert issubclass(operators.IcebergPublishBranchOperator, TableOperator)


class TestValues:
    def test_allow_recent_is_an_argument_and_no_option(self):
        clean = IcebergRemoveOrphanFilesOperator(task_id="c", table="s.t", options={"allow_recent": True})
        with pytest.raises(InvalidInputError, match="no option: it is an argument of its own, allow_recent=True"):
            clean._request()
        clean = IcebergRemoveOrphanFilesOperator(task_id="c", table="s.t", allow_recent="true")
        assert clean._request().allow_recent is True
