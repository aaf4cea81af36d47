"""Compiles a message declaration, for one version, into an encoder and a decoder.

The compiler generates the source of the two functions, once for each class and version in use, so that requests need
not read the declaration. Adjacent fields of fixed size become one `struct.Struct`. The functions are:

    decode(buf, pos, end, spans) -> (message, position after it)
    encode(m, out, splices)

`buf` is a contiguous buffer, and `end` is the position after the last readable byte. Before memory is allocated, each
length is compared with the remaining bytes, and each count with the minimum size of its entries. An array has at most
`ARRAY_ENTRIES_MAX` entries, and a struct at most `TAGS_MAX` tagged fields. Record bytes are not copied into `out`. The
encoder adds them to `splices` as pairs (position in `out`, record bytes). The decoder adds three positions per record
bytes to `spans`: of their length, of their first byte, and of the byte after their end.

A decoder sets the fields of a new object one by one. The constructor of the class has many keyword arguments, and would
be slower than the rest of the decoder.

For large messages, both functions also exist as generators that yield periodically, so that other requests can run.
Such a decoder counts the entries of an array before it creates any entry:

    decode(buf, pos, end, spans, budget) -> yields; returns (message, position after it)

For malformed input, a decoder may raise struct.error, IndexError or a Unicode error; `barnabas.protocol.codec` converts
them to MalformedMessageError.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Generator
from itertools import groupby
from typing import Any, NoReturn

from barnabas.errors import MalformedMessageError, UnsupportedVersionError
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
)

Buffer = bytes | bytearray | memoryview

UVARINT_BYTES_MAX = 5
"""The maximum encoded size in bytes of a length or tag of 32 bits."""


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Decode an unsigned varint (KIP-482); return it and the position after it.

    :raises MalformedMessageError: the varint has more than 32 bits.
    :raises IndexError: the buffer ends within the varint.

    >>> read_uvarint(b"\\xac\\x02", 0)
    (300, 2)
    """
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    byte = buffer[position + 1]
    if byte < 0x80:
        return value & 0x7F | byte << 7, position + 2
    value = 0
    for shift in range(0, 7 * UVARINT_BYTES_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedMessageError(f"a varint before byte {position} does not fit 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint: seven bits in each byte, the least significant bits first.

    >>> out = bytearray()
    >>> write_uvarint(out, 300)
    >>> bytes(out)
    b'\\xac\\x02'
    """
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


Decoder = Callable[[Any, int, int, list[tuple[int, int, int]]], tuple[Any, int]]
Encoder = Callable[[Any, bytearray, list[tuple[int, Any]]], None]
Slices = Generator[None, None, Any]
"""A generator that yields to let other requests run, and returns its result."""

SLICE_ENTRIES = 64
"""The number of array entries between two yields. Processing them takes a fraction of a millisecond."""

SLICE_BYTES = 4 * 1024
"""The maximum size in bytes of the array entries that a decoder processes between two yields."""

ARRAY_ENTRIES_MAX = 1_000_000
"""The same limits as in Kafka since CVE-2026-111108 and CVE-2026-111115."""
TAGS_MAX = 10_000


class EntryBudget:
    """Limits the total number of array entries in a message."""

    __slots__ = ("_left", "entries_max")

    def __init__(self, entries_max: int) -> None:
        self.entries_max = self._left = entries_max

    @property
    def used(self) -> int:
        """The number of counted entries."""
        return self.entries_max - self._left

    def take(self, what: str, count: int) -> None:
        """Count the entries of an array.

        :raises MalformedMessageError: the message has too many entries.
        """
        self._left -= count
        if self._left < 0:
            raise MalformedMessageError(
                f"{count} more entries of {what} exceed the limit of {self.entries_max} entries in one message"
            )


@functools.cache
def decoder(cls: type, version: int, flexible: bool) -> Decoder:
    compiled: Decoder = _DecoderSource(cls, version, flexible).compile()
    return compiled


@functools.cache
def encoder(cls: type, version: int, flexible: bool) -> Encoder:
    compiled: Encoder = _EncoderSource(cls, version, flexible).compile()
    return compiled


@functools.cache
def decoder_in_slices(cls: type, version: int, flexible: bool) -> Callable[..., Slices]:
    """Return a decoder of `cls` for `version`. The decoder is a generator: it yields after a number of array entries,
    and counts them."""
    compiled: Callable[..., Slices] = _DecoderSource(cls, version, flexible, in_slices=True).compile()
    return compiled


@functools.cache
def encoder_in_slices(cls: type, version: int, flexible: bool) -> Callable[..., Slices]:
    """Return the encoder of `cls` for `version` that yields periodically."""
    compiled: Callable[..., Slices] = _EncoderSource(cls, version, flexible, in_slices=True).compile()
    return compiled


@functools.cache
def _has_arrays(cls: type, version: int) -> bool:
    """Return whether the class has arrays, so that its values may be large."""
    kinds = [spec.kind for spec in fields_of(cls) if spec.present(version)]
    inner = [kind.inner if isinstance(kind, Nullable) else kind for kind in kinds]
    assert not any(isinstance(kind, Nested) and _has_arrays(kind.struct, version) for kind in inner), (
        f"{cls.__name__} has a struct with arrays, which would not be decoded in slices"
    )
    return any(isinstance(kind, Array) for kind in inner)


@functools.cache
def _size_min(kind: WireType | type, version: int, flexible: bool) -> int:
    """Return the minimum encoded size of a value in bytes."""
    match kind:
        case Fixed(code=code):
            return struct.calcsize(">" + code)
        case Nullable(inner=inner, since=since):
            return 1 if isinstance(inner, Nested) and version >= since else _size_min(inner, version, flexible)
        case Nested(struct=cls):
            return _size_min(cls, version, flexible)
        case Text():
            return 1 if flexible else 2
        case WireType():
            return 1 if flexible else 4
    present = [spec for spec in fields_of(kind) if spec.present(version) and (spec.tag is None or not flexible)]
    return sum(_size_min(spec.kind, version, flexible) for spec in present) + flexible


def _too_many(what: str, count: int) -> NoReturn:
    raise MalformedMessageError(f"{what} claims {count} entries (at most {ARRAY_ENTRIES_MAX} are allowed)")


def _overrun(what: str, count: int, left: int, size: int = 0) -> NoReturn:
    claimed = f"{count} entries of at least {size} bytes" if size else f"{count} bytes"
    raise MalformedMessageError(f"{what} claims {claimed}, but only {left} bytes are left")


def _null(what: str) -> NoReturn:
    raise MalformedMessageError(f"{what} is null, which this version does not allow")


def _too_many_tags(count: int) -> NoReturn:
    raise MalformedMessageError(f"{count} tagged fields in one struct (at most {TAGS_MAX} are allowed)")


def _unsupported(what: str, version: int, value: object) -> NoReturn:
    raise UnsupportedVersionError(f"{what} cannot be sent in version {version} (it has the value {value!r})")


class _Source:
    """The source lines of a generated function, and the globals that it uses."""

    def __init__(self, cls: type, version: int, flexible: bool, *, in_slices: bool = False) -> None:
        self.cls, self.version, self.flexible, self.in_slices = cls, version, flexible, in_slices
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {
            "read_uvarint": read_uvarint,
            "write_uvarint": write_uvarint,
            "overrun": _overrun,
            "too_many": _too_many,
            "null": _null,
            "too_many_tags": _too_many_tags,
            "unsupported": _unsupported,
            "unpack_from": struct.unpack_from,
            "pack": struct.pack,
            "new": object.__new__,
        }
        specs = fields_of(cls)
        self.specs = specs
        self.in_order = [s for s in specs if s.present(version) and (s.tag is None or not flexible)]
        self.tagged = [s for s in specs if s.present(version) and s.tag is not None and flexible]
        self.absent = [s for s in specs if not s.present(version)]

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def name(self, value: Any) -> str:
        """Add `value` to the globals of the generated function, and return its name."""
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def what(self, spec: FieldSpec) -> str:
        return repr(f"{self.cls.__name__}.{spec.name}")

    def runs(self) -> list[list[FieldSpec]]:
        """Group adjacent fields of fixed size; every other field is a group of its own."""
        keyed = [(0 if isinstance(s.kind, Fixed) else i, s) for i, s in enumerate(self.in_order, start=1)]
        return [[s for _, s in run] for _, run in groupby(keyed, key=lambda pair: pair[0])]

    def may_be_null(self, kind: WireType) -> bool:
        return isinstance(kind, Nullable) and self.version >= kind.since

    def pauses_in(self, element: WireType | type) -> bool:
        """Return whether the generator must also yield within a single element of an array."""
        return self.in_slices and not isinstance(element, WireType) and _has_arrays(element, self.version)

    def compile_as(self, name: str, head: str) -> Any:
        source = "\n".join([head, *self.lines])
        place = f"<{name} of {self.cls.__name__} version {self.version}>"
        exec(compile(source, place, "exec"), self.names)
        return self.names[name]


class _DecoderSource(_Source):
    def compile(self) -> Any:
        self.add(f"m = new({self.name(self.cls)})")
        for spec in (*self.absent, *self.tagged):
            self.add(f"m.{spec.name} = {self.default(spec)}")
        for run in self.runs():
            if isinstance(run[0].kind, Fixed):
                self.fixed(run)
            else:
                self.value(run[0].kind, f"m.{run[0].name}", self.what(run[0]))
        if self.flexible:
            self.tags()
        self.add("return m, pos")
        if self.in_slices:
            self.add("yield")  # an unreachable yield makes the function a generator even if the message has no array
            return self.compile_as("decode", "def decode(buf, pos, end, spans, budget):")
        return self.compile_as("decode", "def decode(buf, pos, end, spans):")

    def default(self, spec: FieldSpec) -> str:
        if spec.default_factory is list:
            return "[]"
        return self.name(spec.default_value())

    def fixed(self, run: list[FieldSpec]) -> None:
        codes = struct.Struct(">" + "".join(s.kind.code for s in run if isinstance(s.kind, Fixed)))
        targets = "".join(f"m.{s.name}, " for s in run)
        self.add(f"{targets}= {self.name(codes.unpack_from)}(buf, pos)", f"pos += {codes.size}")

    def value(self, kind: WireType, target: str, what: str) -> None:
        """Add the lines that decode a value of `kind` into `target`."""
        inner = kind.inner if isinstance(kind, Nullable) else kind
        if isinstance(inner, Nested):
            function = self.name(decoder(inner.struct, self.version, self.flexible))
            read = f"{target}, pos = {function}(buf, pos, end, spans)"
            if self.may_be_null(kind):
                self.add("pos += 1", f"if buf[pos - 1] > 127: {target} = None", f"else: {read}")
            else:
                self.add(read)
        elif isinstance(inner, Fixed):
            code = struct.Struct(">" + inner.code)
            self.add(f"{target}, = {self.name(code.unpack_from)}(buf, pos)", f"pos += {code.size}")
        else:
            self.length(inner)
            refuse = f"{target} = None" if self.may_be_null(kind) else f"null({what})"
            self.add("if n < 0:", f"    {refuse}")
            # Compare the minimum size of all entries with the remaining bytes.
            if isinstance(inner, Array):
                size = self.entry_size_min(inner, what)
                self.add(f"elif n * {size} > end - pos: overrun({what}, n, end - pos, {size})")
                self.add(f"elif n > {ARRAY_ENTRIES_MAX}: too_many({what}, n)")
            else:
                self.add(f"elif n > end - pos: overrun({what}, n, end - pos)")
            self.add("else:")
            self.depth += 1
            self.body(inner, target, what)
            self.depth -= 1

    def length(self, inner: WireType) -> None:
        if isinstance(inner, RecordBytes):
            self.add("at = pos")
        if self.flexible:
            self.add("n = buf[pos] - 1", "pos += 1", "if n > 126:")
            self.add("    if buf[pos] < 128: n, pos = (n + 1 & 127 | buf[pos] << 7) - 1, pos + 1")
            self.add("    else:", "        n, pos = read_uvarint(buf, pos - 1)", "        n -= 1")
        else:
            code, size = (">h", 2) if isinstance(inner, Text) else (">i", 4)
            self.add(f"n, = {self.name(struct.Struct(code).unpack_from)}(buf, pos)", f"pos += {size}")

    def body(self, inner: WireType, target: str, what: str) -> None:
        if isinstance(inner, Array):
            self.items(inner, target, what)
            return
        if isinstance(inner, Text):
            self.add(f"{target} = str(buf[pos:pos + n], 'utf-8')")
        elif isinstance(inner, Blob):
            self.add(f"{target} = bytes(buf[pos:pos + n])")
        else:
            self.add(f"{target} = memoryview(buf)[pos:pos + n]", "spans.append((at, pos, pos + n))")
        self.add("pos += n")

    def entry_size_min(self, inner: Array, what: str) -> int:
        size = _size_min(inner.element, self.version, self.flexible)
        assert size, f"{what} has entries of no bytes: their number could not be checked"
        return size

    def items(self, inner: Array, target: str, what: str) -> None:
        element = inner.element
        if isinstance(element, Fixed):
            if self.in_slices:
                self.add(f"budget.take({what}, n)")
            self.add(f"{target} = list(unpack_from(f'>{{n}}{element.code}', buf, pos))")
            self.add(f"pos += n * {self.entry_size_min(inner, what)}")
            return
        items = f"items{self.depth}"
        if self.in_slices:
            self.add(f"budget.take({what}, n)")
        self.add(f"{items} = []", *([f"pause{self.depth} = 0"] if self.in_slices else []), "for _ in range(n):")
        self.depth += 1
        if self.in_slices:
            pause = f"pause{self.depth - 1}"
            self.add(f"if not len({items}) % {SLICE_ENTRIES} or pos > {pause}:", f"    {pause} = pos + {SLICE_BYTES}")
            self.add("    yield")
        if isinstance(element, WireType):
            self.value(element, "item", what)
        elif self.pauses_in(element):
            function = self.name(decoder_in_slices(element, self.version, self.flexible))
            self.add(f"item, pos = yield from {function}(buf, pos, end, spans, budget)")
        else:
            self.add(f"item, pos = {self.name(decoder(element, self.version, self.flexible))}(buf, pos, end, spans)")
        self.add(f"{items}.append(item)")
        self.depth -= 1
        self.add(f"{target} = {items}")

    def tags(self) -> None:
        """Decode the known tagged fields, and skip the others (KIP-482)."""
        self.add("if not buf[pos]: pos += 1", "else:")
        self.depth += 1
        self.add("tags, pos = read_uvarint(buf, pos)", f"if tags > {TAGS_MAX}: too_many_tags(tags)")
        self.add("for _ in range(tags):")
        self.depth += 1
        self.add("tag, pos = read_uvarint(buf, pos)", "size, pos = read_uvarint(buf, pos)")
        self.add("if size > end - pos: overrun('a tagged field', size, end - pos)", "after = pos + size")
        for spec in self.tagged:
            self.add(f"if tag == {spec.tag}:")
            self.depth += 1
            self.value(spec.kind, f"m.{spec.name}", self.what(spec))
            self.add(f"if pos != after: overrun({self.what(spec)}, size, after - pos)")
            self.depth -= 1
        self.add("pos = after")
        self.depth -= 2


class _EncoderSource(_Source):
    def compile(self) -> Any:
        for spec in self.absent:
            if not spec.ignorable:
                default = self.name(spec.default_value())
                refuse = f"unsupported({self.what(spec)}, {self.version}, m.{spec.name})"
                self.add(f"if m.{spec.name} != {default}: {refuse}")
        for run in self.runs():
            if isinstance(run[0].kind, Fixed):
                self.fixed(run)
            else:
                self.value(run[0].kind, f"m.{run[0].name}", self.what(run[0]), "out")
        if self.flexible:
            self.tags()
        self.add("return")
        if self.in_slices:
            self.add("yield")  # an unreachable yield makes the function a generator even if the message has no array
        return self.compile_as("encode", "def encode(m, out, splices):")

    def fixed(self, run: list[FieldSpec]) -> None:
        codes = struct.Struct(">" + "".join(s.kind.code for s in run if isinstance(s.kind, Fixed)))
        values = ", ".join(f"m.{s.name}" for s in run)
        self.add(f"out += {self.name(codes.pack)}({values})")

    def value(self, kind: WireType, expression: str, what: str, out: str) -> None:
        """Add the lines that append the value of `expression` to the buffer named `out`."""
        inner = kind.inner if isinstance(kind, Nullable) else kind
        if isinstance(inner, Nested):
            function = self.name(encoder(inner.struct, self.version, self.flexible))
            write = f"{function}({expression}, {out}, splices)"
            if self.may_be_null(kind):
                # A nullable struct is preceded by a byte, which is -1 for null.
                self.add(f"if {expression} is None: {out}.append(255)", "else:")
                self.add(f"    {out}.append(1)", f"    {write}")
            else:
                self.add(write)
        elif isinstance(inner, Fixed):
            self.add(f"{out} += {self.name(struct.Struct('>' + inner.code).pack)}({expression})")
        else:
            variable = "v" if expression.startswith("m.") else "w"
            self.add(f"{variable} = {expression}", f"if {variable} is None:")
            self.depth += 1
            if self.may_be_null(kind):
                self.length(inner, "-1", out)
            else:
                self.add(f"null({what})")
            self.depth -= 1
            self.add("else:")
            self.depth += 1
            self.body(inner, variable, what, out)
            self.depth -= 1

    def length(self, inner: WireType, expression: str, out: str) -> None:
        if self.flexible:
            self.add(f"n = {expression} + 1", f"if n < 128: {out}.append(n)")
            self.add(f"elif n < 16384: {out} += bytes((n & 127 | 128, n >> 7))", f"else: write_uvarint({out}, n)")
        else:
            code = ">h" if isinstance(inner, Text) else ">i"
            self.add(f"{out} += {self.name(struct.Struct(code).pack)}({expression})")

    def body(self, inner: WireType, variable: str, what: str, out: str) -> None:
        if isinstance(inner, Text):
            self.add(f"data = {variable}.encode()")
            self.length(inner, "len(data)", out)
            self.add(f"{out} += data")
            return
        self.length(inner, f"len({variable})", out)
        if isinstance(inner, Array):
            self.items(inner, variable, what, out)
        elif isinstance(inner, RecordBytes):
            self.add(f"splices.append((len({out}), {variable}))")
        else:
            self.add(f"{out} += {variable}")

    def items(self, inner: Array, variable: str, what: str, out: str) -> None:
        element = inner.element
        if isinstance(element, Fixed):
            self.add(f"{out} += pack(f'>{{len({variable})}}{element.code}', *{variable})")
            return
        # Do not yield inside tagged fields: they are small, and are encoded into a separate buffer first.
        in_slices = self.in_slices and out == "out"
        if in_slices:
            self.add("left = 0")
        self.add(f"for item in {variable}:")
        self.depth += 1
        if in_slices:
            self.add("if not left:", "    yield", f"    left = {SLICE_ENTRIES}", "left -= 1")
        if isinstance(element, WireType):
            self.value(element, "item", what, out)
        elif in_slices and self.pauses_in(element):
            function = self.name(encoder_in_slices(element, self.version, self.flexible))
            self.add(f"yield from {function}(item, out, splices)")
        else:
            self.add(f"{self.name(encoder(element, self.version, self.flexible))}(item, {out}, splices)")
        self.depth -= 1

    def tags(self) -> None:
        if not self.tagged:
            self.add("out.append(0)")
            return
        defaults = {spec: self.name(spec.default_value()) for spec in self.tagged}
        # Compare by identity first, because the field usually has its default object.
        unset = " and ".join(f"(m.{s.name} is {name} or m.{s.name} == {name})" for s, name in defaults.items())
        self.add(f"if {unset}:", "    out.append(0)", "    return", "tags = []")
        for spec in sorted(self.tagged, key=lambda s: s.tag or 0):
            self.add(f"if m.{spec.name} != {defaults[spec]}:")
            self.depth += 1
            self.add("tagged = bytearray()")
            self.value(spec.kind, f"m.{spec.name}", self.what(spec), "tagged")
            self.add(f"tags.append(({spec.tag}, tagged))")
            self.depth -= 1
        self.add("write_uvarint(out, len(tags))", "for tag, tagged in tags:")
        self.add("    write_uvarint(out, tag)", "    write_uvarint(out, len(tagged))", "    out += tagged")
