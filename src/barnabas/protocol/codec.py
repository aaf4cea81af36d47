"""Encoding and decoding of messages and their frames, and templates for frames that repeat.

>>> from barnabas.protocol.messages.heartbeat import HeartbeatRequest
>>> data = encode_bytes(HeartbeatRequest(group_id="ctr", generation_id=3, member_id="m"), 0)
>>> data
b'\\x00\\x03ctr\\x00\\x00\\x00\\x03\\x00\\x01m'
>>> decode(HeartbeatRequest, data, 0).generation_id
3

A frame consists of an int32 size, a header and a message. A request has header version 1, or 2 if the version of the
request is flexible; a response has header version 0 or 1 (KIP-482). ApiVersions is an exception: its response always
has header version 0, because the client does not yet know the versions that the broker supports (KIP-511).

A template avoids encoding and decoding if frames differ only in some numbers and in their record bytes. For example, a
producer sends the same request with other records, a waiting consumer repeats its fetch, and a group member commits the
same partitions. To find the position of a number, a template encodes the message with 0 and with -1 in its field, and
compares the bytes. So templates work for all message types: they produce the same bytes as `encode`, and return the
same values as `decode`. All other bytes of a frame must be equal.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from barnabas.errors import MalformedMessageError, UnsupportedVersionError
from barnabas.protocol.compiler import (
    TAGS_MAX,
    Decoder,
    Encoder,
    EntryBudget,
    Slices,
    decoder,
    decoder_in_slices,
    encoder,
    encoder_in_slices,
    read_uvarint,
    write_uvarint,
)
from barnabas.protocol.declare import message_of

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview
Chunk = Buffer | Sized
"""A part of an encoded message: bytes, or record bytes in their original buffer (a `FileRegion`)."""
RecordsSpan = tuple[int, int, int]
"""Three positions in a frame: of the length of record bytes, of their first byte, and of the byte after their end."""


def encode(message: Any, version: int, prefix: bytes | bytearray = b"") -> list[Chunk]:
    """Encode `message` in `version` after `prefix`, and return the chunks.

    Record bytes are not copied: each is a chunk of its own.

    :raises UnsupportedVersionError: this version lacks the message, or a field whose value is not its default.
    :raises MalformedMessageError: a value does not fit its field.
    """
    cls: type = type(message)
    out = bytearray(prefix)
    splices: list[tuple[int, Chunk]] = []
    encode_one = _encoder_of(cls, version)
    try:
        encode_one(message, out, splices)
    except struct.error as error:
        raise encoding_error(cls, version, error) from None
    return _spliced(out, splices) if splices else [out]


def encode_in_slices(message: Any, version: int, prefix: bytes | bytearray, bytes_max: int) -> Slices:
    """Encode a message like `encode`, in a generator that yields periodically and returns the chunks.

    :param bytes_max: the maximum size of the message in bytes, without record bytes.
    :raises UnsupportedVersionError: this version lacks the message, or a field whose value is not its default.
    :raises MalformedMessageError: a value does not fit its field, or the message is too large.
    """
    cls: type = type(message)
    out = bytearray(prefix)
    splices: list[tuple[int, Chunk]] = []
    try:
        for _ in encoder_in_slices(cls, version, _check_version(cls, version))(message, out, splices):
            if len(out) > bytes_max:
                raise MalformedMessageError(f"a {cls.__name__} exceeds {bytes_max} bytes")
            yield
    except struct.error as error:
        raise encoding_error(cls, version, error) from None
    yield
    return _spliced(out, splices) if splices else [out]


def _spliced(out: bytearray, splices: Iterable[tuple[int, Chunk]]) -> list[Chunk]:
    chunks: list[Chunk] = []
    done = 0
    for position, records in splices:
        if not len(records):
            continue  # skip empty records: most partitions of a large fetch response have none
        chunks += [out[done:position], records]
        done = position
    if done < len(out):
        chunks.append(out[done:])
    return chunks


def encoding_error(cls: type, version: int, error: struct.error) -> MalformedMessageError:
    return MalformedMessageError(f"a value of {cls.__name__} version {version} does not fit: {error}")


def encode_bytes(message: object, version: int) -> bytes:
    """Encode `message` in `version` as one bytes object; record bytes must be in memory.

    :raises UnsupportedVersionError: this version lacks the message, or a field whose value is not its default.
    :raises MalformedMessageError: a value does not fit its field.
    """
    return b"".join(cast(list[Buffer], encode(message, version)))


def decode(
    cls: type[T],
    buffer: Buffer,
    version: int,
    position: int = 0,
    *,
    to_the_end: bool = True,
    spans: list[RecordsSpan] | None = None,
) -> T:
    """Decode the message of class `cls` that fills `buffer` from `position` to the end.

    :param to_the_end: False to allow more bytes after the message.
    :param spans: receives the positions of record bytes that are not null.
    :raises UnsupportedVersionError: the class has no such version.
    :raises MalformedMessageError: the bytes are not such a message, or more bytes follow it.
    """
    declared: type = cls
    decode_one = _decoder_of(declared, version)
    end = len(buffer)
    try:
        message, position = decode_one(buffer, position, end, [] if spans is None else spans)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise _misread(cls, version, error) from None
    if to_the_end and position != end:
        raise MalformedMessageError(f"{end - position} bytes left over after a {cls.__name__} v{version}")
    return cast(T, message)


def decode_in_slices(
    cls: type, buffer: Buffer, version: int, position: int, spans: list[RecordsSpan], budget: EntryBudget
) -> Slices:
    """Decode a message like `decode`, in a generator that yields periodically and returns the message.

    Other bytes may follow the message.

    :param budget: limits the number of array entries before any entry is created.
    :raises UnsupportedVersionError: the class has no such version.
    :raises MalformedMessageError: the bytes are not such a message, or it has too many entries.
    """
    decode_one = decoder_in_slices(cls, version, _check_version(cls, version))
    try:
        message, _ = yield from decode_one(buffer, position, len(buffer), spans, budget)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise _misread(cls, version, error) from None
    return message


def _misread(cls: type, version: int, error: Exception) -> MalformedMessageError:
    return MalformedMessageError(f"not a {cls.__name__} of version {version}: {error}")


@functools.cache
def _encoder_of(cls: type, version: int) -> Encoder:
    return encoder(cls, version, _check_version(cls, version))


@functools.cache
def _decoder_of(cls: type, version: int) -> Decoder:
    return decoder(cls, version, _check_version(cls, version))


def _check_version(cls: type, version: int) -> bool:
    """Return whether `version` is flexible."""
    spec = message_of(cls)
    if version not in spec.versions:
        known = f"{spec.versions.start} to {spec.versions.stop - 1}"
        raise UnsupportedVersionError(f"{cls.__name__} has the versions {known}, not {version}")
    return spec.flexible(version)


SIZE_BYTES = 4
CORRELATION_ID_POSITION = 8
"""The position of the correlation id in a request frame that includes its size."""
API_VERSIONS_KEY = 18

HEADS_MAX = 256
"""The maximum number of cached request headers. A client sends only a few kinds of requests."""

_SIZE = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")
_REQUEST_CORRELATION_ID = struct.Struct(">4xi")


class RequestHeader(NamedTuple):
    """The header of a request frame. The message begins at `body_position` if the request is not flexible."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """Decode the fields that all header versions share, up to the client id.

    `body_position` is correct for header version 1; for a flexible request, call `skip_tags` from there.

    :raises MalformedMessageError: the frame is shorter than a header.
    """
    try:
        api_key, api_version, correlation_id, size = _REQUEST_HEADER.unpack_from(frame)
        position = _REQUEST_HEADER.size
        if size < 0:
            return RequestHeader(api_key, api_version, correlation_id, None, position)
        if size > len(frame) - position:
            raise MalformedMessageError(f"a client id of {size} bytes in a frame of {len(frame)}")
        client_id = str(frame[position : position + size], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"not a request header: {error}") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, position + size)


def read_request_correlation_id(frame: Buffer) -> int:
    """Return the correlation id of a request frame."""
    correlation_id: int = _REQUEST_CORRELATION_ID.unpack_from(frame)[0]
    return correlation_id


def skip_tags(frame: Buffer, position: int) -> int:
    """Return the position after the tagged fields that begin at `position`. The tagged fields of a header are ignored.

    :raises MalformedMessageError: the tagged fields exceed the frame.
    """
    try:
        if not frame[position]:
            return position + 1
        count, position = read_uvarint(frame, position)
        if count > TAGS_MAX:
            raise MalformedMessageError(f"{count} tagged fields in a header (at most {TAGS_MAX} are allowed)")
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            if size > len(frame) - position:
                raise MalformedMessageError(f"a tagged field of {size} bytes in a frame of {len(frame)}")
            position += size
    except IndexError:
        raise MalformedMessageError("the frame ends within the tagged fields of its header") from None
    return position


def decode_request(cls: type[T], header: RequestHeader, frame: Buffer, spans: list[RecordsSpan] | None = None) -> T:
    """Decode the message after a request header.

    Additional bytes after the message are ignored, as in Kafka: the Metadata requests of librdkafka 2.16 end with three
    additional bytes.

    :param spans: receives the positions of record bytes.
    :raises UnsupportedVersionError: `cls` has no such version.
    :raises MalformedMessageError: the bytes are not such a message.
    """
    position = _body_position(cls, header, frame)
    return decode(cls, frame, header.api_version, position, to_the_end=False, spans=spans)


def decode_request_in_slices(
    cls: type, header: RequestHeader, frame: Buffer, spans: list[RecordsSpan], budget: EntryBudget
) -> Slices:
    """Decode a request like `decode_request`, in a generator that yields periodically and returns the message."""
    position = _body_position(cls, header, frame)
    return (yield from decode_in_slices(cls, frame, header.api_version, position, spans, budget))


def _body_position(cls: type, header: RequestHeader, frame: Buffer) -> int:
    position = header.body_position
    if not _is_flexible(cls, header.api_version):
        return position
    # Fast path: a header usually has no tagged fields.
    return position + 1 if frame[position : position + 1] == b"\0" else skip_tags(frame, position)


@functools.cache
def _is_flexible(cls: type, version: int) -> bool:
    return message_of(cls).flexible(version)


class EncodedRequest:
    """A request whose message is already encoded, in the version of the connection.

    :ivar cls: the class of the message.
    :ivar fetch_bytes: the maximum bytes of records in the response.
    :ivar read: decodes a response frame, or returns None if the general codec must decode it.
    """

    __slots__ = ("body", "cls", "fetch_bytes", "read")

    def __init__(self, cls: type, body: bytes, read: Callable[[Buffer], object | None], fetch_bytes: int = 0) -> None:
        self.fetch_bytes = fetch_bytes
        self.cls = cls
        self.body = body
        self.read = read


def request_frame(message: object, version: int, correlation_id: int, client_id: str | None) -> list[Chunk]:
    """Encode a request with its header and size.

    :raises UnsupportedVersionError: this version lacks the message, or a field whose value is not its default.
    """
    cls: type = type(message)
    if isinstance(message, EncodedRequest):
        frame = bytearray(_request_head(message.cls, version, client_id) + message.body)
        _SIZE.pack_into(frame, 0, len(frame) - SIZE_BYTES)
        _CORRELATION_ID.pack_into(frame, CORRELATION_ID_POSITION, correlation_id)
        return [frame]
    chunks = encode(message, version, prefix=_request_head(cls, version, client_id))
    _CORRELATION_ID.pack_into(cast(bytearray, chunks[0]), CORRELATION_ID_POSITION, correlation_id)
    return _sized(chunks)


@functools.lru_cache(maxsize=HEADS_MAX)
def _request_head(cls: type, version: int, client_id: str | None) -> bytes:
    """Return the encoded size and header of a request, with zeros in place of the size and the correlation id."""
    spec = message_of(cls)
    if spec.api_key is None:
        raise TypeError(f"{cls.__name__} is not a request")
    name = b"" if client_id is None else client_id.encode()
    header = _REQUEST_HEADER.pack(spec.api_key, version, 0, -1 if client_id is None else len(name))
    return bytes(SIZE_BYTES) + header + name + (b"\0" if spec.flexible(version) else b"")


def response_frame(message: object, version: int, correlation_id: int) -> list[Chunk]:
    """Encode a response with its header and size.

    :raises UnsupportedVersionError: this version lacks the message, or a field whose value is not its default.
    """
    return _sized(encode(message, version, prefix=_response_prefix(message, version, correlation_id)))


def response_frame_in_slices(message: object, version: int, correlation_id: int, bytes_max: int) -> Slices:
    """Encode a response like `response_frame`, in a generator that yields periodically and returns the chunks."""
    prefix = _response_prefix(message, version, correlation_id)
    return _sized((yield from encode_in_slices(message, version, prefix, bytes_max)))


def _response_prefix(message: object, version: int, correlation_id: int) -> bytes:
    cls: type = type(message)
    tags = b"\0" if _response_has_tags(cls, version) else b""
    return b"\0\0\0\0" + _CORRELATION_ID.pack(correlation_id) + tags


def read_correlation_id(frame: Buffer) -> int:
    """Return the correlation id of a response frame.

    :raises MalformedMessageError: the frame is too short.
    """
    try:
        correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
    except struct.error as error:
        raise MalformedMessageError(f"not a response header: {error}") from None
    return correlation_id


def decode_response(cls: type[T], version: int, frame: Buffer) -> T:
    """Decode the message after a response header."""
    position = _CORRELATION_ID.size
    declared: type = cls
    if _response_has_tags(declared, version):
        # Fast path: a header usually has no tagged fields.
        position = position + 1 if frame[position : position + 1] == b"\0" else skip_tags(frame, position)
    return decode(cls, frame, version, position)


@functools.cache
def _response_has_tags(cls: type, version: int) -> bool:
    return message_of(cls).api_key != API_VERSIONS_KEY and _is_flexible(cls, version)


def _sized(chunks: list[Chunk]) -> list[Chunk]:
    first = chunks[0]
    assert isinstance(first, bytearray)
    _SIZE.pack_into(first, 0, sum(map(len, chunks)) - SIZE_BYTES)
    return chunks


_CORRELATION_ID_BYTES = 4

_CODES = {4: "i", 8: "q"}
_INT32 = struct.Struct(">i")


def template_encoder(message_with: Callable[..., object], count: int, version: int) -> Callable[..., bytes]:
    """Return a function of `count` numbers that encodes the result of `message_with(*numbers)`.

    :param message_with: a function of `count` numbers. It returns a message with each number in its own INT32 or INT64
        field, in the order of encoding.
    """
    codes, pieces = _pattern(lambda *numbers: encode_bytes(message_with(*numbers), version), count)
    return _packer(type(message_with(*[0] * count)), version, codes, pieces)


def _packer(cls: type, version: int, codes: str, pieces: list[bytes | int]) -> Callable[..., bytes]:
    pack = struct.Struct(codes).pack

    def packed(*numbers: int) -> bytes:
        fields: list[bytes | int] = [*pieces]
        fields[1::2] = numbers
        try:
            return pack(*fields)
        except struct.error as error:
            raise encoding_error(cls, version, error) from None

    return packed


def template_encoder_with_records(
    message_with: Callable[..., object], count: int, version: int
) -> Callable[..., bytes]:
    """Return a function of record bytes and `count` numbers that encodes the result of `message_with(records,
    *numbers)`.

    :param message_with: a function of record bytes and `count` numbers; see `template_encoder`. The fields of the
        numbers precede the record bytes.
    """
    cls: type = type(message_with(b"", *[0] * count))
    flexible = _is_flexible(cls, version)

    def head(*numbers: int) -> bytes:
        return bytes(cast(Buffer, encode(message_with(b".", *numbers), version)[0]))[: -_length_bytes(flexible)]

    pack_head = _packer(cls, version, *_pattern(head, count))
    tail = _joined(encode(message_with(b".", *[0] * count), version)[2:])

    def packed(records: Buffer, *numbers: int) -> bytes:
        return b"".join((pack_head(*numbers), _length(len(records), flexible), records, tail))

    return packed


def _length_bytes(flexible: bool) -> int:
    """Return the number of bytes that the encoded length of record bytes takes if there is one record byte."""
    return 1 if flexible else _INT32.size


def _length(size: int, flexible: bool) -> bytes:
    """Return the encoded length of record bytes, which precedes them."""
    if not flexible:
        return _INT32.pack(size)
    number = size + 1
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:  # fast path for the length of a typical batch
        return bytes((number & 0x7F | 0x80, number >> 7))
    length = bytearray()
    write_uvarint(length, number)
    return bytes(length)


def _records_range(frame: Buffer, position: int, flexible: bool) -> tuple[int, int]:
    """Return the start and end positions of record bytes.

    :param position: the position of the encoded length.
    :raises MalformedMessageError, IndexError, struct.error: the frame ends before the length.
    """
    if not flexible:
        start = position + _INT32.size
        return start, start + _INT32.unpack_from(frame, position)[0]
    number = frame[position]
    if number < 0x80:
        return position + 1, position + number
    high = frame[position + 1]
    if high < 0x80:  # fast path for the length of a typical batch
        start = position + 2
        return start, start + (number & 0x7F | high << 7) - 1
    number, start = read_uvarint(frame, position)
    return start, start + number - 1


def _joined(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(cast(Sequence[Buffer], chunks))


class ResponseTemplate:
    """Decodes response frames that differ only in some numbers, and have no record bytes.

    :param answer_with: a function of `count` numbers. It returns a response with each number in its own INT32 or INT64
        field, in the order of encoding.
    """

    __slots__ = ("_fixed", "_size", "_unpack")

    def __init__(self, answer_with: Callable[..., object], count: int, version: int) -> None:
        def encoded(*numbers: int) -> bytes:
            return _joined(response_frame(answer_with(*numbers), version, 0))[SIZE_BYTES + _CORRELATION_ID_BYTES :]

        codes, pieces = _pattern(encoded, count)
        self._unpack = struct.Struct(codes).unpack_from
        self._fixed = tuple(pieces[::2])
        self._size = _CORRELATION_ID_BYTES + struct.calcsize(codes)

    def read(self, frame: Buffer) -> Sequence[int] | None:
        """Return the numbers in a response frame, or None if any other byte differs."""
        if len(frame) != self._size:
            return None
        fields = self._unpack(frame, _CORRELATION_ID_BYTES)
        return fields[1::2] if fields[::2] == self._fixed else None


class ResponseTemplateWithRecords:
    """Decodes response frames that differ only in some numbers and in the record bytes of one partition.

    :param answer_with: a function of record bytes and `count` numbers. It returns a response with each number in its
        own INT32 or INT64 field before the record bytes, in the order of encoding.
    """

    __slots__ = ("_fixed", "_flexible", "_length_at", "_tail", "_unpack")

    def __init__(self, answer_with: Callable[..., object], count: int, version: int) -> None:
        zeros = [0] * count
        cls: type = type(answer_with(b"", *zeros))
        self._flexible = _is_flexible(cls, version)
        length_bytes = _length_bytes(self._flexible)

        def split(*numbers: int) -> list[Chunk]:
            return response_frame(answer_with(b".", *numbers), version, 0)

        def head(*numbers: int) -> bytes:
            return bytes(cast(Buffer, split(*numbers)[0]))[SIZE_BYTES + _CORRELATION_ID_BYTES : -length_bytes]

        codes, pieces = _pattern(head, count)
        self._unpack = struct.Struct(codes).unpack_from
        self._fixed = tuple(pieces[::2])
        self._length_at = _CORRELATION_ID_BYTES + struct.calcsize(codes)
        self._tail = _joined(split(*zeros)[2:])

    def read(self, frame: Buffer) -> tuple[Sequence[int], memoryview] | None:
        """Return the numbers and the record bytes in a response frame, or None if any other byte differs."""
        try:
            fields = self._unpack(frame, _CORRELATION_ID_BYTES)
            if fields[::2] != self._fixed:
                return None
            start, end = _records_range(frame, self._length_at, self._flexible)
        except (IndexError, struct.error, MalformedMessageError):  # the frame is too short
            return None
        if not start <= end == len(frame) - len(self._tail) or frame[end:] != self._tail:
            return None
        return fields[1::2], memoryview(frame)[start:end]


def _pattern(encoded: Callable[..., bytes], count: int) -> tuple[str, list[bytes | int]]:
    """Return a `struct` format in which fixed bytes and numbers alternate, and the values for it, with zeros as the
    numbers.
    """
    zeros = encoded(*[0] * count)
    codes, at = ">", 0
    pieces: list[bytes | int] = []
    for number in range(count):
        other = encoded(*[-1 if each == number else 0 for each in range(count)])
        places = [place for place, (one, two) in enumerate(zip(zeros, other, strict=True)) if one != two]
        begin, size = places[0], len(places)
        assert at <= begin, "the fields are encoded in another order"
        assert places == list(range(begin, begin + size)), "a number is in more than one field"
        codes, pieces = f"{codes}{begin - at}s{_CODES[size]}", [*pieces, zeros[at:begin], 0]
        at = begin + size
    return f"{codes}{len(zeros) - at}s", [*pieces, zeros[at:]]


SHAPES_MAX = 8
"""The maximum number of different positions of record bytes that are cached."""

PATTERNS_MAX = 64
"""The maximum number of cached request patterns. Above it, all patterns are discarded."""

PATTERN_BYTES_MAX = 1024
"""The maximum size of a cached request pattern, without record bytes. Patterns stay in memory until the connection
closes.
"""

PATTERNS_BYTES_MAX = 16 * 1024
"""The maximum total size of the cached request patterns of one connection. It is small, because a broker may have ten
thousand connections.
"""
_INT64_BYTES = 8
_KIND_BYTES = 4

_Before: TypeAlias = "tuple[bytes, bytes]"
_UnpackBefore: TypeAlias = "Callable[[bytearray | memoryview], tuple[bytes, int, bytes]]"


class RequestTemplates:
    """Identifies produce requests that differ from an earlier request only in the record bytes.

    :param version: the version of all requests.
    :param flexible: True if this version is flexible.
    """

    __slots__ = ("_bytes", "_count", "_flexible", "_shapes", "version")

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self._flexible = flexible
        self._count = self._bytes = 0
        # Maps each position of the length of record bytes to a function that unpacks the bytes before it, and to the
        # cached requests by these bytes. Each request is stored with the bytes after its records.
        self._shapes: dict[int, tuple[_UnpackBefore, dict[_Before, tuple[Any, bytes]]]] = {}

    def learn(self, frame: bytearray | memoryview, span: RecordsSpan, request: object) -> None:
        """Cache a decoded request that contains record bytes at a single position."""
        length_start, _, end = span
        size = length_start + len(frame) - end
        if size > PATTERN_BYTES_MAX:
            return
        is_full = self._count == PATTERNS_MAX or self._bytes + size > PATTERNS_BYTES_MAX
        if is_full or (length_start not in self._shapes and len(self._shapes) == SHAPES_MAX):
            self._shapes.clear()
            self._count = self._bytes = 0
        if length_start not in self._shapes:
            head_bytes = length_start - _KIND_BYTES - _CORRELATION_ID_BYTES
            self._shapes[length_start] = struct.Struct(f">{_KIND_BYTES}si{head_bytes}s").unpack_from, {}
        unpack_before, known = self._shapes[length_start]
        kind, _, head = unpack_before(frame)
        if (kind, head) not in known:
            self._count += 1
            self._bytes += size
        known[kind, head] = request, bytes(frame[end:])

    def recognise(self, frame: bytearray | memoryview) -> tuple[Any, memoryview, int] | None:
        """Return the cached request that the frame repeats, its record bytes, and its correlation id.

        :returns: None if there is no such request, so that the frame must be decoded.
        """
        size = len(frame)
        try:
            for length_start, (unpack_before, known) in self._shapes.items():
                if size < length_start:
                    continue
                kind, correlation_id, head = unpack_before(frame)
                found = known.get((kind, head))
                if found is not None:
                    request, tail = found
                    start, end = _records_range(frame, length_start, self._flexible)
                    if not start <= end == size - len(tail) or (tail and bytes(frame[end:]) != tail):
                        return None
                    return request, memoryview(frame)[start:end], correlation_id
        except (IndexError, struct.error, MalformedMessageError):
            pass  # the frame is malformed
        return None


class IntegerRequestTemplate:
    """Identifies requests that differ only in the correlation id and in some INT64 fields.

    :param request_with: a function that returns the request with its argument in all of these fields.
    """

    __slots__ = ("_fixed", "_size", "_unpack")

    def __init__(self, request_with: Callable[[int], object], version: int, client_id: str | None) -> None:
        zeros, ones = (_joined(request_frame(request_with(number), version, 0, client_id)) for number in (0, -1))
        fields, at = "", _INT32.size + _KIND_BYTES + _CORRELATION_ID_BYTES
        for position in int64_positions(zeros, ones):
            fields, at = f"{fields}{position - at}sq", position + _INT64_BYTES
        self._size = len(zeros) - _INT32.size
        self._unpack = struct.Struct(f">{_KIND_BYTES}si{fields}{len(zeros) - at}s").unpack
        kind, _, *others = self._unpack(zeros[_INT32.size :])
        self._fixed = kind, tuple(others[::2])

    def recognise(self, frame: bytearray | memoryview) -> tuple[int, tuple[int, ...]] | None:
        """Return the correlation id and the numbers in a request frame, or None if any other byte differs."""
        if len(frame) != self._size:
            return None
        fields = self._unpack(frame)
        if (fields[0], fields[2::2]) != self._fixed:
            return None
        return fields[1], fields[3::2]


def constant_response_encoder(response: object, version: int) -> Callable[[int], bytes]:
    """Return a function that returns the frame of a constant response for a correlation id."""
    frame = _joined(response_frame(response, version, 0))
    size, rest = frame[: _INT32.size], frame[_INT32.size + _CORRELATION_ID_BYTES :]
    pack = struct.Struct(f">{len(size)}si{len(rest)}s").pack
    return lambda correlation_id: pack(size, correlation_id, rest)


def response_template_encoder(answer_with: Callable[[int], object], version: int) -> Callable[..., bytes]:
    """Return a function that encodes response frames that differ only in the correlation id and adjacent INT64 fields.

    :param answer_with: a function that returns a response with its argument in all of these fields.
    :returns: a function of the correlation id and the values of the fields. Trailing values for fields that `version`
        lacks are ignored.
    """
    zeros, ones = (_joined(response_frame(answer_with(number), version, 0)) for number in (0, -1))
    positions = int64_positions(zeros, ones)
    fields, begin, end = len(positions), positions[0], positions[-1] + _INT64_BYTES
    assert end - begin == fields * _INT64_BYTES, "the fields are not adjacent"
    behind_id = _INT32.size + _CORRELATION_ID_BYTES
    size, before, after = zeros[: _INT32.size], zeros[behind_id:begin], zeros[end:]
    pack = struct.Struct(f">{len(size)}si{len(before)}s{fields}q{len(after)}s").pack

    def frame(correlation_id: int, *values: int) -> bytes:
        return pack(size, correlation_id, before, *values[:fields], after)

    return frame


def int64_positions(zeros: bytes | bytearray, ones: bytes | bytearray) -> list[int]:
    """Return the positions of the INT64 fields that are 0 in one message and -1 in the other.

    :param zeros: the message with 0 in these fields.
    :param ones: the message with -1 in these fields.
    """
    differing = [position for position, (zero, one) in enumerate(zip(zeros, ones, strict=True)) if zero != one]
    positions = differing[::_INT64_BYTES]
    whole = [position + number for position in positions for number in range(_INT64_BYTES)]
    assert differing == whole, "the fields are not INT64"
    return positions
