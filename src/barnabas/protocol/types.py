"""The wire types of the protocol, as data: what a field's bytes look like, without the code that moves them.

How a type is written in which version is decided in `barnabas.protocol.compiler`. The types
are those of Kafka's protocol guide; "compact" forms with varint lengths belong to flexible versions (KIP-482)
and are no types of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

ZERO_UUID = bytes(16)
"""The UUID that means "none". A UUID is its 16 bytes: it is compared and kept, never taken apart."""


@dataclass(frozen=True, slots=True)
class WireType:
    """Root of the wire types; `name` is Kafka's for it."""

    name: str


@dataclass(frozen=True, slots=True)
class Fixed(WireType):
    """A value of fixed size; `code` is its `struct` code, so that neighbours can be packed in one call."""

    code: str


@dataclass(frozen=True, slots=True)
class Text(WireType):
    """UTF-8 text with an int16 length, or a varint one in flexible versions."""


@dataclass(frozen=True, slots=True)
class Blob(WireType):
    """Bytes with an int32 length. Decoded to `bytes`: a value of its own, free of the frame it came in."""


@dataclass(frozen=True, slots=True)
class RecordBytes(WireType):
    """Record batches, which pass through: decoded to a view of the frame, encoded without being copied.

    On encode anything with a length is taken, also a `FileRegion` that the listener sends with sendfile.
    """


@dataclass(frozen=True, slots=True)
class Array(WireType):
    """A list of `element`, which is a wire type or a class declared with `@struct`."""

    element: WireType | type


@dataclass(frozen=True, slots=True)
class Nested(WireType):
    """One value of a class declared with `@struct`."""

    struct: type


@dataclass(frozen=True, slots=True)
class Nullable(WireType):
    """`inner`, which may be null from version `since` on."""

    inner: WireType
    since: int


BOOLEAN = Fixed("bool", "?")
INT8 = Fixed("int8", "b")
INT16 = Fixed("int16", "h")
UINT16 = Fixed("uint16", "H")
INT32 = Fixed("int32", "i")
INT64 = Fixed("int64", "q")
UUID = Fixed("uuid", "16s")
STRING = Text("string")
BYTES = Blob("bytes")
RECORDS = RecordBytes("records")


def array(element: WireType | type) -> Array:
    """A list of `element`."""
    inner = element.name if isinstance(element, WireType) else element.__name__
    return Array(f"[]{inner}", element)


def nested(struct: type) -> Nested:
    """One value of the class `struct`; a version that lacks the field decodes it to `struct()`."""
    return Nested(struct.__name__, struct)


def nullable(inner: WireType, since: int = 0) -> Nullable:
    """`inner`, or null from version `since` on; before that a null is refused on encode."""
    return Nullable(inner.name, inner, since)
