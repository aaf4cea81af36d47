"""Declarations of messages: a class for all versions of a message, a line for each field.

    @message(api_key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest:
        group_id: str = field(STRING)
        group_instance_id: str | None = field(nullable(STRING), since=3, default=None)

The decorators make slotted dataclasses with keyword-only constructors, and keep the declaration on the class as
`__fields__` for the compiler. A field that some version lacks must name a default: decoding this version gives the
default. Encoding another value in this version is an error, unless the field is `ignorable` (Kafka's meaning of the
word).

The types of fields are those of Kafka's protocol guide, as data; `barnabas.protocol.compiler` decides how a type is
written in a version. The "compact" forms with varint lengths belong to flexible versions (KIP-482), and are no types of
their own. One module declares both messages of an API, so a client imports the messages that it uses and no others.
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
"""The UUID that means "none". A UUID is a value of 16 bytes."""


@dataclass(frozen=True, slots=True)
class WireType:
    """A type of fields; `name` is Kafka's name."""

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
    """Bytes with an int32 length; decoded to `bytes`, a copy of the part of the frame."""


@dataclass(frozen=True, slots=True)
class RecordBytes(WireType):
    """Record batches, which pass through: decoded to a view of the frame, encoded without being copied.

    Any value with a length can be encoded, also a `FileRegion` that the stream sends with sendfile.
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


T = TypeVar("T")

LATEST = 32767
"""The last version of a field that is in the latest version."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A declared field: its type, the versions that have it, and its tag in flexible versions."""

    name: str
    kind: WireType
    since: int
    until: int
    ignorable: bool
    tag: int | None
    default: Any
    default_factory: Callable[[], Any] | None
    required: bool

    def present(self, version: int) -> bool:
        """Whether `version` has this field."""
        return self.since <= version <= self.until

    def default_value(self) -> Any:
        """The value where the version lacks the field, or where a tagged field was not sent."""
        return self.default_factory() if self.default_factory else self.default


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """The declaration of a message as a whole."""

    api_key: int | None
    versions: range
    flexible_since: int

    def flexible(self, version: int) -> bool:
        """Whether `version` uses compact lengths and tagged fields (KIP-482)."""
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
) -> Any:
    """Declare a field.

    :param kind: its wire type.
    :param since: first version that has it.
    :param until: last version that has it.
    :param default: its value where a version lacks it; required if some version does.
    :param default_factory: the same for lists, and for structs. The default of a struct is one object, which all
        messages share: set such a field anew, and do not change what it holds.
    :param ignorable: whether encoding may drop a value that the version has no place for.
    :param tag: its number, if it is a tagged field.
    """
    if default_factory not in {None, list}:
        default_factory = _shared(default_factory)
    required = default is _MISSING and default_factory is None
    if required and (since > 0 or until < LATEST):
        raise TypeError(f"a {kind.name} field with versions {since}-{until} needs a default")
    return FieldSpec("", kind, since, until, ignorable, tag, default, default_factory, required)


def _shared(factory: Callable[[], T]) -> Callable[[], T]:
    return itertools.repeat(factory()).__next__  # in C, since each new message calls it


def _declare(cls: type[T]) -> type[T]:
    specs = []
    for name in inspect.get_annotations(cls):
        spec: FieldSpec = dataclasses.replace(cls.__dict__[name], name=name)
        specs.append(spec)
        if spec.required:
            delattr(cls, name)
        elif spec.default_factory:
            setattr(cls, name, dataclasses.field(default_factory=spec.default_factory))
        else:
            setattr(cls, name, dataclasses.field(default=spec.default))
    declared = dataclass(slots=True, kw_only=True)(cls)
    declared.__fields__ = tuple(specs)  # type: ignore[attr-defined]
    return declared


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Declare a class whose values stand inside messages."""
    return _declare(cls)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(*, versions: str, flexible: str = "none", api_key: int | None = None) -> Callable[[type[T]], type[T]]:
    """Declare a message.

    :param versions: the versions it is declared for, "4-12" or "3".
    :param flexible: the versions that are flexible, "9+" or "none".
    :param api_key: the API's number; none for structures that travel inside other messages.
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
    """Return the class of the response to a class of requests."""
    response: type[Any] = getattr(sys.modules[request.__module__], f"{api_name(request)}Response")
    return response
