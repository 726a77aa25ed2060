"""Five million rows like TPC-H's lineitem: 17 columns, the same rows on every machine, made once below `build/bench`.

The columns and their ranges are TPC-H's, and one column more: `l_updated_at`, a timestamp with time zone. The files
come in the order of the orders, so that every file has rows of all ship dates, as real exports have.
"""

import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.line import Bench
from tests.benchmarks.measure import note

ROWS = 5_000_000
FILES = 8
VERSION = 2  # of what the files hold: made anew when it changes

COLUMNS = {
    "l_orderkey": "long",
    "l_partkey": "long",
    "l_suppkey": "long",
    "l_linenumber": "int",
    "l_quantity": "decimal(15,2)",
    "l_extendedprice": "decimal(15,2)",
    "l_discount": "decimal(15,2)",
    "l_tax": "decimal(15,2)",
    "l_returnflag": "string",
    "l_linestatus": "string",
    "l_shipdate": "date",
    "l_commitdate": "date",
    "l_receiptdate": "date",
    "l_shipinstruct": "string",
    "l_shipmode": "string",
    "l_comment": "string",
    "l_updated_at": "timestamptz",
}

FIRST_DAY, DAYS = 8036, 2526  # 1992-01-02 … 1998-12-01
TODAY = 9298  # 1995-06-17, when TPC-H's world stands still
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
TEXT = (
    "furiously quickly carefully blithely slyly regular final ironic special express pending bold even silent "
    "requests deposits packages accounts instructions theodolites pinto beans foxes ideas dependencies platelets "
    "sleep wake nag haggle cajole integrate detect use boost about above according to across after against along"
)
TEXT_WORDS = 200_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Lineitem:
    """Where the files are.

    Attributes:
        folder: holds the Parquet files and nothing else.
        rows: in all files together.
    """

    folder: Path
    rows: int

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(sorted(self.folder.glob("*.parquet")))

    @property
    def pattern(self) -> str:
        """All files, as a glob that both sides understand."""
        return f"{self.folder.as_uri()}/*.parquet"


def make(root: Path, *, rows: int = ROWS) -> Lineitem:
    folder = root / f"lineitem-{VERSION}-{rows}"
    if not folder.exists():
        note(f"making {rows} rows in {folder}")
        unfinished = folder.with_name(f".{folder.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        counts = [rows // FILES + (1 if number < rows % FILES else 0) for number in range(FILES)]
        with ProcessPoolExecutor(2) as pool:
            list(pool.map(_write, [unfinished] * FILES, range(FILES), counts))
        unfinished.rename(folder)
    return Lineitem(folder=folder, rows=rows)


def of(bench: Bench) -> Lineitem:
    return make(bench.folder, rows=bench.rows)


def _write(folder: Path, number: int, rows: int) -> None:
    # Decimals as integers, as Spark writes them too: its reader is slow with the byte arrays that pyarrow prefers.
    path = folder / f"part-{number:03d}.parquet"
    pq.write_table(table(number, rows), path, compression="snappy", store_decimal_as_integer=True)


def table(number: int, rows: int) -> pa.Table:
    dice = np.random.Generator(np.random.PCG64([VERSION, number]))
    order = np.sort(dice.integers(0, max(rows // 4, 1), rows)) + number * 100_000_000 + 1
    line = np.arange(rows) - np.searchsorted(order, order) + 1
    part, quantity = dice.integers(1, 200_001, rows), dice.integers(1, 51, rows)
    cents = 90_000 + part % 20_001 * 10 + part % 1_000
    ship = FIRST_DAY + dice.integers(0, DAYS, rows)
    receipt = ship + dice.integers(1, 31, rows)
    returned = np.where(receipt <= TODAY, dice.integers(0, 2, rows), 2)
    columns = [
        pa.array(order),
        pa.array(part),
        pa.array((part + dice.integers(0, 4, rows) * 2_501) % 10_000 + 1),
        pa.array(line.astype(np.int32)),
        decimal(quantity * 100),
        decimal(cents * quantity),
        decimal(dice.integers(0, 11, rows)),
        decimal(dice.integers(0, 9, rows)),
        choice(("R", "A", "N"), returned),
        choice(("O", "F"), (ship <= TODAY).astype(int)),
        date(ship),
        date(ship + dice.integers(-60, 61, rows)),
        date(receipt),
        choice(INSTRUCTIONS, dice.integers(0, len(INSTRUCTIONS), rows)),
        choice(MODES, dice.integers(0, len(MODES), rows)),
        comments(dice, rows),
        pa.array(receipt * 86_400_000_000 + dice.integers(0, 86_400_000_000, rows)).view(pa.timestamp("us", "UTC")),
    ]
    return pa.table(columns, names=list(COLUMNS))


def decimal(unscaled: np.ndarray) -> pa.Array:
    halves = np.empty((len(unscaled), 2), np.int64)
    halves[:, 0], halves[:, 1] = unscaled, unscaled >> 63
    return pa.Array.from_buffers(pa.decimal128(15, 2), len(unscaled), [None, pa.py_buffer(halves)])


def date(days: np.ndarray) -> pa.Array:
    return pa.array(days.astype(np.int32)).view(pa.date32())


def choice(values: tuple[str, ...], numbers: np.ndarray) -> pa.Array:
    return pa.array(values).take(pa.array(numbers))


def comments(dice: np.random.Generator, rows: int) -> pa.Array:
    """Return pieces of 10 to 43 characters of one long text, as TPC-H cuts its comments."""
    vocabulary = np.array(TEXT.encode().split())
    words = vocabulary[dice.integers(0, len(vocabulary), TEXT_WORDS)]
    text = np.frombuffer(b" ".join(words.tolist()), np.uint8)
    lengths = dice.integers(10, 44, rows)
    starts = dice.integers(0, len(text) - 44, rows)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    within = np.arange(offsets[-1], dtype=np.int32) - np.repeat(offsets[:-1], lengths)
    characters = text[np.repeat(starts, lengths) + within]
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(characters)])
