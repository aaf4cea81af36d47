"""Messages survive the way to bytes and back, in every version; damaged bytes raise the one typed error."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.errors import BarnabasError
from barnabas.protocol.apis import declared_apis
from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.declare import (
    Array,
    Blob,
    FieldSpec,
    Fixed,
    Nested,
    Nullable,
    RecordBytes,
    Text,
    WireType,
    fields_of,
    message_of,
)
from tests.support.searches import examples

MESSAGES = [cls for api in declared_apis().values() for cls in (api.request, api.response)]
INTEGER_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


def values(kind: WireType | type, version: int) -> st.SearchStrategy[Any]:
    """Make values of a wire type, or of a struct, as they may stand in `version`."""
    made: st.SearchStrategy[Any]
    match kind:
        case Nullable(inner=inner, since=since):
            made = values(inner, version) if version < since else st.none() | values(inner, version)
        case Nested(struct=struct):
            made = structs(struct, version)
        case Array(element=element):
            made = st.lists(values(element, version), max_size=3)
        case Text():
            made = st.text(max_size=200)
        case Blob() | RecordBytes():
            made = st.binary(max_size=200)
        case Fixed(code="?"):
            made = st.booleans()
        case Fixed(code="16s"):
            made = st.binary(min_size=16, max_size=16)
        case Fixed(code="H"):
            made = st.integers(0, 2**16 - 1)
        case Fixed(code="d"):
            made = st.floats(allow_nan=False)
        case Fixed(code=code):
            half = 2 ** (INTEGER_BITS[code] - 1)
            made = st.integers(-half, half - 1)
        case _:
            assert isinstance(kind, type)
            made = structs(kind, version)
    return made


@functools.cache
def structs(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Make structs or messages whose fields that `version` lacks have their defaults."""

    def of_field(spec: FieldSpec) -> st.SearchStrategy[Any]:
        return values(spec.kind, version) if spec.present(version) else st.builds(spec.default_value)

    return st.builds(cls, **{spec.name: of_field(spec) for spec in fields_of(cls)})


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
def test_message_survives_the_round_trip(cls: type, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(message_of(cls).versions), "version")
    message = data.draw(structs(cls, version), "message")
    encoded = encode_bytes(message, version)
    assert decode(cls, encoded, version) == message
    assert decode(cls, memoryview(encoded), version) == message


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
def test_damaged_message_raises_the_typed_error_or_is_another_message(cls: type, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(message_of(cls).versions), "version")
    damaged = bytearray(encode_bytes(data.draw(structs(cls, version), "message"), version))
    if damaged and data.draw(st.booleans(), "flip"):
        position = data.draw(st.integers(0, len(damaged) - 1), "position")
        damaged[position] ^= data.draw(st.integers(1, 255), "mask")
    else:
        del damaged[data.draw(st.integers(0, len(damaged)), "cut") :]
    try:
        decode(cls, bytes(damaged), version)
    except BarnabasError:
        return  # the one kind of error that a frame from outside may raise
