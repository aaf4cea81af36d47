"""Columns as other libraries have them become those that ours have, and values come back from them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from barnabas.formats.column_types import without_large_types
from barnabas.formats.value_format import decoder_of


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
)
def test_strings_of_other_types_come_back_in_quotes(kind: pa.DataType) -> None:
    column = pa.array(["x", None]).cast(kind)
    assert without_large_types(column).equals(pa.array(["x", None]))
    decoder = decoder_of("json")
    assert decoder is not None
    values = pa.array([None, None], pa.binary())
    forms = pa.array(["columns", "columns"])
    assert decoder.restore(values, forms, {"a": column}).to_pylist() == [b'{"a":"x"}', b"{}"]


def test_what_is_nested_becomes_usual_too() -> None:
    kind = pa.struct([("a", pa.large_list(pa.large_binary())), ("b", pa.map_(pa.string(), pa.large_string()))])
    rows = [{"a": [b"x"], "b": [("k", "v")]}, None]
    usual = without_large_types(pa.array(rows, kind))
    assert usual.type == pa.struct([("a", pa.list_(pa.binary())), ("b", pa.map_(pa.string(), pa.string()))])
    assert usual.to_pylist() == rows


def test_usual_columns_are_not_copied() -> None:
    column = pa.array([1, 2])
    assert without_large_types(column) is column
