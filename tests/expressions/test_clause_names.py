"""What the SQL of a clause may name, and what it uses without naming it."""

import duckdb
import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.clause_names import (
    check_names,
    check_one_row,
    has_subquery,
    names_its_columns,
    reads_table,
    tables_read,
    without_stars,
)
from airflow_iceberg.expressions.merge_clauses import column_name, name_parts
from airflow_iceberg.expressions.merge_sql import parse_clauses, update_clause

TARGET, SOURCE = ("id", "v", "s", "part"), ("id", "v", "w", "s")
BY_SOURCE, NOT_MATCHED, MATCHED = "when not matched by source", "when not matched", "when matched"
both = pytest.mark.parametrize("dialect", ["spark", "duckdb"])


def check(clauses, dialect="spark", *, on="target.id = source.id", target=TARGET, source=SOURCE, others=()):
    found = parse_clauses(clauses, dialect=dialect)
    check_names(found, on=on, target=target, source=source, others=others, dialect=dialect)


def refused(clauses, dialect="spark", **more):
    with pytest.raises(InvalidInputError) as caught:
        check(clauses, dialect, **more)
    return str(caught.value)


@both
class TestAClauseOfOneSide:
    """Its rows have no row of the other side, so that no column of it has a meaning."""

    @pytest.mark.parametrize(
        ("clauses", "column", "side", "other"),
        [
            (f"{BY_SOURCE} then update set v = source.v", "source.v", "source", "target"),
            (f"{NOT_MATCHED} then insert (id, v) values (source.id, target.v)", "target.v", "target", "source"),
            (f"{BY_SOURCE} and source.v is null then delete", "source.v", "source", "target"),
            (f"{NOT_MATCHED} and target.v is null then insert *", "target.v", "target", "source"),
            (f"{BY_SOURCE} then update set v = 1 + coalesce(SOURCE.V, 0)", "SOURCE.V", "source", "target"),
            (f"{BY_SOURCE} then update set v = source.s.x", "source.s.x", "source", "target"),
            (
                f"{NOT_MATCHED} then insert (v) values (case when 1 = 1 then target.s.x end)",
                "target.s.x",
                "target",
                "source",
            ),
            (
                f"{BY_SOURCE} and exists (select 1 from f where f.id = source.id) then delete",
                "source.id",
                "source",
                "target",
            ),
            (
                f"{BY_SOURCE} then update set v = (select x from f where x in (select y from g where y = source.v))",
                "source.v",
                "source",
                "target",
            ),
            (f"{BY_SOURCE} then update set v = hash(source.*)", "source.*", "source", "target"),
            (f"{BY_SOURCE} then update set v = md5(to_json(source))", "source", "source", "target"),
            (f"{NOT_MATCHED} then insert (v) values ((select to_json(target)))", "target", "target", "source"),
        ],
    )
    def test_a_name_of_the_other_side(self, dialect, clauses, column, side, other):
        message = refused(clauses, dialect)
        assert message.startswith(f"column '{column}' is not known in clause 1, 'when not matched")
        assert message.endswith(f"no row of the {side} matches, so that only columns of the {other} can be used")

    def test_a_bare_name_that_only_the_other_side_has(self, dialect):
        message = refused(f"{MATCHED} then delete {BY_SOURCE} then update set v = w", dialect)
        assert message.startswith(
            "column 'w' is not known in clause 2, 'when not matched by source …', it is one of the source: no row of"
        )
        assert "'part' is not known" in refused(f"{NOT_MATCHED} and part = 'x' then insert *", dialect)
        check(f"{BY_SOURCE} then update set v = w", dialect, source=None)  # not known yet: the job says so

    @pytest.mark.parametrize(
        "clauses",
        [
            f"{NOT_MATCHED} then insert (id, v) values (id, v)",
            f"{NOT_MATCHED} and w > 1 and s.x = 2 then insert (id, v) values (source.id, w)",
            f"{BY_SOURCE} then update set v = v + 1",
            f"{BY_SOURCE} and part = 'a' and id > 1 then delete",
            f"{BY_SOURCE} then update set v = (select max(source.v) from f as source where source.id = target.id)",
            f"{BY_SOURCE} then update set v = (select max(w) from f)",
            f"{BY_SOURCE} then update set v = unheard_of",
        ],
    )
    def test_other_names(self, dialect, clauses):
        check(clauses, dialect)

    def test_a_column_with_the_name_of_a_side(self, dialect):
        check(f"{BY_SOURCE} and source = 'web' then delete", dialect, target=("id", "source"))
        check(f"{BY_SOURCE} and source.x = 1 then delete", dialect, target=("id", "source"))
        check(f"{NOT_MATCHED} and target.x = 1 then insert *", dialect, source=("id", "target"))
        check(f"{BY_SOURCE} and exists (select 1 from f where source.x = 1) then delete", dialect, others=("source",))

    def test_a_parameter_of_a_function_with_the_name_of_a_side(self, dialect):
        check(f"{NOT_MATCHED} then insert (v) values (list_transform(w, target -> target + 1)[1])", dialect)


@both
class TestTwoMeanings:
    """A name that both sides have needs one of them."""

    @pytest.mark.parametrize(
        ("clauses", "where"),
        [
            (f"{MATCHED} then update set v = v + 1", "clause 1, 'when matched …'"),
            (f"{MATCHED} and w = 1 then delete {MATCHED} and id = 2 then delete", "clause 2, 'when matched …'"),
            (f"{MATCHED} then update set v = s.x", "clause 1, 'when matched …'"),
        ],
    )
    def test_in_a_clause(self, dialect, clauses, where):
        message = refused(clauses, dialect)
        assert f"in {where} is one of both sides: write target." in message

    def test_in_the_condition_of_the_match(self, dialect):
        message = refused(f"{MATCHED} then delete", dialect, on="target.id = source.id and v > 1")
        assert message == "column 'v' in the condition of the match is one of both sides: write target.v or source.v"

    def test_a_name_of_one_side(self, dialect):
        check(f"{MATCHED} and part = 'a' then update set v = w", dialect, on="target.id = source.id and w > 1")

    def test_a_column_that_a_side_does_not_have(self, dialect):
        message = refused(f"{MATCHED} then update set v = source.part", dialect)
        assert message == "column 'source.part' in clause 1, 'when matched …' is not in the source: it has id, v, w, s"


@both
class TestAnUpdate:
    def test_there_is_no_source(self, dialect):
        with pytest.raises(InvalidInputError) as caught:
            check_names([update_clause({"v": "source.v"})], on=None, target=TARGET, source=None, dialect=dialect)
        assert str(caught.value) == (
            "column 'source.v' is not known in the update: there is no source, only target, the table itself"
        )
        clause = update_clause({"v": "target.v + id"}, where="s.x = 1")
        check_names([clause], on=None, target=TARGET, source=None, dialect=dialect)


class TestWhatATextUses:
    """A proof names every kind of node that it rests on."""

    @pytest.mark.parametrize(
        "text",
        [
            *["target.v + 1", "v::varchar", "case when target.v > 1 then source.w else 1 end", "upper(x) like 'a%'"],
            *["exists (select * from feed f where f.id = source.id)", "v in (select id from f)", "coalesce(v, $p)"],
            *["date '2026-01-01' - interval 1 day", "a and not b or c between 1 and 2", "struct_pack(a := target.v)"],
            *["list_transform(l, x -> x + 1)", "target.s.x is distinct from 3", "source"],
        ],
    )
    def test_what_is_proved(self, text):
        assert names_its_columns(text, ["v", "SOURCE"], dialect="duckdb")

    @pytest.mark.parametrize(
        "text",
        [
            *[
                "to_json(target)",
                "target",
                "target is not null",
                "(select to_json(target))",
                "target['v']",
                "#1",
                "#1 + 2",
            ],
            *["columns('a')", "greatest(*columns('a'))", "unpack(columns(*))", "hash(target.*)", "struct_pack(*)"],
            *["a.list_filter(x -> x)", "f((", "[x for x in target]", "exists (select 1 from f where f = target)"],
            *["identifier('x')", "sum(v) over ()"],
        ],
    )
    def test_what_is_not(self, text):
        assert not names_its_columns(text, ["v"], dialect="duckdb")

    def test_tables(self):
        texts = ["v in (select id from F)", "(select max(x) from g join target on g.a = target.b) > 1"]
        assert tables_read(texts, dialect="spark") == {"f", "g", "target"}
        assert tables_read([*texts, "(("], dialect="spark") is None
        assert reads_table(texts, "target", dialect="spark")
        assert not reads_table(texts, "source", dialect="spark")
        assert reads_table(["((source"], "source", dialect="spark")
        assert has_subquery(texts[0], dialect="spark")

    @both
    @pytest.mark.parametrize(
        "text",
        [
            *["(table feed)", "v in (table feed)", "exists (TABLE `feed`)", "v in (select id from (table feed))"],
            *["v in (with x as (table feed) select * from x)", "v in (table temp.feed)", "(table /* it */ feed)"],
        ],
    )
    def test_a_table_as_a_query(self, text, dialect):
        assert reads_table([text], "feed", dialect=dialect)
        assert "feed" in (tables_read([text], dialect=dialect) or {"feed"})
        assert not reads_table([text], "source", dialect=dialect)

    def test_subqueries(self):
        texts = ["v in (select id from F)"]
        assert has_subquery(texts[0], dialect="spark")
        assert has_subquery("((", dialect="spark")
        assert not has_subquery("target.v + 1", dialect="spark")

    @pytest.mark.parametrize("text", ["count(*)", "1 + max(target.v)", "sum(v) over (partition by id)"])
    def test_a_value_of_several_rows(self, text):
        with pytest.raises(InvalidInputError, match="makes one value of several rows, and a clause sees one row"):
            check_one_row(text, dialect="duckdb")
        check_one_row(f"(select {text} from feed)", dialect="duckdb")

    @pytest.mark.parametrize("function", [
        *("explode", "explode_outer", "posexplode", "inline", "inline_outer", "stack", "json_tuple", "unnest"),
        "generate_subscripts",
    ])  # fmt: skip
    def test_rows_of_one_value(self, function):
        arguments = "1, target.l" if function in ("stack", "json_tuple") else "target.l"
        for dialect in ("duckdb", "spark"):
            with pytest.raises(InvalidInputError, match=rf"{function}.*\(…\) makes several rows of one"):
                check_one_row(f"1 + {function}({arguments})", dialect=dialect)
            check_one_row(f"v in (select {function}({arguments}))", dialect=dialect)

    def test_no_scalar_function_is_taken_for_such(self):
        kinds = "'scalar', 'macro'"
        found = duckdb.sql(f"select distinct function_name from duckdb_functions() where function_type in ({kinds})")
        for (name,) in found.fetchall():
            if name.isidentifier() and name != "generate_subscripts":
                for arguments in ("", "a", "a, b", "a, b, c"):
                    check_one_row(f"{name}({arguments})", dialect="duckdb")

    def test_the_name_of_a_loop(self):
        check(f"{NOT_MATCHED} then insert (id, v) values (id, [part + 1 for part in [v] if part > 1][1])", "duckdb")
        assert "column 'part' is not known" in refused(
            f"{NOT_MATCHED} then insert (id, v) values (id, [x + part for x in [v]][1])", "duckdb"
        )

    def test_each_text_of_a_clause_is_checked(self):
        for clauses in (
            "when not matched then insert (id, v) values (explode(array(source.id, 7)), 1)",
            "when matched then update set v = row_number() over (order by source.id)",
            "when matched and max(source.v) > 1 then delete",
        ):
            with pytest.raises(InvalidInputError, match=r"a clause sees one row at a time|one value for each column"):
                check(clauses)


class TestStars:
    """They become the columns of the sides; products, texts, and stars of subqueries stay."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("xxhash64(*)", "xxhash64(target.`id`, target.`v`, source.`a``b`)"),
            ("hash(target.*) * 2", "hash(target.`id`, target.`v`) * 2"),
            ("to_json(struct(SOURCE.*, target.s.*, x.*))", "to_json(struct(source.`a``b`, target.s.*, x.*))"),
            ("hash(`target`.*, 2*3)", "hash(target.`id`, target.`v`, 2*3)"),
            (
                "(select count(*) from f where (a*b) > 1) + hash( * )",
                "(select count(*) from f where (a*b) > 1) + hash( target.`id`, target.`v`, source.`a``b` )",
            ),
            ("hash(* except (V, `a``b`)) + 1", "hash(target.`id`) + 1"),
            ("'(*)' || `*` /* (*) */", "'(*)' || `*` /* (*) */"),
            # Spark takes them for those of the row around, too.
            ("(select hash(target.*) from f)", "(select hash(target.`id`, target.`v`) from f)"),
            ("(select hash(*, source.*, f.*) from f)", "(select hash(*, source.`a``b`, f.*) from f)"),
            (
                "(from (select Target.* from f) z |> select z.*)",
                "(from (select target.`id`, target.`v` from f) z |> select z.*)",
            ),
            ("(select hash(target.*) from f join target)", "(select hash(target.*) from f join target)"),
            ("(select hash(target.*) from (f target))", "(select hash(target.*) from (f target))"),
            ("(select (select hash(target.*)) from target)", "(select (select hash(target.*)) from target)"),
            (
                "(select hash(target.*) from f where exists (select target.* from target))",
                "(select hash(target.`id`, target.`v`) from f where exists (select target.* from target))",
            ),
        ],
    )
    def test_in_spark(self, text, expected):
        sides = {"target": ["id", "v"], "source": ["a`b"]}
        assert without_stars(text, sides, dialect="spark") == expected

    def test_one_that_leaves_out_fields(self):
        with pytest.raises(InvalidInputError, match=r"'\* except \( s \. x \)' leaves out something else than columns"):
            without_stars("hash(* except (s.x))", {"target": ["s"]}, dialect="spark")


class TestNamesInMarks:
    """A name in backticks or double quotes is what is in them."""

    @pytest.mark.parametrize(
        ("text", "parts", "column"),
        [
            ("a", ("a",), "a"),
            ("`a`", ("a",), "a"),
            ('"a b"', ("a b",), "a b"),
            ("a.b", ("a", "b"), "a.b"),
            ("`a.b`.c", ("a.b", "c"), "`a.b`.c"),
            ("`a``b`", ("a`b",), "a`b"),
            ("a`b", ("a`b",), "a`b"),
            ("`", ("`",), "`"),
            ("``", ("``",), "``"),
            ("a b", ("a b",), "a b"),
        ],
    )
    def test_them(self, text, parts, column):
        assert (name_parts(text), column_name(text)) == (parts, column)
