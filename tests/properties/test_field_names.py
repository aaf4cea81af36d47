"""Whatever schemas tell of names: in no table is a field's name an old name of another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.formats.column_types import ColumnType, Fields
from barnabas.formats.field_aliases import Aliases
from barnabas.spark.table_shape import TableShape
from tests.support.searches import examples

NAMES = st.sampled_from(("a", "b", "c", "d"))
SIMPLE = st.sampled_from([None, "long", "int", "string"])
NAMES_TOLD = st.dictionaries(NAMES, NAMES, max_size=3)


def structs(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    found = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return found | found.map(lambda fields: [fields])


FOUND = st.dictionaries(NAMES, SIMPLE | structs(SIMPLE | structs(SIMPLE)), min_size=1, max_size=3)
TOLD = st.builds(Aliases, NAMES_TOLD, st.dictionaries(NAMES, st.builds(Aliases, NAMES_TOLD), max_size=2))


def confused(fields: Mapping[str, ColumnType], aliases: Aliases, way: str = "") -> Iterator[str]:
    """Yield what makes it unclear which column a name stands for."""
    for old, new in aliases.names.items():
        if old in fields or new in aliases.names:
            yield f"{way}{old} -> {new}"
    for name, inner in aliases.within.items():
        kind = fields.get(name)
        while isinstance(kind, list):
            kind = kind[-1]
        if isinstance(kind, dict):
            yield from confused(kind, inner, f"{way}{name}.")


@given(st.lists(st.tuples(FOUND, TOLD), min_size=1, max_size=5))
@settings(max_examples=examples(300))
def test_no_field_has_a_name_that_is_an_old_name_of_another_one(loads: list[tuple[Fields, Aliases]]) -> None:
    shape = TableShape.of("avro", {})
    for found, told in loads:
        shape = shape.grown_by(found, told)
        assert not list(confused(shape.fields or {}, shape.aliases))
