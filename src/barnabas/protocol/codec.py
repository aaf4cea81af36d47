"""Messages to bytes and back.

>>> from barnabas.protocol.messages.heartbeat import HeartbeatRequest
>>> data = encode_bytes(HeartbeatRequest(group_id="ctr", generation_id=3, member_id="m"), 0)
>>> data
b'\\x00\\x03ctr\\x00\\x00\\x00\\x03\\x00\\x01m'
>>> decode(HeartbeatRequest, data, 0).generation_id
3
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Sized
from typing import Any, TypeVar, cast

from barnabas.errors import MalformedMessageError, UnsupportedVersionError
from barnabas.protocol.compiler import (
    Decoder,
    Encoder,
    EntryBudget,
    Slices,
    decoder,
    decoder_in_slices,
    encoder,
    encoder_in_slices,
)
from barnabas.protocol.declare import message_of

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview
Chunk = Buffer | Sized
"""A piece of an encoded message: bytes, or record bytes that stay where they are (a `FileRegion`)."""
RecordsSpan = tuple[int, int, int]
"""Where record bytes stand in a frame: the positions of their length, of their first byte, and of what follows."""


def encode(message: Any, version: int, prefix: bytes | bytearray = b"") -> list[Chunk]:
    """Encode `message` in `version`, behind `prefix`.

    Record bytes are not copied: they stand as chunks of their own between the others.

    :raises UnsupportedVersionError: the message, or a field that is set, is not in this version.
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
    """Do the same as a generator that yields now and then, and returns the chunks.

    :param bytes_max: for all but record bytes.
    :raises UnsupportedVersionError: the message, or a field that is set, is not in this version.
    :raises MalformedMessageError: a value does not fit its field, or the whole is too large.
    """
    cls: type = type(message)
    out = bytearray(prefix)
    splices: list[tuple[int, Chunk]] = []
    try:
        for _ in encoder_in_slices(cls, version, _check_version(cls, version))(message, out, splices):
            if len(out) > bytes_max:
                raise MalformedMessageError(f"a {cls.__name__} of more than {bytes_max} bytes")
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
            continue  # a reader of many partitions gets nothing from most of them
        chunks += [out[done:position], records]
        done = position
    if done < len(out):
        chunks.append(out[done:])
    return chunks


def encoding_error(cls: type, version: int, error: struct.error) -> MalformedMessageError:
    """Return what to raise where a value does not fit its field."""
    return MalformedMessageError(f"a value of {cls.__name__} version {version} does not fit: {error}")


def encode_bytes(message: object, version: int) -> bytes:
    """Encode `message` in `version` into one piece; record bytes must be in memory for that.

    :raises UnsupportedVersionError: the message, or a field that is set, is not in this version.
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
    """Decode the message of class `cls` that fills `buffer` from `position` to its end.

    :param to_the_end: False allows other bytes behind the message.
    :param spans: receives where record bytes are, unless they are null.
    :raises UnsupportedVersionError: the class has no such version.
    :raises MalformedMessageError: the bytes are not such a message, or others follow it.
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
    """Do the same as a generator that yields now and then, and returns the message; others may follow it.

    :param budget: counts the entries, before any of them is made.
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
