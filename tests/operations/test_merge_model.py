"""Merges by DuckDB in this process, held against a model of MERGE in plain Python: rows, counts and row ids.

Tables have keys of every type, partitions, several files and row groups, deletes, and duplicate, null and odd keys.
"""

import datetime as dt
import math
import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.table import Table
from tests.support.builders import new_table
from tests.support.case_types import arrow_rows, texts
from tests.support.cases import KINDS_BY_TYPE, term
from tests.support.sampling import SEED, sampled

COW, MOR = "copy-on-write", "merge-on-read"
LINEAGE = ("_row_id", "_last_updated_sequence_number")
MATCHED, NOT_MATCHED, BY_SOURCE = "matched", "not matched", "not matched by source"
_NOON = dt.datetime(2026, 2, 28, 12)  # noqa: DTZ001 - a moment without a zone
# Bounds of texts and binaries are cut off after 16 characters.
KEYS = {
    "int": [i - 5 for i in range(60)],
    "long": [(i - 30) * 2**57 for i in range(60)],
    "double": [math.nan, -0.0, 0.0, math.inf, -math.inf, *(i / 4 for i in range(20))],
    "decimal(9, 2)": [Decimal(i - 20) / 4 for i in range(60)],
    "date": [dt.date(1969, 12, 1) + dt.timedelta(days=i) for i in range(60)],
    "timestamp": [_NOON + dt.timedelta(minutes=25 * i, microseconds=i % 2) for i in range(60)],
    "timestamptz": [(_NOON + dt.timedelta(minutes=25 * i)).replace(tzinfo=dt.UTC) for i in range(60)],
    "time": [dt.time(i % 24, i, i, i) for i in range(60)],
    "timestamp_ns": [1_772_284_001_000_000_000 + i for i in range(60)],
    "string": [f"{'a' * 15}é{'😀' * (i % 3)}{i // 3}" for i in range(60)],
    "binary": [b"\xff" * (i % 20) + bytes([i]) for i in range(60)],
    "uuid": [uuid.UUID(int=(i * 0x123456789ABCDEF123456789ABCDEF12) % 2**128) for i in range(60)],
}
CASES = sampled(160)


@dataclass(frozen=True)
class Clause:
    """A clause, and what it does to a row of the table and one of the source."""

    rows: str
    condition: tuple[str, Callable]
    action: tuple[str, Callable]

    @property
    def sql(self):
        condition = f" and {self.condition[0]}" if self.condition[0] else ""
        return f"when {self.rows}{condition} then {self.action[0]}"


def above(value, limit):
    return value is not None and limit is not None and value > limit


ALWAYS = ("", lambda t, s: True)
CONDITIONS = {
    MATCHED: [
        ALWAYS,
        ("source.op = 'd'", lambda t, s: s["op"] == "d"),
        ("target.n > source.n", lambda t, s: above(t["n"], s["n"])),
        ("target.note is null", lambda t, s: t["note"] is None),
        ("(source.op = 'u' or target.n > 5)", lambda t, s: s["op"] == "u" or above(t["n"], 5)),
    ],
    NOT_MATCHED: [
        ALWAYS,
        ("source.op in ('u', 'i')", lambda t, s: s["op"] in ("u", "i")),
        ("source.n > 4", lambda t, s: above(s["n"], 4)),
    ],
    BY_SOURCE: [
        ("target.n > 7", lambda t, s: above(t["n"], 7)),
        ("target.note is null", lambda t, s: t["note"] is None),
        ("target.id % 3 = 0", lambda t, s: t["id"] % 3 == 0),
    ],
}


def values(row, source):
    return {**row, **{name: source[name] for name in ("id", "k", "n", "note")}}


def plus(number):
    return None if number is None else number + 1


DELETE = ("delete", lambda t, s: None)
ACTIONS = {
    MATCHED: [
        DELETE,
        ("update set *", values),
        ("update set n = source.n", lambda t, s: {**t, "n": s["n"]}),
        ("update set n = target.n + 1, note = source.op", lambda t, s: {**t, "n": plus(t["n"]), "note": s["op"]}),
        ("update set k = null, note = 'x'", lambda t, s: {**t, "k": None, "note": "x"}),
    ],
    NOT_MATCHED: [
        ("insert *", lambda t, s: values({}, s)),
        ("insert (id, k) values (source.id, source.k)", lambda t, s: {**values({}, s), "n": None, "note": None}),
        (
            "insert (note, id) values ('new', source.id)",
            lambda t, s: {"id": s["id"], "k": None, "n": None, "note": "new"},
        ),
    ],
    BY_SOURCE: [DELETE, ("update set n = 0, note = null", lambda t, s: {**t, "n": 0, "note": None})],
}


class Model:
    """The rows of a table, and what a merge makes of them."""

    def __init__(self, rows):
        self.rows = rows
        self.updated = self.deleted = self.inserted = 0
        self.changes = False

    def merge(self, source, clauses, sequence_number):
        """Merge rows; returns whether it is rejected, because several rows match one."""
        kept, used = [], set()
        matched = [clause for clause in clauses if clause.rows == MATCHED]
        only_deletes = len(matched) == 1 and matched[0].condition is ALWAYS and matched[0].action is DELETE
        for row in self.rows:
            found = [at for at, each in enumerate(source) if same(row["k"], each["k"])]
            used.update(found)
            if len(found) > 1 and matched and not only_deletes:
                return True
            kind, other = (MATCHED, source[found[0]]) if found else (BY_SOURCE, None)
            clause = next((c for c in clauses if c.rows == kind and c.condition[1](row, other)), None)
            if clause is None:
                kept.append(row)
                continue
            changed = clause.action[1](row, other)
            self.updated += changed is not None
            self.deleted += changed is None
            self.changes |= changed is None or repr(changed) != repr(row)
            kept += [] if changed is None else [{**changed, LINEAGE[1]: sequence_number}]
        for at, each in enumerate(source):
            clause = next((c for c in clauses if c.rows == NOT_MATCHED and c.condition[1](None, each)), None)
            if at not in used and clause is not None:
                kept.append({**clause.action[1](None, each), LINEAGE[0]: "new", LINEAGE[1]: sequence_number})
                self.inserted += 1
                self.changes = True
        self.rows = kept
        return False


def same(left, right):
    if left is None or right is None:
        return False
    if isinstance(left, float) and math.isnan(left):
        return math.isnan(right)
    return left == right


class Case:
    """A table and the merges into it, from a seed."""

    def __init__(self, seed: int, folder) -> None:
        self.dice = dice = random.Random(seed)
        self.type = list(KEYS)[seed % len(KEYS)]
        self.version = dice.choice([1, 2, 3, 3]) if self.type != "timestamp_ns" else 3
        self.mode = dice.choice([COW, MOR]) if self.version > 1 else COW
        self.kinds = {"id": KINDS_BY_TYPE["long"], "k": KINDS_BY_TYPE[self.type]}
        self.kinds |= {"n": KINDS_BY_TYPE["int"], "note": KINDS_BY_TYPE["string"]}
        self.next_id = 0
        partitions = [(), (term(dice.choice(self.kinds["k"].transforms), "k"),), ("note",), ("bucket(3, id)",)]
        self.partition_by = dice.choice(partitions)
        self.table = new_table(
            folder,
            schema={name: kind.type for name, kind in self.kinds.items()},
            partition_by=self.partition_by,
            properties={
                "format-version": str(self.version),
                "write.merge.mode": self.mode,
                "write.delete.mode": self.mode,
                # Files of several row groups, which several tasks read.
                "write.parquet.row-group-limit": "5",
                **({"read.split.target-size": "400", "read.split.open-file-cost": "1"} if dice.random() < 0.5 else {}),
                **({"write.metadata.metrics.default": "none"} if dice.random() < 0.15 else {}),
            },
        )
        for _ in range(dice.randint(1, 4)):
            self.table.append(arrow_rows(self.kinds, [self.row() for _ in range(dice.randint(1, 25))]))
        if dice.random() < 0.5:
            self.table.delete(f"id in ({', '.join(str(dice.randint(1, self.next_id)) for _ in range(6))})")

    def row(self) -> Mapping:
        self.next_id += 1
        dice = self.dice
        key = None if dice.random() < 0.1 else dice.choice(KEYS[self.type])
        note = dice.choice([None, "a", "b", "a" * 30])
        return {"id": self.next_id, "k": key, "n": dice.choice([None, *range(12)]), "note": note}

    def source(self):
        rows, keys = [], []
        for _ in range(self.dice.choice([0, 1, 4, 12, 30])):
            row = {**self.row(), "op": self.dice.choice(["u", "d", "i", None])}
            if not any(same(row["k"], key) for key in keys) or self.dice.random() < 0.02:
                rows.append(row)
                keys.append(row["k"])
        return rows

    def clauses(self):
        dice, found = self.dice, []
        for rows, most in ((MATCHED, 3), (NOT_MATCHED, 2), (BY_SOURCE, 1)):
            for _ in range(dice.randint(0, most)):
                found.append(Clause(rows, dice.choice(CONDITIONS[rows]), dice.choice(ACTIONS[rows])))
                if found[-1].condition is ALWAYS:
                    break
        return found or [Clause(MATCHED, ALWAYS, DELETE)]

    def read(self):
        """Return the rows as Python has them, with their lineage."""
        selected = ("*", *LINEAGE) if self.version >= 3 else ("*",)
        found = self.table.scan(selected_fields=selected).to_arrow()
        as_text = texts(self.kinds, found)
        known = {
            text["k"]: value
            for value, text in zip(KEYS[self.type], texts({"k": self.kinds["k"]}, self.keys()), strict=True)
        }
        return [
            {**row, "id": int(row["id"]), "k": known.get(row["k"]), "n": None if row["n"] is None else int(row["n"])}
            for row in as_text
        ]

    def keys(self):
        return arrow_rows({"k": self.kinds["k"]}, [{"k": key} for key in KEYS[self.type]])

    def shown(self, rows, next_row_id):
        found = Counter()
        for row in rows:
            values = [row[name] for name in ("id", "n", "note")]
            lineage = [row.get(name) for name in LINEAGE] if self.version >= 3 else []
            if lineage and (lineage[0] == "new" or lineage[0] >= next_row_id):
                lineage[0] = "new"
            found[repr([repr(row["k"]), *values, *lineage])] += 1
        return found


@pytest.mark.costly
@pytest.mark.generated
@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(CASES))
def test_a_merge_is_that_of_the_model(tmp_path, seed):
    case = Case(seed + SEED * 1_000_000, tmp_path)
    for _ in range(3):
        check_merge(case)
        case.table = Table.load(case.table.catalog, case.table.name)


def check_merge(case):
    source, clauses = case.source(), case.clauses()
    metadata = case.table.metadata
    before, model = case.read(), Model(case.read())
    is_rejected = model.merge(source, clauses, metadata.last_sequence_number + 1)
    rows = arrow_rows({**case.kinds, "op": KINDS_BY_TYPE["string"]}, source)
    on = case.dice.choice([["k"], "target.k = source.k", "source.k = target.k and true"])
    text = "\n".join(clause.sql for clause in clauses)
    about = f"v{case.version} {case.mode} {case.type} by {case.partition_by}\n{text}"
    if is_rejected:
        with pytest.raises(InvalidInputError, match="rows of the source match one row"):
            case.table.merge(rows, on, text)
        assert case.shown(case.read(), 10**9) == case.shown(before, 10**9), about
        return
    result = case.table.merge(rows, on, text)
    if not model.changes:  # rows that would get the values that they have are left as they are
        assert result.outcome == "nothing", about
        assert case.shown(case.read(), 10**9) == case.shown(before, 10**9), about
        return
    assert case.shown(case.read(), metadata.next_row_id) == case.shown(model.rows, metadata.next_row_id), about
    counts = (result.updated_records, result.deleted_records, result.added_records)
    assert counts == (model.updated, model.deleted, model.inserted), about
    summary = {} if result.snapshot_id is None else case.table.metadata.snapshot(result.snapshot_id).summary
    carried = int(summary.get("added-records", 0)) - model.updated - model.inserted
    assert result.carried_records == carried, about
    assert carried == 0 or case.mode == COW, about


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["int", "string", "decimal(9, 2)", "timestamptz"])
@pytest.mark.parametrize("mode", [COW, MOR])
def test_more_keys_than_a_filter_names(tmp_path, kind, mode):
    """Then files and row groups are chosen by the smallest and the largest key, and rows by all of them."""
    make = {
        "int": lambda i: i,
        "string": lambda i: f"{'z' * 20}{i:05}é",
        "decimal(9, 2)": lambda i: Decimal(i) / 100,
        "timestamptz": lambda i: dt.datetime(1969, 12, 31, tzinfo=dt.UTC) + dt.timedelta(minutes=i),
    }[kind]
    kinds = {"k": KINDS_BY_TYPE[kind], "n": KINDS_BY_TYPE["int"]}
    table = new_table(
        tmp_path,
        schema={name: each.type for name, each in kinds.items()},
        properties={"write.merge.mode": mode, "write.parquet.row-group-limit": "700"},
    )
    for start in (0, 5000, 2000):
        table.append(arrow_rows(kinds, [{"k": make(i), "n": 0} for i in range(start, start + 2000)]))
    source = arrow_rows(kinds, [{"k": make(i), "n": 1} for i in range(1500, 5500, 2)])
    result = table.upsert(source, ["k"])
    assert (result.updated_records, result.added_records) == (250 + 1000 + 250, 500)
    found = texts(kinds, table.scan().to_arrow())
    expected = {i: i % 2 == 0 and 1500 <= i < 5500 for i in (*range(4000), *range(4000, 5500, 2), *range(5000, 7000))}
    wanted = texts(kinds, arrow_rows(kinds, [{"k": make(i), "n": int(n)} for i, n in expected.items()]))
    assert Counter(map(str, found)) == Counter(map(str, wanted))
