"""Random sources of JSON lines and CSV, and what the documentation says of them, by Python's json alone.

Types are told as Spark's reader of JSON infers them: `spark.read.json` says the same of the same files, but for the
cases that the documentation names (objects without keys, empty texts, numbers of more than 38 digits).
"""

import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

Type = Any
TEXTS = ["a", "007", "1e5", "ä ö", "true", "9", "10", "null", "2026-02-30", "x,y", 'q"', "[1]"]
LONGS = [0, 1, -7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
LARGE = [2**63, -(2**63) - 1, 12345678901234567890, 10**30]
FLOATS = [0.5, -1.25, 1e22, 1e-7, 100000.0]


def value(random: Random, kind: str, depth: int = 2) -> Any:
    """Return a value of about this kind; some are null."""
    if random.random() < 0.15:
        return None
    match kind:
        case "text":
            return random.choice(TEXTS)
        case "long":
            return random.choice(LONGS)
        case "large":
            return random.choice(LONGS + LARGE)
        case "number":
            return random.choice(LONGS + FLOATS)
        case "flag":
            return random.random() < 0.5
        case "object" if depth:
            names = [name for name in "xyz" if random.random() < 0.6]
            return {name: value(random, {"x": "long", "y": "text", "z": "any"}[name], depth - 1) for name in names}
        case "array" if depth:
            return [value(random, random.choice(["long", "number"]), depth - 1) for _ in range(random.randrange(3))]
        case "objects" if depth:
            return [value(random, "object", depth - 1) for _ in range(random.randrange(3))]
        case "none":
            return None
    others = ["object", "array"] if depth and kind == "any" else []
    return value(random, random.choice(["text", "long", "flag", "number", *others]), max(depth - 1, 0))


KINDS = ["text", "long", "large", "number", "flag", "object", "array", "objects", "none", "any"]


def documents(random: Random, names: str = "abcde") -> list[list[dict[str, Any]]]:
    """Return the objects of some files, each with an id of its own; keys are missing, and in any order."""
    kinds = {name: random.choice(KINDS) for name in names}
    missing = random.choice([0.0, 0.2, 0.7])
    files, number = [], 0
    for _ in range(random.randint(1, 3)):
        rows = []
        for _ in range(random.randrange(6)):
            found = [(n, value(random, kind)) for n, kind in kinds.items() if random.random() >= missing]
            found.append(("id", number))
            random.shuffle(found)
            rows.append(dict(found))
            number += 1
        files.append(rows)
    return files


def write(files: list[list[dict[str, Any]]], folder: Path) -> list[str]:
    """Write the files, some with blank lines, and return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for number, rows in enumerate(files):
        path = folder / f"{number}.jsonl"
        texts = [json.dumps(row) + "\n" * (1 + number % 2) for row in rows]
        path.write_text("".join(texts))
        names.append(str(path))
    return names


def type_of(values: list[Any]) -> Type:
    """Return the type of JSON values: a name, a list of one type, or a dictionary of types."""
    values = [value for value in values if value is not None]
    kinds = {_kind(value) for value in values}
    if kinds == {"number"}:
        return _type_of_numbers(values)
    if kinds == {"boolean"}:
        return "boolean"
    if kinds == {"object"} and any(values):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: type_of([value.get(name) for value in values]) for name in names}
    if kinds == {"array"}:
        return [type_of([item for value in values for item in value])]
    return "string"


def columns_of(files: list[list[dict[str, Any]]]) -> dict[str, Type]:
    """Return the type of each column of a source, in the order in which they are seen."""
    rows = [row for file in files for row in file]
    return {name: type_of([row.get(name) for row in rows]) for name in dict.fromkeys(n for row in rows for n in row)}


def converted(value: Any, kind: Type) -> Any:
    """Return the value that a column of a type has."""
    if value is None:
        return None
    if isinstance(kind, dict):
        return {name: converted(value.get(name), inner) for name, inner in kind.items()}
    if isinstance(kind, list):
        return [converted(item, kind[0]) for item in value]
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value)
    return float(value) if kind == "double" else Decimal(value) if kind.startswith("decimal") else value


def as_text(kind: Type) -> str:
    """Return a type as the schema of a table writes it, and as Spark does: fields by their names."""
    if isinstance(kind, dict):
        return "struct<" + ", ".join(f"{name}: {as_text(inner)}" for name, inner in sorted(kind.items())) + ">"
    return f"list<{as_text(kind[0])}>" if isinstance(kind, list) else str(kind)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {str: "string", dict: "object", list: "array"}[type(value)]


def _type_of_numbers(values: list[Any]) -> str:
    if any(isinstance(value, float) for value in values):
        return "double"
    digits = [len(str(abs(value))) for value in values if not -(2**63) <= value < 2**63]
    if not digits:
        return "long"
    return f"decimal({max(digits) if len(digits) == len(values) else max(20, *digits)}, 0)"
