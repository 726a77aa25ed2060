"""Random queries over three tables, for DuckDB and for Spark: what an analysis of their text can get wrong.

    query = RandomQueries(random.Random(7), "duckdb").query()

Joins of all kinds and in brackets, rows as values, columns by number and by pattern, sets, subqueries that see the rows
around them, names that mean several things. Most are valid; an engine says which. Not here: who runs them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

# Names that tables have in common, a column with the name of a table, fields with the names of columns.
COLUMNS: dict[str, dict[str, str]] = {
    "a": {
        **{"k": "long", "id": "long", "n": "int", "s": "string", "d": "date", "m": "decimal(9,2)", "b": "long"},
        **{"w": "struct<name: string, id: long>", "l": "list<long>"},
    },
    "b": {
        **{"k": "long", "id": "long", "s": "string", "x": "long", "t": "timestamp", "ok": "boolean"},
        "w": "struct<name: string, id: long>",
    },
    "c": {
        **{"id": "long", "k": "long", "n": "int", "s": "string", "d": "date", "y": "double", "z": "timestamptz"},
        "o": "long",
    },
}
_DAYS = [date(2026, 1, 1) + timedelta(days) for days in range(4)]
_TIMES = [datetime.fromisoformat(f"2026-01-{text}") for text in ("01", "01 10:00", "01 20:00", "02 00:00:01.500000")]
_STRUCTS = [{"name": "a", "id": 1}, None, {"name": None, "id": 2}, {"name": "b", "id": None}, {"name": "a", "id": 1}]


def tables() -> dict[str, pa.Table]:
    """Return the rows of the tables: with nulls, and with the same row and the same value several times."""

    def cycle(values: Sequence[Any], count: int, step: int = 1) -> list[Any]:
        return [values[at * step % len(values)] for at in range(count)]

    amounts = [Decimal("1.50"), None, Decimal("2.00"), Decimal("-1.00"), Decimal("1.05")]
    a = {
        **{"k": [1, 2, 3, 4, 5, 6, 7, 7], "id": [1, 2, 2, None, 3, 5, 1, 1], "n": [1, None, 2, 3, 0, -1, 2, 2]},
        **{"s": ["a", "b", None, "A", "it's", "", "ab", "ab"], "d": [*cycle([*_DAYS, None], 7), _DAYS[1]]},
        **{"m": [*cycle(amounts, 7), amounts[1]], "b": [3, 1, None, 2, 5, 5, 4, 4]},
        **{"w": [*cycle(_STRUCTS, 7), _STRUCTS[1]], "l": [[1, 2], None, [], [None], [3], [1, 1], [2], [2]]},
    }
    b = {
        **{"k": [1, 2, 3, 4, 5, 6], "id": [1, 1, None, 2, 4, 3], "s": ["a", None, "b", "B", "", "it's"]},
        **{"x": [None, 1, 2, 3, 5, 8], "t": [*cycle([*_TIMES, None], 6)], "ok": [True, False, None, True, None, False]},
        "w": cycle(_STRUCTS, 6, 2),
    }
    c = {
        **{"id": [1, None, 2, 3, 3, 9], "k": [10, 20, 3, 4, 5, 1], "n": [None, 1, 2, 2, 0, 7]},
        **{"s": ["b", "a", "a", None, "c", "it's"], "d": cycle([_DAYS[1], None, _DAYS[3]], 6)},
        **{"y": [1.5, float("nan"), None, 0.0, -0.5, 2.0], "o": [1, 2, 3, None, 2, 1]},
        "z": [None if at is None else at.replace(tzinfo=UTC) for at in cycle([*_TIMES, None], 6, 2)],
    }
    types: dict[str, pa.DataType] = {
        **{"long": pa.int64(), "int": pa.int32(), "string": pa.string(), "date": pa.date32(), "double": pa.float64()},
        **{"decimal(9,2)": pa.decimal128(9, 2), "boolean": pa.bool_(), "timestamp": pa.timestamp("us")},
        **{"timestamptz": pa.timestamp("us", "UTC"), "list<long>": pa.list_(pa.int64())},
        "struct<name: string, id: long>": pa.struct({"name": pa.string(), "id": pa.int64()}),
    }
    return {
        name: pa.table({column: pa.array(rows[column], types[kind]) for column, kind in COLUMNS[name].items()})
        for name, rows in {"a": a, "b": b, "c": c}.items()
    }


_TIME = "timestamp '2026-01-02 00:00:00'"
_LITERALS: dict[str, tuple[str, ...]] = {
    "long": ("1", "2", "3", "5", "-1", "1.5", "2.0", "1e0", "'2'", "'02'", "null", "9223372036854775808"),
    "int": ("1", "2", "0", "-1", "0.5", "'2'", "'02'", "null", "3000000000", "'3000000000'"),
    "string": ("'a'", "'b'", "'ab'", "'A'", "''", "'it''s'", "null", "2"),
    "date": ("'2026-01-01'", "date '2026-01-02'", "'2026-01-03'", "'2026-1-2'", "null", _TIME),
    "decimal(9,2)": ("1.5", "2", "1.05", "-1.00", "1.055", "'1.5'", "1e0", "null"),
    "timestamp": ("'2026-01-01'", "'2026-01-01 10:00:00'", _TIME, "date '2026-01-02'", "null"),
    "timestamptz": ("'2026-01-01'", "'2026-01-01 10:00:00'", _TIME, "date '2026-01-02'", "null"),
    "double": ("1.5", "0", "-0.5", "1e0", "null"),
    "boolean": ("true", "false", "null"),
}  # fmt: skip
# Columns of a query over `row`, one of its tables; `column` is any, and `name` one of the table's.
_STARS = {
    "duckdb": """
        *
        {row}.*
        {row}.*, 1 as one
        * exclude ({name})
        {row}.* exclude ({name})
        * replace (1 as {name})
        * rename ({name} as r)
        * like 'i%'
        {row}.* like 's'
        columns('k|s')
        columns(['k', 'id'])
        columns(c -> c in ('k', 'id', 'x'))
        min(columns(*))
        count(columns('s'))
        coalesce(*columns('k|id'))
        list_value(*columns('id|k'))
        w.*
        unnest(w)
        """,
    "spark": """
        *
        {row}.*
        {row}.*, 1 as one
        * except ({name})
        struct(*)
        hash(*)
        xxhash64(*)
        coalesce(*)
        concat_ws('-', *)
        count(distinct *)
        count({row}.*)
        to_json(struct({row}.*))
        w.*
        `(k|id)`
        {row}.`i.*`
        """,
}
# Rows as values, and columns by their number.
_ROWS = {
    "duckdb": """
        {row}
        to_json({row})::varchar
        {row}.to_json()::varchar
        md5({row}::varchar)
        hash({row})
        count({row})
        count(distinct {row})
        max({row})
        list_sort(list({row}::varchar))
        arg_max({row}::varchar, {column})
        ({row}).k
        {row}['id']
        struct_extract({row}, 'id')
        struct_pack(r := {row})
        {{'a': {row}}}
        [{row}]
        row({row})
        {row} is null
        upper({row} -> '$.k')
        list_transform([1], e -> {row})
        (select {row})
        #{number}
        #{number} + 1
        max(#{number})
        """,
    "spark": """
        struct({row}.*)
        to_json(struct({row}.*))
        named_struct('a', struct({row}.*))
        array(struct({row}.*))
        max(struct({row}.*))
        hash({row}.*)
        xxhash64(*)
        count({row}.*)
        count(distinct struct({row}.*))
        sort_array(collect_list(to_json(struct({row}.*))))
        """,
}
# What is a word of one engine alone, or seldom: over the tables `one` and `two`, with a condition on `one`.
_ODD = {
    "duckdb": """
        from {one} where {condition}
        from {one} select k where {condition}
        table {one}
        pivot {one} on id in (1, 2) using count(*)
        select k, u from {one}, unnest([id, k]) t(u) where {condition}
        select distinct on (id) id from {one} where {condition}
        select v.* from {one} as v(p, q) where v.p > 1
        select {one}.k from {one} using sample 100%
        select k, z.v from {one}, (select {one}.id as v) z where {condition}
        select k from {one} where {condition} union all select k from temp.{one}
        select k from {one} where {condition} union all select k from _rows_of_{one}
        select {one}.k from {one} positional join {two} where {condition}
        select {one}.k, {two}.k from {one} asof join {two} on {one}.k >= {two}.k where {condition}
        select (select count(*) from {two}), k from {one} where {condition} order by all limit 3
        """,
    "spark": """
        from {one} select k where {condition}
        select k, e from {one} lateral view explode(array(id, k)) t as e where {condition}
        select /*+ broadcast({one}) */ k from {one} left join {two} using (k) where {condition}
        select k, explode(array(id, 1)) from {one} where {condition}
        select * from (select k, id from {one} where {condition}) pivot (count(*) for id in (1, 2))
        select k from {one} where {condition} /* a /* b */ c */
        select k from {one} tablesample (100 percent) where {condition}
        """,
}
_RECURSIVE = """
        with recursive r as (select k from {one} where {condition} union all select k + 1 from r where k < 4)
         select r.k, a.s from r join a on a.k = r.k
        """


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


_ALIASES = ("o", "p", "q", "w", "a", "b", "c", "o")
_SIDES = ("", "", "", "inner ", "left ", "left ", "left outer ", "right ", "right ", "full ", "full outer ")
_SIMPLE = ("long", "string", "date", "int")


@dataclass
class Source:
    """What a FROM reads.

    Attributes:
        alias: its name there.
        columns: its columns and their types.
        beside: all that the FROM reads, also this.
    """

    alias: str
    columns: dict[str, str]
    beside: list[Source]


@dataclass
class RandomQueries:
    """Makes queries of a dialect.

    Attributes:
        quotes: what stands around some names.
    """

    dice: random.Random
    dialect: str
    quotes: str = ""
    ctes: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.quotes = self.quotes or ('"' if self.is_duckdb else "`")

    @property
    def is_duckdb(self) -> bool:
        return self.dialect == "duckdb"

    def query(self) -> str:
        """Return a query."""
        self.ctes = {}
        text = self._with() if self.chance(0.2) else ""
        depth = self.dice.choice((1, 2, 2, 3))
        text += self._set(depth) if self.chance(0.15) else self._whole(depth)
        if self.chance(0.03):
            text = f"/* '{self.dice.choice('ab;')} */ {text} -- {self.dice.choice('ab')}"
        return text

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def _with(self) -> str:
        found = []
        for _ in range(self.dice.choice((1, 1, 2))):
            name = self.dice.choice(("v", "u", "o", "a"))
            if name in self.ctes:
                continue
            text, columns = self._select(1, [])
            found.append(f"{name} as ({text})")
            self.ctes[name] = columns
        return f"with {', '.join(found)} "

    def _set(self, depth: int) -> str:
        """Return a query of several, whose columns go by their number or by their name."""
        kinds = [self.dice.choice(_SIMPLE) for _ in range(self.dice.choice((1, 2, 3)))]
        word = self.dice.choice(("union", "union all", "union all", "except", "intersect", "except all"))
        if self.is_duckdb and self.chance(0.2):
            word = self.dice.choice(("union by name", "union all by name"))
        parts = [self._select(depth - 1, [], kinds)[0] for _ in range(self.dice.choice((2, 2, 3)))]
        if self.chance(0.2):
            one, two = self.dice.choices(("a", "b", "c"), k=2)
            parts = [f"select * from {one}", f"select * from {two}"] if one == two else parts
        if self.chance(0.3):
            parts[0] = f"({parts[0]})"
        text = f" {word} ".join(parts)
        return f"select * from ({text}) sets order by 1 limit 50" if self.chance(0.2) else text

    # -- select --------------------------------------------------------------------------------------------------------

    def _whole(self, depth: int) -> str:
        """Return a query that may have columns of any type and number."""
        forms: list[Callable[[int], str]] = [self._plain, self._plain, self._counted, self._starred, self._grouped]
        forms += [self._of_rows, self._ranked, self._odd]
        return self.dice.choice(forms)(depth)

    def _plain(self, depth: int) -> str:
        return self._select(depth, [])[0]

    def _counted(self, depth: int) -> str:
        text, sources = self._from(depth, [])
        count = self.dice.choice(("count(*)", "count(*), 1", f"count({self._column(sources)})", "sum(1)"))
        return f"select {count} from {text}{self._where(sources, [], depth)}"

    def _starred(self, depth: int) -> str:
        text, sources = self._from(depth, [])
        one = self.dice.choice(sources)
        star = self.dice.choice(_lines(_STARS[self.dialect])).format(
            row=one.alias, name=self.dice.choice([*one.columns, "k"])
        )
        return f"select {star} from {text}{self._where(sources, [], depth)}"

    def _grouped(self, depth: int) -> str:
        text, sources = self._from(depth, [])
        key = self._value(self.dice.choice(_SIMPLE), sources, [], depth)
        sums = [f"max({self._column(sources)})", "count(*)", f"count(distinct {self._column(sources, 'long')})"]
        sums += [f"min({self._column(sources, 'date')})", f"sum({self._column(sources, 'long')})"]
        sums += [f"count(*) filter (where {self._condition(sources, [], 0)})"]
        groups = ["1", key, f"rollup ({key})"] + (["all"] if self.is_duckdb else [f"{key} with cube"])
        text = f"select {key} as g, {', '.join(self.dice.sample(sums, 2))} from {text}{self._where(sources, [], depth)}"
        text += f" group by {self.dice.choice(groups)}"
        having = self.dice.choice(("count(*) > 1", f"max({self._column(sources)}) is not null"))
        return f"{text} having {having}" if self.chance(0.3) else text

    def _of_rows(self, depth: int) -> str:
        """Return a query that has rows, or columns by their number, as values."""
        text, sources = self._from(depth, [])
        one = self.dice.choice(sources)
        row, column, number = one.alias, self._column([one]), self.dice.choice((1, 2, 3, 4, 9))
        what = self.dice.choice(_lines(_ROWS[self.dialect])).format(row=row, column=column, number=number)
        tail = ""
        if self.is_duckdb and self.chance(0.2):
            what, tail = (
                "1",
                self.dice.choice((f"order by {row} limit 100", f"group by {row}", f"order by #{number} is null")),
            )
        return f"select {what} as r from {text}{self._where(sources, [], depth)} {tail}"

    def _ranked(self, depth: int) -> str:
        text, sources = self._from(depth, [])
        window = f"(partition by {self._column(sources)} order by {self._column(sources)})"
        values = [self._column(sources, "long"), self._column(sources)]
        rank = self.dice.choice((f"rank() over {window}", f"count(*) over {window}", f"max({values[0]}) over {window}"))
        where = self._where(sources, [], depth)
        if self.chance(0.4):
            return f"select {values[0]} as v, {rank} as r from {text}{where}"
        if self.chance(0.5):
            return f"select {', '.join(values)} from {text}{where} qualify {rank} = 1"
        return f"select v from (select {values[0]} as v, {rank} as r from {text}{where}) ranked where r <= 2"

    def _odd(self, depth: int) -> str:
        one, two = self.dice.choices(("a", "b", "c"), k=2)
        condition = self._condition([Source(one, COLUMNS[one], [])], [], 0)
        forms = [*_lines(_ODD[self.dialect]), " ".join(_lines(_RECURSIVE))]
        return self.dice.choice(forms).format(one=one, two=two, condition=condition)

    def _select(self, depth: int, outer: list[Source], kinds: Sequence[str] = ()) -> tuple[str, dict[str, str]]:
        """Return a query with columns of these types, and its columns."""
        text, sources = self._from(depth, outer)
        if not kinds and self.chance(0.15) and len(sources) == 1:
            return f"select * from {text}{self._where(sources, outer, depth)}", sources[0].columns
        kinds = kinds or [self.dice.choice(_SIMPLE) for _ in range(self.dice.choice((1, 2, 3)))]
        names = self.dice.sample(("k", "id", "s", "v0", "v1"), len(kinds))
        values = [self._value(kind, sources, outer, depth) for kind in kinds]
        distinct = "distinct " if self.chance(0.1) else ""
        where = self._where(sources, outer, depth)
        items = [f"{value} as {name}" for value, name in zip(values, names, strict=True)]
        tail = (
            f" order by {', '.join(str(at + 1) for at in range(len(kinds)))} limit 4"
            if not outer and self.chance(0.08)
            else ""
        )
        return f"select {distinct}{', '.join(items)} from {text}{where}{tail}", dict(zip(names, kinds, strict=True))

    # -- from ----------------------------------------------------------------------------------------------------------

    def _from(self, depth: int, outer: list[Source]) -> tuple[str, list[Source]]:
        """Return what follows FROM, and what is seen after it."""
        beside: list[Source] = []
        text, sources = self._item(depth, outer, beside)
        for _ in range(self.dice.choice((0, 0, 1, 1, 1, 2))):
            text, sources = self._joined(text, sources, depth, outer, beside)
        return text, sources

    def _item(self, depth: int, outer: list[Source], beside: list[Source]) -> tuple[str, list[Source]]:
        dice = self.dice.random()
        if dice < 0.12 and depth > 0:
            text, sources = self._item(depth - 1, outer, beside)
            if self.chance(0.9):
                text, sources = self._joined(text, sources, depth - 1, outer, beside)
            return f"({text})", sources
        taken = {one.alias for one in beside}
        alias = self.dice.choice([name for name in _ALIASES if name not in taken] or ["y"])
        if dice < 0.25 and depth > 0:
            text, columns = self._select(depth - 1, [])
            text = f"({text})"
        elif self.ctes and dice < 0.45:
            text = self.dice.choice(list(self.ctes))
            columns = self.ctes[text]
        else:
            text = self.dice.choice(("a", "a", "b", "b", "c"))
            columns = self.ctes.get(text, COLUMNS[text])
            alias = text if text not in taken and self.chance(0.25) else alias
        beside.append(Source(alias, columns, beside))
        word = "" if alias == text else f" as {alias}" if self.chance(0.3) else f" {alias}"
        return f"{text if text.startswith('(') else self._cased(text)}{word}", beside[-1:]

    def _joined(
        self, text: str, sources: list[Source], depth: int, outer: list[Source], beside: list[Source]
    ) -> tuple[str, list[Source]]:
        side = self.dice.choice((*_SIDES, *("semi ", "anti ", "cross ", "natural ", ",")))
        is_hidden = side in ("semi ", "anti ")
        # What is not seen after its join may have an alias that is used once more.
        more, found = self._item(depth, outer, [] if is_hidden and self.chance(0.6) else beside)
        seen = sources if is_hidden else [*sources, *found]
        if is_hidden and not self.is_duckdb:
            side = f"left {side}"
        if side in ("cross ", ",", "natural "):
            return (f"{text}, {more}" if side == "," else f"{text} {side}join {more}"), seen
        common = [name for name, kind in found[0].columns.items() if sources[0].columns.get(name) == kind]
        if common and len(sources) == 1 and self.chance(0.15):
            return f"{text} {side}join {more} using ({self.dice.choice(common)})", seen
        condition = self._match(sources, found)
        if self.chance(0.25):
            condition += f" and {self._condition([*sources, *found], outer, 0)}"
        if self.chance(0.06) and not is_hidden:
            third, last = self._item(0, outer, beside)
            return f"{text} {side}join {more} join {third} on {self._match(found, last)} on {condition}", [*seen, *last]
        return f"{text} {side}join {more} on {condition}", seen

    def _match(self, left: list[Source], right: list[Source]) -> str:
        kind = self.dice.choice(("long", "long", "string", "date"))
        return f"{self._column(left, kind)} {self.dice.choice(('=', '=', '=', '<', '<='))} {self._column(right, kind)}"

    # -- conditions ----------------------------------------------------------------------------------------------------

    def _where(self, sources: list[Source], outer: list[Source], depth: int) -> str:
        parts = [self._condition(sources, outer, depth) for _ in range(self.dice.choice((0, 1, 1, 2, 3)))]
        if outer:
            parts.append(self._match(sources, outer))
        return f" where {' and '.join(parts)}" if parts else ""

    def _condition(self, sources: list[Source], outer: list[Source], depth: int) -> str:
        found = self.dice.random()
        if found < 0.6:
            return self._simple(sources)
        if found < 0.72:
            word = self.dice.choice(("or", "or", "and"))
            text = f"({self._condition(sources, outer, 0)} {word} {self._condition(sources, outer, 0)})"
            return f"not {text}" if self.chance(0.3) else text
        if found < 0.78:
            return self._match(sources, [*sources, *outer])
        if found < 0.85:
            return self._of_values(sources)
        if found < 0.9:
            return self._of_two_rows(sources)
        return self._subquery(sources, depth) if depth > 0 else self._simple(sources)

    def _simple(self, sources: list[Source]) -> str:
        """Return a condition of one column and literals, as it may be pushed into the read."""
        source = self.dice.choice(sources)
        name, kind = self.dice.choice(list(source.columns.items()))
        column = self._named(source, name)
        if kind.startswith("struct"):
            column, kind = self.dice.choice(((f"{column}.name", "string"), (f"{column}.id", "long")))
        if kind not in _LITERALS or self.chance(0.25):
            return f"{column} is {self.dice.choice(('', 'not '))}null"
        one, two = (self.dice.choice(_LITERALS[kind]) for _ in range(2))
        if kind == "string" and self.chance(0.3):
            pattern = self.dice.choice(("a%", "_", "%b", "A"))
            return f"{column} {self.dice.choice(('', 'not '))}like '{pattern}'"
        if kind == "boolean" and self.chance(0.5):
            return self.dice.choice((column, f"not {column}", f"{column} is true", f"{column} is not false"))
        forms = [f"{column} {op} {one}" for op in ("=", "<>", "<", "<=", ">", ">=")]
        forms += [f"{one} >= {column}", f"{column} in ({one}, {two})", f"{column} not in ({one}, {two})"]
        forms += [f"{column} between {one} and {two}", f"not ({column} = {one})", f"{column} = {one} is true"]
        forms += [f"{column} is {word}distinct from {one}" for word in ("", "not ")]
        return self.dice.choice(forms)

    def _of_values(self, sources: list[Source]) -> str:
        """Return a condition in which a null is something, or what is left out might fail."""
        long, text = self._column(sources, "long"), self._column(sources, "string")
        condition = self._simple(sources)
        is_any = "random() >= 0" if self.is_duckdb else "rand() >= 0"
        return self.dice.choice((
            *(f"coalesce({long}, 1) = 1", f"nullif({long}, 2) is null"),
            *(f"case when {condition} then false else true end",),
            *(f"coalesce({condition}, true)", f"({long}, {text}) in ((1, 'a'), (2, 'b'))", f"upper({text}) = 'A'"),
            *(f"({condition}) is not true", f"({condition}) is null", f"length({text}) = {long}", f"{long} + 0 > 1"),
            f"{is_any} and {condition}",
        ))  # fmt: skip

    def _of_two_rows(self, sources: list[Source]) -> str:
        one, two = self.dice.choice(sources), self.dice.choice(sources)
        if not self.is_duckdb:
            return f"struct({self._column([one])}) is distinct from struct({self._column([two])})"
        return self.dice.choice((
            *(f"{one.alias} <> {two.alias}", f"{one.alias} is distinct from {two.alias}", f"{one.alias} = {two.alias}"),
            *(f"{one.alias} is not distinct from {two.alias}", f"{one.alias} is not null", f"{one.alias} is null"),
            *(f"{one.alias}::varchar <= {two.alias}::varchar", f"to_json({one.alias})::varchar like '%2%'"),
        ))  # fmt: skip

    def _subquery(self, sources: list[Source], depth: int) -> str:
        kind = self.dice.choice(("long", "string", "date"))
        inner, _ = self._select(depth - 1, sources if self.chance(0.6) else [], [kind])
        column = self._column(sources, kind)
        forms = [f"exists ({inner})", f"not exists ({inner})", f"{column} in ({inner})", f"{column} not in ({inner})"]
        forms += [f"{column} = (select max(v) from ({inner}) as m(v))"]
        forms += [f"{column} = any ({inner})", f"{column} <> all ({inner})"] if self.is_duckdb else []
        return self.dice.choice(forms)

    # -- values --------------------------------------------------------------------------------------------------------

    def _value(self, kind: str, sources: list[Source], outer: list[Source], depth: int) -> str:
        column = self._column(sources, kind)
        if self.chance(0.6):
            return column
        if depth > 0 and self.chance(0.3):
            source = Source("f", COLUMNS["c"], [])
            inner = f"select max({self._column([source], kind)}) from c f{self._where([source], sources, 0)}"
            return f"({inner})"
        condition = self._condition(sources, outer, 0)
        return self.dice.choice((
            *(f"coalesce({column}, {self._column(sources, kind)})", f"case when {condition} then {column} end"),
            *(f"nullif({column}, {self._column(sources, kind)})", f"greatest({column}, {self._column(sources, kind)})"),
        ))  # fmt: skip

    def _column(self, sources: list[Source], kind: str | None = None) -> str:
        """Return a column, of a type if there is one."""
        found = [(one, name) for one in sources for name, each in one.columns.items() if kind in (None, each)]
        if not found:
            return {"long": "1", "string": "'a'", "date": "date '2026-01-01'", "int": "cast(1 as int)"}[str(kind)]
        return self._named(*self.dice.choice(found))

    def _named(self, source: Source, name: str) -> str:
        shown = self._cased(name)
        if self.chance(0.05):
            shown = f"{self.quotes}{shown}{self.quotes}"
        is_only = sum(name in one.columns for one in source.beside) == 1
        return shown if is_only and self.chance(0.5) else f"{source.alias}.{shown}"

    def _cased(self, name: str) -> str:
        return name.upper() if self.chance(0.05) else name
