"""The clauses of a merge, as people write them."""

import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.merge_clauses import MergeClause
from airflow_iceberg.expressions.merge_sql import columns_needed, key_columns, parse_clauses, update_clause

MATCHED, NOT_MATCHED, BY_SOURCE = "matched", "not matched", "not matched by source"


def one(text: str, dialect: str = "spark") -> MergeClause:
    (clause,) = parse_clauses(text, dialect=dialect)
    return clause


class TestAClause:
    """Which rows it is for, what happens to them, and its SQL as it was written."""

    @pytest.mark.parametrize(
        ("text", "rows", "action", "condition"),
        [
            ("when matched then delete", MATCHED, "delete", None),
            ("WHEN MATCHED AND source.op = 'd' THEN DELETE ;", MATCHED, "delete", "source.op = 'd'"),
            ("when not matched by source then delete", BY_SOURCE, "delete", None),
            ("when not matched by source and target.n > 1 then delete", BY_SOURCE, "delete", "target.n > 1"),
            ("when not matched then insert *", NOT_MATCHED, "insert", None),
            ("when not matched by target and n > 1 then insert *", NOT_MATCHED, "insert", "n > 1"),
            ("when matched and a = 1 then update set *", MATCHED, "update", "a = 1"),
        ],
    )
    def test_of_each_kind(self, text, rows, action, condition):
        clause = one(text)
        assert (clause.rows, clause.action, clause.condition) == (rows, action, condition)
        assert clause.is_star is text.endswith("*")

    @pytest.mark.parametrize(
        "expression",
        [
            "case when a > 1 then case when b then 1 else 2 end else 3 end",
            "coalesce(source.a, (select max(x) from t where x in (1, 2)))",
            "'when matched, then ; delete'",
            "array(1, 2)[0]",
            "upper(source.`when`)",
            "target.a + /* , when */ source.b",
            "date '2026-01-01' - interval 1 day",
            "a = 1 and not b or c between 1 and 2",
            "source.a = ''",
            "a || e''",
        ],
    )
    def test_its_sql_stays_as_it_is(self, expression):
        text = f"when matched and {expression} then update set x = {expression}, target.y = {expression}"
        clause = one(text)
        assert clause.condition == expression
        assert (clause.columns, clause.expressions) == (("x", "target.y"), (expression, expression))
        text = f"when not matched then insert (x, y) values ({expression}, {expression})"
        assert one(text).expressions == (expression, expression)

    def test_comments_between_its_words_are_no_part_of_it(self):
        text = """
        -- gone: when matched then delete
        when /* the rows */ matched and a = 1 -- then delete
        then update set x = 2, -- the price
             y = 3
        """
        clause = one(text)
        assert (clause.condition, clause.columns, clause.expressions) == ("a = 1", ("x", "y"), ("2", "3"))

    @pytest.mark.parametrize(("dialect", "quoted"), [("spark", "`a b`"), ("duckdb", '"a b"')])
    def test_quoted_names(self, dialect, quoted):
        assert one(f"when matched then update set target.{quoted} = source.{quoted}", dialect).columns == (
            "target.a b",
        )
        assert one(f"when not matched then insert ({quoted}, x) values (1, 2)", dialect).columns == ("a b", "x")

    def test_several_stand_in_their_order(self):
        found = parse_clauses(
            "when matched and a then delete; when matched and b then update set x = case when a then 1 end "
            "when matched then update set * when not matched and c then insert (x) values (1) "
            "when not matched then insert * when not matched by source then update set x = null;",
            dialect="spark",
        )
        assert [(clause.rows, clause.condition) for clause in found] == [
            (MATCHED, "a"), (MATCHED, "b"), (MATCHED, None), (NOT_MATCHED, "c"), (NOT_MATCHED, None), (BY_SOURCE, None),
        ]  # fmt: skip
        assert found[1].expressions == ("case when a then 1 end",)


class TestWhatIsNoClause:
    """One message says where, and what is expected."""

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "a merge has no clause, expected e.g. 'when matched then update set *'"),
            (" ;", "a merge has no clause, expected e.g. 'when matched then update set *'"),
            ("-- nothing", "a merge has no clause, expected e.g. 'when matched then update set *'"),
            ("matched then delete", "… before 'matched then delete': expected 'when'"),
            ("when matched delete", "… before 'delete': expected 'then'"),
            ("when matched then", "… at the end: expected 'update' or 'delete'"),
            ("when matched then insert *", "… before 'insert *': expected 'update' or 'delete'"),
            ("when not matched then delete", "… before 'delete': expected 'insert'"),
            ("when not matched by me then delete", "… before 'me then delete': expected 'target'"),
            ("when matched and then delete", "… before 'then delete': an expression is missing"),
            ("when matched and (a then delete", "… at the end: a bracket or a 'case' is not closed"),
            ("when matched and a) then delete", "… before ') then delete': unexpected ')'"),
            ("when matched then update set", "… at the end: expected the name of a column"),
            ("when matched then update set 'a' = 1", "… before \"'a' = 1\": expected the name of a column"),
            ("when matched then update set a", "… at the end: expected '='"),
            ("when matched then update set a = 1,", "… at the end: expected the name of a column"),
            ("when matched then update set a = , b = 1", "… before ', b = 1': an expression is missing"),
            (
                "when matched then update set a = 1, a = 2",
                "column 'a' appears twice in 'update set' of a merge or an update",
            ),
            ("when matched then update set s. = 1", "… before '= 1': expected the name of a column"),
            ("when matched then update set s.x", "… at the end: expected '='"),
            (
                "when not matched then insert (a, b) values (1)",
                "… at the end: 'insert' names 2 columns and has 1 values",
            ),
            (
                "when not matched then insert (a, a) values (1, 2)",
                "column 'a' appears twice in 'insert' of a merge or an update",
            ),
            ("when not matched then insert values (1)", "… before 'values (1)': expected '('"),
            (
                "when not matched by source then update set *",
                (
                    "… at the end: rows that are not matched by the source have no values of it: name columns and "
                    "expressions"
                ),
            ),
            ("when matched then delete drop table t", "… before 'drop table t': expected 'when'"),
            ("when matched and a = 'x then delete", "the clauses of the merge are no SQL: "),
        ],
    )
    def test_it_is_refused(self, text, message):
        with pytest.raises(InvalidInputError) as caught:
            parse_clauses(text, dialect="spark")
        found = str(caught.value).replace("the clauses of the merge are not understood", "…")
        assert found.startswith(message) if message.endswith(": ") else found == message

    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("when matched then delete when matched and a then update set x = 1", 2),
            ("when not matched then insert * when matched then delete when not matched and a then insert *", 3),
            ("when not matched by source then delete when not matched by source then delete", 2),
        ],
    )
    def test_one_that_can_never_apply(self, text, number):
        with pytest.raises(
            InvalidInputError, match=rf"clause {number} of the merge \('when .*'\) can never apply: clause 1"
        ):
            parse_clauses(text, dialect="spark")


class TestAnUpdate:
    """It is one clause, for the rows of the table that its condition selects."""

    def test_it_has_columns_and_expressions(self):
        clause = update_clause({"a": "b + 1", "c": "'x'"}, where="d > 1")
        assert (clause.columns, clause.expressions, clause.condition) == (("a", "c"), ("b + 1", "'x'"), "d > 1")

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({}, "an update sets no column, expected e.g. {'status': \"'done'\"}"),
            ("a = 1", "an update sets no column, expected e.g. {'status': \"'done'\"}"),
            ({"a": 1}, "column 'a' of an update has the value 1, expected an SQL expression, as text"),
            ({"a": " "}, "column 'a' of an update has the value ' ', expected an SQL expression"),
            ({"": "1"}, "column '' of an update has the value '1', expected an SQL expression"),
        ],
    )
    def test_anything_else_is_refused(self, values, message):
        with pytest.raises(InvalidInputError) as caught:
            update_clause(values)
        assert str(caught.value).startswith(message)


class TestWhatTheSqlNeeds:
    """What is not understood is needed as a whole."""

    NAMES = ("id", "part", "n", "s")

    @pytest.mark.parametrize(
        ("texts", "columns"),
        [
            (["target.n + source.x"], ("n",)),
            (["N > 1", "target.S.part is null"], None),
            (["upper(part)", "1"], ("part",)),
            (["1"], ()),
            (["exists (select * from o)"], None),
            (["f(("], None),
        ],
    )
    def test_columns(self, texts, columns):
        found = columns_needed(texts, self.NAMES, dialect="spark")
        if columns is None and found is not None:
            assert {"n", "s"} <= set(found)
        else:
            assert found == columns

    @pytest.mark.parametrize("dialect", ["duckdb", "spark"])
    def test_words_that_are_no_names_for_sqlglot(self, dialect):
        names = ("id", "current_date", "unit", "at")
        for text, columns in {
            "current_date": ("current_date",),
            "date_trunc(unit, target.at)": ("unit", "at"),
            "date_diff(unit, at, at)": ("unit", "at"),
            "map(unit)": None if dialect == "spark" else ("unit",),
        }.items():
            assert columns_needed([text], names, dialect=dialect) == columns, text

    def test_a_name_is_the_column_that_is_spelled_so(self):
        names = ("id", "ID", "v", "Ä", "ä")
        for text, columns in {
            "target.id = source.ID": ("id",),
            "target.id = ID": ("id", "ID"),
            "target.ID + v": ("ID", "v"),
            "iD": ("id", "ID"),
            "ä + v": ("v", "ä"),
            "V": ("v",),
        }.items():
            assert columns_needed([text], names, dialect="duckdb") == columns, text

    @pytest.mark.parametrize(
        ("condition", "pairs"),
        [
            ("target.id = source.id", ((("id",), ("id",)),)),
            (
                "(source.k = target.id) and Target.N = source.n and target.n > 1",
                ((("id",), ("k",)), (("N",), ("n",))),
            ),
            ("target.s.x = source.k", ((("s", "x"), ("k",)),)),
            (
                "target.`s p`.a.b.c.d = source.a.B.c.d and target.x = source.y",
                ((("s p", "a", "b", "c", "d"), ("a", "B", "c", "d")), (("x",), ("y",))),
            ),
            ("target.s[0] = source.k and target.m['a'] = source.k and lower(target.s) = source.k", ()),
            ("target.s.x = target.k and source.a = source.b", ()),
            ("target.id = source.id or target.n = source.n", ()),
            ("target.id + 1 = source.id and id = source.id and target.n <=> source.n", ()),
            ("not (target.id = source.id)", ()),
            ("((", ()),
        ],
    )
    def test_keys(self, condition, pairs):
        assert key_columns(condition, dialect="spark") == pairs
