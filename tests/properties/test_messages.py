"""Messages survive the way to bytes and back, in every version; damaged bytes raise the one typed error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.errors import BarnabasError
from barnabas.protocol.apis import APIS
from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.declare import FieldSpec, fields_of, message_of
from barnabas.protocol.types import Array, Blob, Fixed, Nested, Nullable, RecordBytes, Text, WireType

MESSAGES = [cls for api in APIS.values() for cls in (api.request, api.response)]
INTEGER_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


def values(kind: WireType | type, version: int, nullable: bool = False) -> st.SearchStrategy[Any]:
    """Make values of a wire type, or of a struct, as they may stand in `version`."""
    if isinstance(kind, type):
        return structs(kind, version)
    if isinstance(kind, Nullable):
        inner = values(kind.inner, version)
        return st.none() | inner if version >= kind.since else inner
    if isinstance(kind, Nested):
        return structs(kind.struct, version)
    if isinstance(kind, Array):
        return st.lists(values(kind.element, version), max_size=3)
    if isinstance(kind, Text):
        return st.text(max_size=200)
    if isinstance(kind, (Blob, RecordBytes)):
        return st.binary(max_size=200)
    assert isinstance(kind, Fixed)
    if kind.code == "?":
        return st.booleans()
    if kind.code == "16s":
        return st.binary(min_size=16, max_size=16)
    bits = INTEGER_BITS[kind.code]
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def structs(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Make structs or messages whose fields that `version` lacks have their defaults."""

    def of_field(spec: FieldSpec) -> st.SearchStrategy[Any]:
        return values(spec.kind, version) if spec.present(version) else st.builds(spec.default_value)

    return st.builds(cls, **{spec.name: of_field(spec) for spec in fields_of(cls)})


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_message_survives_the_round_trip(cls: type, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(message_of(cls).versions), "version")
    message = data.draw(structs(cls, version), "message")
    encoded = encode_bytes(message, version)
    assert decode(cls, encoded, version) == message
    assert decode(cls, memoryview(encoded), version) == message


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
