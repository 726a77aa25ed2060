"""CSV files: all columns are text, and no type is ever guessed; `data.cast.rows` parses those that the table has."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_iceberg.errors import FormatError, InvalidInputError, true_or_false
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.jobs.sources.open_file import open_text
from airflow_iceberg.jobs.sources.unit import Unit

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO

# The header is expected in the first bytes; if it is longer, in those of a block.
HEAD_BYTES = 64 << 10
# For each column Arrow takes some twelve kilobytes, and a column without a name is one byte of the file.
MOST_COLUMNS = 20_000

OPTIONS = ("header", "columns", "delimiter", "quote", "escape", "null_values", "encoding", "skip_rows")


def read_csv(
    unit: Unit, io: FileIO, schema: Schema, options: Mapping[str, str], *, block_bytes: int
) -> Iterator[pa.Table]:
    """Yield the rows of a file."""
    from pyarrow import csv

    kinds = _Options(unit, schema, options, block_bytes)
    names = _names_of(unit, io, kinds)
    if not names:
        return
    convert = csv.ConvertOptions(
        # What is no UTF-8 is told where rows become the table's, with column, row and value.
        check_utf8=False,
        column_types=dict.fromkeys(names, pa.string()),
        null_values=["", *kinds.null_values],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    with open_text(unit, io) as stream:
        reader = csv.open_csv(stream, read_options=kinds.read(), parse_options=kinds.parse(), convert_options=convert)
        yield pa.Table.from_batches([], reader.schema)
        for batch in reader:
            yield pa.Table.from_batches([batch])


def csv_columns(
    unit: Unit, io: FileIO, schema: Schema, options: Mapping[str, str], *, block_bytes: int
) -> pa.Schema | None:
    """Return the columns of a file, all of them text; None for an empty file."""
    kinds = _Options(unit, schema, options, block_bytes)
    names = _names_of(unit, io, kinds)
    return pa.schema([pa.field(name, pa.string()) for name in names]) if names else None


class _Options:
    """The options of a file, checked.

    Attributes:
        names: the columns; None for those of the header.
        skip_rows: how many lines stand before the header.
        null_values: texts that are null, beside an empty field.
    """

    def __init__(self, unit: Unit, schema: Schema, options: Mapping[str, str], block_bytes: int) -> None:
        defaults = {"delimiter": "\t" if ".tsv" in unit.location else ",", "quote": '"', "escape": ""}
        self._characters = {name: _character(options, name, default) for name, default in defaults.items()}
        self.delimiter = self._characters["delimiter"]
        self.skip_rows = _count(options, "skip_rows")
        self._has_header = _flag(options, "header", default=True)
        named = _texts(options.get("columns")) or tuple(field.name for field in schema.fields)
        self.names = named if not self._has_header or "columns" in options else None
        self.null_values = _texts(options.get("null_values"))
        self.encoding = options.get("encoding", "utf-8")
        self.block_bytes = block_bytes

    def read(self, *, block_size: int | None = None, encoding: str | None = None) -> Any:
        """Return Arrow's options for reading blocks."""
        from pyarrow import csv

        return csv.ReadOptions(
            use_threads=False,
            block_size=block_size or self.block_bytes,
            column_names=self.names,
            skip_rows=self.skip_rows + (1 if self.names and self._has_header else 0),
            encoding=encoding or self.encoding,
        )

    def parse(self, **more: Any) -> Any:
        """Return Arrow's options for parsing rows."""
        from pyarrow import csv

        return csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self._characters["quote"] or False,
            escape_char=self._characters["escape"] or False,
            newlines_in_values=True,
            **more,
        )


def _names_of(unit: Unit, io: FileIO, options: _Options) -> Sequence[str]:
    """Return the names of the columns; none of a file without text, which may have the bytes of an empty archive."""
    if unit.size_bytes == 0:
        return ()
    if unit.compression or unit.size_bytes <= len(codecs.BOM_UTF8):
        with open_text(unit, io) as stream:
            if stream.read(len(codecs.BOM_UTF8)) in (b"", codecs.BOM_UTF8) and not stream.read(1):
                return ()
    return options.names or _header(unit, io, options)


def _header(unit: Unit, io: FileIO, options: _Options) -> Sequence[str]:
    """Return the names of the columns; Arrow has types for columns only by their names.

    Raises:
        InvalidInputError: a name is not in the encoding of the options.
    """
    for size in (HEAD_BYTES, options.block_bytes):
        with open_text(unit, io) as stream:
            head = stream.read(size)
        # What follows the header may be cut, or wrong: reading the rows tells.
        text = _decoder(options.encoding)(errors="replace").decode(head)
        if len(head) == size:
            text = text[: text.rfind("\n") + 1]
        try:
            names = _names(text, options, unit.location)
            _check_names(names, head, unit, options)
            return names
        except pa.ArrowInvalid:
            if len(head) < size or size == options.block_bytes:
                raise
    raise AssertionError("the last size raises")


def _check_names(names: Sequence[str], head: bytes, unit: Unit, options: _Options) -> None:
    wrong = [name for name in names if _NO_CHARACTER in name]
    if not wrong:
        return
    try:
        _decoder(options.encoding)().decode(head)  # the character may be written there
    except UnicodeDecodeError:
        raise InvalidInputError(
            f"the name of column {wrong[0]!r} of {unit.location} is not in the encoding {options.encoding}; correct "
            f"it, or set the option 'encoding'"
        ) from None


# What stands for bytes that an encoding does not have.
_NO_CHARACTER = "\ufffd"


def _names(head: str, options: _Options, location: str) -> Sequence[str]:
    from pyarrow import csv

    begun = _begun(head, options)
    content = begun.encode()
    reader = csv.open_csv(
        pa.BufferReader(content),
        read_options=options.read(block_size=max(len(content), 1), encoding="utf-8"),
        parse_options=options.parse(invalid_row_handler=lambda row: "skip"),
    )
    names = list(reader.schema.names)
    if begun != head and names and _CUT in names[-1]:
        raise FormatError(f"the header has more than {MOST_COLUMNS} columns", path=location)
    return names


_LINE_END = re.compile(r"\r\n?|\n")
# Ends a header that was cut, and stands in a later row if the header ends before.
_CUT = "\ufdd0cut\ufdd0"


def _begun(head: str, options: _Options) -> str:
    """Return as much of a file as has the delimiters of a header, each of which may be a column."""
    skipped = islice(_LINE_END.finditer(head), options.skip_rows) if options.skip_rows else ()
    start = max((found.end() for found in skipped), default=0)
    parts = head[start:].split(options.delimiter, MOST_COLUMNS)
    return head if len(parts) <= MOST_COLUMNS else f"{head[: len(head) - len(parts[-1])]}{_CUT}\n"


def _decoder(encoding: str) -> Any:
    try:
        "".encode(encoding)  # some codecs, such as hex, are none of texts
        return codecs.getincrementaldecoder(encoding)
    except LookupError:
        raise InvalidInputError(
            f"option 'encoding' is {encoding!r}, expected an encoding that Python knows, such as utf-8 or latin-1"
        ) from None


def _character(options: Mapping[str, str], name: str, default: str) -> str:
    text = options.get(name, default)
    if len(text) > 1 or (name == "delimiter" and not text):
        raise InvalidInputError(f"option {name!r} is {text!r}, expected one character")
    return text


def _count(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "0").strip()
    number = whole_number(text)
    if number is None:
        raise InvalidInputError(f"option {name!r} is {text[:100]!r}, expected a number of at least 0")
    return number


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    return true_or_false(f"option {name!r}", options.get(name, default))


def _texts(option: str | None) -> tuple[str, ...]:
    """Return the items of an option that is a JSON list or a comma-separated text."""
    if option is None:
        return ()
    if option.lstrip().startswith("["):
        return tuple(str(item) for item in json.loads(option))
    return tuple(item.strip() for item in option.split(","))
