"""The beginning of a type's text: that of a struct has all its fields in it, however many there are.

Not here: the whole text, which is that of the type itself (`types`), and its JSON (`type_json`).
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_iceberg.format import types as t


def begun_type(type_: t.IcebergType, most: int) -> str:
    """Return the text of a type up to a number of characters, in time and memory for these alone."""
    parts, left = list[str](), most
    for piece in _pieces(type_):
        parts.append(piece[:left])
        left -= len(parts[-1])
        if left <= 0:
            break
    return "".join(parts)


def _pieces(type_: t.IcebergType) -> Iterator[str]:
    if isinstance(type_, t.StructType):
        yield "struct<"
        for number, child in enumerate(type_.fields):
            yield f"{', ' if number else ''}{child.id}: "
            yield child.name
            yield f": {'required' if child.required else 'optional'} "
            yield from _pieces(child.type)
            if child.doc:
                yield f" ({child.doc})"
        yield ">"
    elif isinstance(type_, t.ListType):
        yield "list<"
        yield from _pieces(type_.element)
        yield ">"
    elif isinstance(type_, t.MapType):
        yield "map<"
        yield from _pieces(type_.key)
        yield ", "
        yield from _pieces(type_.value)
        yield ">"
    else:
        yield str(type_)
