"""Frames: what stands between the bytes of a connection and a message.

A frame is an int32 size and as many bytes: a header and a message. Requests have a header of version 1, or 2 if
the request's version is flexible; responses one of version 0 or 1 (KIP-482). ApiVersions is the exception: its
response always has header version 0, since the client cannot know yet what the broker speaks (KIP-511).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

from barnabas.errors import MalformedMessageError
from barnabas.protocol.codec import (
    Buffer,
    Chunk,
    RecordsSpan,
    decode,
    decode_in_slices,
    encode,
    encode_in_slices,
)
from barnabas.protocol.compiler import TAGS_MAX, EntryBudget, Slices
from barnabas.protocol.declare import message_of
from barnabas.protocol.varint import read_uvarint

T = TypeVar("T")

SIZE_BYTES = 4
CORRELATION_ID_POSITION = 8
"""In a request frame, its size included."""
API_VERSIONS_KEY = 18

HEADS_MAX = 256
"""Heads of requests that are remembered: the kinds of requests that a client sends are few."""

_SIZE = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")
_REQUEST_CORRELATION_ID = struct.Struct(">4xi")


class RequestHeader(NamedTuple):
    """The head of a request frame; the message begins at `body_position` if the header is as expected."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """Read the fields that all header versions share, up to the client id.

    `body_position` is that of header version 1; call `skip_tags` from there for a flexible request.

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
    """Return the correlation id of a frame that has a request header."""
    correlation_id: int = _REQUEST_CORRELATION_ID.unpack_from(frame)[0]
    return correlation_id


def skip_tags(frame: Buffer, position: int) -> int:
    """Return the position after the tagged fields that begin at `position`; headers have none that matter.

    :raises MalformedMessageError: they do not fit in the frame.
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
    """Decode the message behind a request header.

    Bytes behind the message are ignored, as in Kafka: librdkafka 2.16 asks for all topics with three too many.

    :param spans: receives where record bytes are.
    :raises UnsupportedVersionError: `cls` has no such version.
    :raises MalformedMessageError: the bytes are not such a message.
    """
    position = _body_position(cls, header, frame)
    return decode(cls, frame, header.api_version, position, to_the_end=False, spans=spans)


def decode_request_in_slices(
    cls: type, header: RequestHeader, frame: Buffer, spans: list[RecordsSpan], budget: EntryBudget
) -> Slices:
    """Do the same as a generator that yields now and then, and returns the message; see `decode_in_slices`."""
    position = _body_position(cls, header, frame)
    return (yield from decode_in_slices(cls, frame, header.api_version, position, spans, budget))


def _body_position(cls: type, header: RequestHeader, frame: Buffer) -> int:
    if message_of(cls).flexible(header.api_version):
        return skip_tags(frame, header.body_position)
    return header.body_position


class EncodedRequest:
    """A request whose message was encoded already, in the version in which it is sent.

    :ivar cls: of the message.
    :ivar fetch_bytes: how many bytes of records it asks for.
    :ivar read: returns what a frame answers, or None if it has to be decoded like any other answer.
    """

    __slots__ = ("body", "cls", "fetch_bytes", "read")

    def __init__(self, cls: type, body: bytes, read: Callable[[Buffer], object | None], fetch_bytes: int = 0) -> None:
        self.fetch_bytes = fetch_bytes
        self.cls = cls
        self.body = body
        self.read = read


def request_frame(message: object, version: int, correlation_id: int, client_id: str | None) -> list[Chunk]:
    """Encode a request with its header and size.

    :raises UnsupportedVersionError: the message, or a field that is set, is not in this version.
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
    """Return size and header of requests of a class, with zeros for what differs from one to the next."""
    spec = message_of(cls)
    if spec.api_key is None:
        raise TypeError(f"{cls.__name__} is not a request")
    name = b"" if client_id is None else client_id.encode()
    header = _REQUEST_HEADER.pack(spec.api_key, version, 0, -1 if client_id is None else len(name))
    return bytes(SIZE_BYTES) + header + name + (b"\0" if spec.flexible(version) else b"")


def response_frame(message: object, version: int, correlation_id: int) -> list[Chunk]:
    """Encode a response with its header and size.

    :raises UnsupportedVersionError: the message, or a field that is set, is not in this version.
    """
    return _sized(encode(message, version, prefix=_response_prefix(message, version, correlation_id)))


def response_frame_in_slices(message: object, version: int, correlation_id: int, bytes_max: int) -> Slices:
    """Do the same as a generator that yields now and then, and returns the chunks; see `encode_in_slices`."""
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
    """Decode the message behind a response header.

    :raises MalformedMessageError: the bytes are not such a message.
    """
    position = _CORRELATION_ID.size
    declared: type = cls
    if _response_has_tags(declared, version):
        # Nearly always there are none.
        position = position + 1 if frame[position : position + 1] == b"\0" else skip_tags(frame, position)
    return decode(cls, frame, version, position)


@functools.cache
def _response_has_tags(cls: type, version: int) -> bool:
    spec = message_of(cls)
    return spec.api_key != API_VERSIONS_KEY and spec.flexible(version)


def _sized(chunks: list[Chunk]) -> list[Chunk]:
    first = chunks[0]
    assert isinstance(first, bytearray)
    _SIZE.pack_into(first, 0, sum(map(len, chunks)) - SIZE_BYTES)
    return chunks
