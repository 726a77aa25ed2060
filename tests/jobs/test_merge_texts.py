"""A driver without sqlglot takes SQL that it cannot read for SQL that needs everything."""

import sys

import pytest

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.jobs.merge.texts import reads_table, without_stars

COLUMNS = {"target": ["id", "v"]}


@pytest.fixture
def no_sqlglot(monkeypatch):
    """A Python that does not have sqlglot."""
    monkeypatch.setattr(sys, "meta_path", [])
    monkeypatch.delitem(sys.modules, "sqlglot", raising=False)


@pytest.mark.usefixtures("no_sqlglot")
class TestWithoutSqlglot:
    """Nothing is concluded from a text that was not read."""

    @pytest.mark.parametrize("text", ["(select max(id) from target)", "id in (table target)", "FROM x SELECT 1"])
    def test_any_subquery_may_read_a_side(self, text):
        assert reads_table(["v + 1", text], "target", dialect="spark")

    def test_a_text_without_a_subquery_reads_none(self):
        assert not reads_table(["source.v + 1", "target.id > 3"], "target", dialect="spark")

    def test_a_star_needs_it(self):
        assert without_stars("source.v", COLUMNS, dialect="spark") == "source.v"
        with pytest.raises(UnsupportedError, match=r"'hash\(\*\)' .* may have a star.*pip install sqlglot"):
            without_stars("hash(*)", COLUMNS, dialect="spark")


class TestWithSqlglot:
    """The text is read."""

    def test_of_what_it_reads(self):
        assert not reads_table(["(select max(id) from feed)"], "target", dialect="spark")
        assert "*" not in without_stars("hash(target.*)", COLUMNS, dialect="spark")
