"""Declarations of messages: one class for all versions of a message, one line for each field.

    @message(api_key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest:
        group_id: str = field(STRING)
        group_instance_id: str | None = field(nullable(STRING), since=3, default=None)

The decorators make slotted dataclasses with keyword-only constructors, and store the declaration in the attribute
`__fields__` of the class, for the compiler. A field that some versions lack needs a default, which the decoder sets in
these versions. Encoding another value in these versions is an error, unless the field is `ignorable`, as in Kafka's
definitions.

The types of fields are those of Kafka's protocol guide, as data; `barnabas.protocol.compiler` determines their encoding
in each version. The "compact" forms with varint lengths belong to flexible versions (KIP-482), and are not separate
types. Each API has its own module with its two messages, so a client imports only the messages that it uses.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

ZERO_UUID = bytes(16)
"""The UUID (16 bytes) that means "no id"."""


@dataclass(frozen=True, slots=True)
class WireType:
    """A type of a field; `name` is Kafka's name of the type."""

    name: str


@dataclass(frozen=True, slots=True)
class Fixed(WireType):
    """A value of fixed size. `code` is its `struct` code; adjacent values are packed in one call."""

    code: str


@dataclass(frozen=True, slots=True)
class Text(WireType):
    """UTF-8 text, preceded by its length: an int16, or a varint in flexible versions."""


@dataclass(frozen=True, slots=True)
class Blob(WireType):
    """Bytes, preceded by an int32 length. The decoder copies them from the frame to a `bytes` object."""


@dataclass(frozen=True, slots=True)
class RecordBytes(WireType):
    """Record batches. The decoder returns a view of the frame, and the encoder does not copy them.

    Any object with a length can be encoded, for example a `FileRegion`, which is sent with sendfile.
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
    """A value of type `inner`, which may be null in version `since` and later."""

    inner: WireType
    since: int


BOOLEAN = Fixed("bool", "?")
INT8 = Fixed("int8", "b")
INT16 = Fixed("int16", "h")
UINT16 = Fixed("uint16", "H")
INT32 = Fixed("int32", "i")
INT64 = Fixed("int64", "q")
FLOAT64 = Fixed("float64", "d")
UUID = Fixed("uuid", "16s")
STRING = Text("string")
BYTES = Blob("bytes")
RECORDS = RecordBytes("records")


def array(element: WireType | type) -> Array:
    inner = element.name if isinstance(element, WireType) else element.__name__
    return Array(f"[]{inner}", element)


def nested(struct: type) -> Nested:
    """Return the type of a single value of class `struct`. In a version that lacks the field, its
    value is `struct()`.
    """
    return Nested(struct.__name__, struct)


def nullable(inner: WireType, since: int = 0) -> Nullable:
    """Return the type of a value that may be null in version `since` and later; earlier versions cannot encode null."""
    return Nullable(inner.name, inner, since)


T = TypeVar("T")

LATEST = 32767
"""The value of `until` for a field that the latest version has."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A declared field: its type, its versions, and its tag in flexible versions."""

    name: str
    kind: WireType
    since: int
    until: int
    ignorable: bool
    tag: int | None
    default: Any
    default_factory: Callable[[], Any] | None
    required: bool
    secret: bool = False

    def present(self, version: int) -> bool:
        """Return whether `version` has this field."""
        return self.since <= version <= self.until

    def default_value(self) -> Any:
        """Return the value of the field in a message whose version lacks it, or whose tagged fields
        do not include it.
        """
        return self.default_factory() if self.default_factory else self.default


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """The declaration of a message: its API key and its versions."""

    api_key: int | None
    versions: range
    flexible_since: int

    def flexible(self, version: int) -> bool:
        """Return whether `version` uses compact lengths and tagged fields (KIP-482)."""
        return version >= self.flexible_since


_MISSING: Any = object()


def field(
    kind: WireType,
    *,
    since: int = 0,
    until: int = LATEST,
    default: Any = _MISSING,
    default_factory: Callable[[], Any] | None = None,
    ignorable: bool = False,
    tag: int | None = None,
    secret: bool = False,
) -> Any:
    """Declare a field.

    :param kind: the wire type.
    :param since: the first version with the field.
    :param until: the last version with the field.
    :param default: the value in versions without the field; required if there are such versions.
    :param default_factory: returns the default of lists and structs. All messages share one default object of a struct,
        so replace the object, and never modify it.
    :param ignorable: True if the encoder may drop a value in versions without the field.
    :param tag: the tag, if this is a tagged field.
    :param secret: True if the `repr` of a message omits the field.
    """
    if default_factory not in {None, list}:
        default_factory = _shared(default_factory)
    required = default is _MISSING and default_factory is None
    if required and (since > 0 or until < LATEST):
        raise TypeError(f"a {kind.name} field with versions {since}-{until} needs a default")
    return FieldSpec("", kind, since, until, ignorable, tag, default, default_factory, required, secret)


def _shared(factory: Callable[[], T]) -> Callable[[], T]:
    # `itertools.repeat` is implemented in C; the default factory is called for each new message
    return itertools.repeat(factory()).__next__


def _declare(cls: type[T]) -> type[T]:
    specs = []
    for name in inspect.get_annotations(cls):
        spec: FieldSpec = dataclasses.replace(cls.__dict__[name], name=name)
        specs.append(spec)
        shown = not spec.secret
        if spec.required:
            setattr(cls, name, dataclasses.field(repr=shown))
        elif spec.default_factory:
            setattr(cls, name, dataclasses.field(default_factory=spec.default_factory, repr=shown))
        else:
            setattr(cls, name, dataclasses.field(default=spec.default, repr=shown))
    declared = dataclass(slots=True, kw_only=True)(cls)
    declared.__fields__ = tuple(specs)  # type: ignore[attr-defined]
    return declared


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Declare a class for structures inside messages."""
    return _declare(cls)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(*, versions: str, flexible: str = "none", api_key: int | None = None) -> Callable[[type[T]], type[T]]:
    """Declare a message.

    :param versions: the declared versions, "4-12" or "3".
    :param flexible: the flexible versions, "9+" or "none".
    :param api_key: the key of the API; None for structures inside other messages.
    """

    def declare(cls: type[T]) -> type[T]:
        declared = _declare(cls)
        spec = MessageSpec(api_key, _parse_versions(versions), _parse_since(flexible))
        declared.__message__ = spec  # type: ignore[attr-defined]
        return declared

    return declare


def fields_of(cls: type) -> tuple[FieldSpec, ...]:
    """Return the declared fields of a message or struct, in wire order.

    :raises TypeError: the class was not declared with `@message` or `@struct`.
    """
    try:
        specs: tuple[FieldSpec, ...] = cls.__dict__["__fields__"]
    except KeyError:
        raise TypeError(f"{cls.__name__} is not declared with @message or @struct") from None
    return specs


def message_of(cls: type) -> MessageSpec:
    """Return the declaration of a message class.

    :raises TypeError: the class was not declared with `@message`.
    """
    try:
        spec: MessageSpec = cls.__dict__["__message__"]
    except KeyError:
        raise TypeError(f"{cls.__name__} is not declared with @message") from None
    return spec


def _parse_versions(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _parse_since(text: str) -> int:
    return LATEST if text == "none" else int(text.removesuffix("+"))


def api_name(request: type[Any]) -> str:
    """Return the name of a request's API.

    >>> class HeartbeatRequest: ...
    >>> api_name(HeartbeatRequest)
    'Heartbeat'
    """
    return request.__name__.removesuffix("Request")


@functools.cache
def response_of(request: type[Any]) -> type[Any]:
    """Return the response class of a request class."""
    response: type[Any] = getattr(sys.modules[request.__module__], f"{api_name(request)}Response")
    return response
