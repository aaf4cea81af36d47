"""The guard around decoders: a value on which a decoder fails is kept whole, and all others are decoded."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from barnabas.errors import SerializationError, TimedOutError
from barnabas.formats.column_types import ColumnType, Fields
from barnabas.formats.decoding import TOMBSTONE, VALUE, Decoded, GuardedDecoder
from barnabas.formats.field_aliases import NO_ALIASES, Aliases

FIELDS: Mapping[str, ColumnType] = {"size": "long", "parts": ["string"]}


class Fragile:
    """Decodes values to their lengths; fails for a whole batch where one value is `bad`."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def _check(self, values: pa.Array) -> None:
        self.calls += 1
        if b"bad" in values.to_pylist():
            raise self.error

    def infer(self, values: pa.Array) -> Fields:
        self._check(values)
        return {f"f{len(each)}": "long" for each in values.to_pylist() if each is not None}

    def renames(self, values: pa.Array) -> Aliases:
        self._check(values)
        return NO_ALIASES

    def decode(self, values: pa.Array, fields: Mapping[str, ColumnType]) -> Decoded:
        self._check(values)
        sizes = [None if each is None else len(each) for each in values.to_pylist()]
        columns = [pa.array(sizes, pa.int64()), pa.nulls(len(values), pa.list_(pa.field("element", pa.string())))]
        forms = pa.array(["length" if each is not None else TOMBSTONE for each in sizes])
        return Decoded(columns, forms, pa.nulls(len(values), pa.string()), {})

    def restore(self, values: pa.Array, forms: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
        return values


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


@pytest.mark.parametrize("error", [ValueError("39 digits\nmore"), RecursionError("deep"), SerializationError("odd")])
def test_a_value_on_which_a_decoder_fails_is_kept_whole_and_named(error: Exception) -> None:
    decoded = GuardedDecoder(Fragile(error)).decode(binary(b"a", None, b"bad", b"bb", b"bad", b"ccc"), FIELDS)
    assert decoded.columns[0].to_pylist() == [1, None, None, 2, None, 3]
    assert decoded.forms.to_pylist() == ["length", TOMBSTONE, VALUE, "length", VALUE, "length"]
    told = f"cannot be decoded: {type(error).__name__}: {str(error).splitlines()[0]}"
    assert decoded.reasons.to_pylist() == [None, None, told, None, told, None]


def test_fields_are_inferred_from_the_values_that_can_be_read() -> None:
    guarded = GuardedDecoder(Fragile(TypeError()))
    assert guarded.infer(binary(b"a", b"bad", b"bb")) == {"f1": "long", "f2": "long"}
    assert guarded.renames(binary(b"a", b"bad")) == NO_ALIASES


def test_a_registry_that_does_not_answer_is_no_fault_of_a_value() -> None:
    with pytest.raises(TimedOutError):
        GuardedDecoder(Fragile(TimedOutError("no registry"))).decode(binary(b"a", b"bad"), FIELDS)


def test_values_without_a_fault_are_decoded_at_once() -> None:
    fragile = Fragile(ValueError())
    GuardedDecoder(fragile).decode(binary(*[b"x"] * 1_000), FIELDS)
    assert fragile.calls == 1
