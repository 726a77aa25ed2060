"""Mutations of bytes and of JSON documents."""

import copy
import json
import random
from typing import Any

INTERESTING = (0, 1, 2, 4, 7, 8, 0x0A, 0x20, 0x22, 0x2C, 0x3A, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
NUMBERS = (0, 1, -1, 2, 3, 4, 5, 127, 128, 255, 256, 1000, 2**15, 2**16, 2**24, 2**31 - 1, 2**31, -(2**31), 2**32)
NUMBERS += (2**53, 2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30, 2147483447, 2147483540)
TEXTS = ("", "null", "main", "x", "a.b", "ü", "\ud800", "\x00", "😀" * 3, "A" * 5000)
TEXTS += ("int", "long", "string", "unknown")
TEXTS += ("variant", "geometry", "geography(x, y)", "decimal(9,2)", "decimal(39, 2)", "decimal(9,-1)", "fixed[3]")
TEXTS += ("fixed[99999999999]", "struct", "list", "map", "identity", "bucket[0]", "bucket[16]", "truncate[-1]", "void")
TEXTS += ("truncate[99999999999999999999]", "day", "asc", "nulls-first", "branch", "tag", "append", "1e999", "-1", "0")
TEXTS += ("uuid", "timestamp_ns", "date", "time", "boolean", "bytes", "record", "array", "enum", "fixed", "double")
VALUES: tuple[Any, ...] = (
    None, True, False, 1.5, -0.0, 1e300, [], {}, [None], {"": None}, [[]], [{}], *NUMBERS, *TEXTS,
)  # fmt: skip
VALUES += ({"type": "struct", "fields": []}, {"type": "list", "element-id": 1, "element": "int", "element-required": 1})


def mutate_bytes(data: bytes, chance: random.Random, other: bytes = b"") -> bytes:
    """Return bytes with up to eight changes of the kinds that fuzzers make."""
    result = bytearray(data)
    for _ in range(1 << chance.randrange(4)):
        at = chance.randrange(len(result) + 1)
        kind = chance.randrange(9)
        if kind == 0 and result:
            result[at % len(result)] ^= 1 << chance.randrange(8)
        elif kind == 1 and result:
            result[at % len(result)] = chance.choice(INTERESTING)
        elif kind == 2:
            result[at:at] = bytes(chance.choice(INTERESTING) for _ in range(chance.randint(1, 8)))
        elif kind == 3:
            del result[at : at + chance.randint(1, 16)]
        elif kind == 4:
            size = chance.randint(1, 64)
            result[at:at] = result[at : at + size]
        elif kind == 5:
            size = chance.choice((2, 4, 8))
            number = chance.choice(NUMBERS) & (1 << 8 * size) - 1
            result[at : at + size] = number.to_bytes(size, chance.choice(("little", "big")))
        elif kind == 6:
            result[at : at + 1] = varint(chance.choice(NUMBERS))
        elif kind == 7 and chance.random() < 0.3:
            del result[at:]
        elif other:
            start = chance.randrange(len(other))
            piece = other[start : start + chance.randint(1, 64)]
            result[at : at + chance.choice((0, len(piece)))] = piece
    return bytes(result)


def varint(value: int) -> bytes:
    """Return Avro's long, also of numbers that are too large for it."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    result = bytearray()
    while rest > 0x7F:
        result.append(rest & 0x7F | 0x80)
        rest >>= 7
    result.append(rest)
    return bytes(result)


def mutate_document(document: Any, chance: random.Random) -> Any:
    """Return a JSON document with a few values, keys or items changed."""
    root = [copy.deepcopy(document)]
    for _ in range(1 << chance.randrange(3)):
        places = list(_places(root))  # never none: the root stands in a list
        where, key = places[chance.randrange(len(places))]
        _change(where, key, places, root, chance)
    return root[0]


def _places(value: Any) -> Any:
    """Yield each place of a document: what holds it, and the key or index there."""
    stack = [value]
    while stack:
        here = stack.pop()
        for key in here if isinstance(here, dict) else range(len(here)):
            yield here, key
            if isinstance(here[key], dict | list):
                stack.append(here[key])


def _change(where: Any, key: Any, places: Any, root: Any, chance: random.Random) -> None:
    value = where[key]
    kind = chance.randrange(10)
    if kind < 3:
        where[key] = copy.deepcopy(chance.choice(VALUES))
    elif kind == 3 and where is not root:
        where.pop(key)
    elif kind == 4 and type(value) is int:
        where[key] = value + chance.choice((-1, 1, 2**31, -(2**40)))
    elif kind == 4 and isinstance(value, str):
        where[key] = _mutate_text(value, chance)
    elif kind == 5 and isinstance(value, list) and value:
        value.insert(chance.randrange(len(value) + 1), copy.deepcopy(chance.choice(value)))
    elif kind == 5 and isinstance(value, dict) and value:
        value[chance.choice(TEXTS)] = copy.deepcopy(chance.choice(list(value.values())))
    elif kind == 6:
        there, other = chance.choice(places)
        # A copy that would hold itself grows without end.
        where[key] = copy.deepcopy(there[other]) if there is not where else None
    elif kind == 7 and chance.random() < 0.2:
        where[key] = _nested(value, chance)
    elif isinstance(value, list):
        chance.shuffle(value)
    else:
        where[key] = copy.deepcopy(chance.choice(VALUES))


def _mutate_text(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    return (
        text[:at]
        + chance.choice((*TEXTS, "[", "]", "(", ")", ",", "-", "0", "9" * 30))
        + text[at + chance.randrange(3) :]
    )


def _nested(value: Any, chance: random.Random) -> Any:
    kind = chance.randrange(3)
    for depth in range(chance.choice((3, 50, 90))):
        if kind == 0:
            value = [value]
        elif kind == 1:
            value = {"type": "list", "element-id": depth + 5000, "element": value, "element-required": False}
        else:
            field = {"id": depth + 5000, "name": "f", "required": False, "type": value}
            value = {"type": "struct", "fields": [field]}
    return value


def dumped(document: Any, chance: random.Random) -> bytes:
    """Return a document as bytes; now and then as no writer would spell it."""
    text = json.dumps(document, ensure_ascii=chance.random() < 0.9, separators=(",", ":"))
    if chance.random() < 0.02:
        number = chance.choice(("1e999", "-1e999", "1E400", "0.1e-999", "9" * 5000, "-0", "01", "NaN", "Infinity"))
        text = text.replace(":1", f":{number}", chance.randint(1, 3))
    if chance.random() < 0.005:
        deep = chance.choice(("[", '{"a":', '{"type":', '{"type":"list","element":'))
        text = text.replace(":", f":{deep * chance.choice((100, 3000, 100_000))}", 1)
    return text.encode("utf-8", "surrogatepass")
