"""The decoders of the broker and of our clients with counts and lengths that lie.

Every request goes through the broker's decoders, every response through the clients', in each of their versions; so do
records, compressed or not, what groups store, and ZooKeeper's messages. A count of a sound message is replaced by a
huge one, or the message is damaged at random. A decoder returns or refuses with an error of Barnabas's own, and its
memory grows with the bytes that it was given, never with what they claim. `make fuzz` tries more.
"""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from barnabas.coordination.zookeeper.server.requests import read_connect
from barnabas.errors import BarnabasError
from barnabas.groups.records import decode_change
from barnabas.groups.subscriptions import decode_assignment, subscribed_topics
from barnabas.protocol.apis import declared_apis
from barnabas.protocol.codec import (
    Buffer,
    decode,
    decode_request_in_slices,
    decode_response,
    encode,
    read_request_header,
    request_frame,
)
from barnabas.protocol.codec import response_frame as framed
from barnabas.protocol.compiler import ARRAY_ENTRIES_MAX, TAGS_MAX, EntryBudget, decoder, decoder_in_slices
from barnabas.protocol.declare import message_of
from barnabas.records import Compression, codec_pure
from barnabas.records.codec import load_implementation
from barnabas.records.compression import compress, decompress
from barnabas.records.header import pack_header, read_header, write_crc
from barnabas.records.reader import iter_bodies
from tests.interop.test_raw_frames import batch_of
from tests.support.random_messages import RandomMessages

SEED = int(os.environ.get("FUZZ_SEED", "20261027"))
ROUNDS = max(1, int(os.environ.get("FUZZ_FRAMES", "100000")) // 100_000)

BYTES_PER_BYTE = 600
"""What a byte of a message costs at most: an entry of a few bytes becomes an object with a list of its own."""
BYTES_FREE = 200_000
"""Errors, their traces, and what is remembered for the next time."""

HUGE = [
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", ARRAY_ENTRIES_MAX + 1),
    struct.pack(">h", 2**15 - 1),
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x81\x89\x7a",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
]
"""Counts that no message has the bytes for: fixed, and as unsigned and zigzag varints."""


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    yield
    tracemalloc.stop()


@contextmanager
def bounded(size: int, what: object) -> Iterator[None]:
    """Fail where memory grows beyond what `size` bytes may cost, or an error is none of ours."""
    tracemalloc.start()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        yield
    except BarnabasError:
        pass
    except Exception as error:
        raise AssertionError(f"FUZZ_SEED={SEED}, {what}: {error!r}") from error
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak - before < BYTES_FREE + BYTES_PER_BYTE * size, f"FUZZ_SEED={SEED}, {what}: {peak - before} bytes"


def damaged(chooser: random.Random, data: bytes, first: int = 0) -> bytes:
    """Return `data` with a huge count in place of some bytes behind `first`, or otherwise damaged."""
    position = chooser.randrange(first, len(data)) if len(data) > first else len(data)
    if chooser.random() < 0.8:
        count = chooser.choice(HUGE)
        replaced = chooser.choice([len(count), 1, 1])
        return data[:position] + count + data[position + replaced :]
    if chooser.random() < 0.5:
        return data[:position]
    return data[:position] + chooser.randbytes(chooser.randrange(1, 9)) + data[position:]


def versions(of: str) -> Iterator[tuple[type, int]]:
    """All messages in all their versions; in a usual run in the newest, and in one other that the seed chooses."""
    chooser = random.Random(SEED)
    for api in declared_apis().values():
        cls = api.request if of == "request" else api.response
        chosen_ones = sorted({api.versions[-1], chooser.choice(api.versions)}) if ROUNDS == 1 else api.versions
        yield from ((cls, version) for version in chosen_ones)


def whole(chunks: list[Any]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks if isinstance(chunk, Buffer))[4:]


def exhausted(slices: Any) -> None:
    for _ in slices:
        pass


def test_requests_cost_what_their_bytes_may_cost() -> None:
    messages = RandomMessages(SEED)
    for cls, version in versions("request"):
        decoder_in_slices(cls, version, message_of(cls).flexible(version))  # compiled once, whatever comes
        for _ in range(20 * ROUNDS):
            frame = whole(request_frame(messages.struct(cls, version), version, 1, "fuzz"))
            frame = damaged(messages.random, frame, first=14)
            with bounded(len(frame), f"{cls.__name__} {version} {frame.hex()}"):
                header = read_request_header(frame)
                exhausted(decode_request_in_slices(cls, header, frame, [], EntryBudget(50_000)))


def test_responses_cost_what_their_bytes_may_cost() -> None:
    messages = RandomMessages(SEED)
    for cls, version in versions("response"):
        decoder(cls, version, message_of(cls).flexible(version))
        for _ in range(20 * ROUNDS):
            frame = whole(framed(messages.struct(cls, version), version, 1))
            frame = damaged(messages.random, frame, first=4)
            with bounded(len(frame), f"{cls.__name__} {version} {frame.hex()}"):
                decode_response(cls, version, frame)


def test_every_count_of_every_message_is_checked_before_memory_is_taken() -> None:
    """A huge count at every position of a message, with nothing behind it."""
    messages = RandomMessages(SEED)
    for of in ("request", "response"):
        for cls, version in versions(of):
            decoder(cls, version, message_of(cls).flexible(version))
            chunks = encode(messages.struct(cls, version), version)
            data = b"".join(bytes(chunk) for chunk in chunks if isinstance(chunk, Buffer))[:200]
            for position in range(0, len(data), 1 if ROUNDS > 1 else 4):
                for count in HUGE[: 5 if ROUNDS > 1 else 2]:
                    lying = data[:position] + count
                    with bounded(len(lying), f"{cls.__name__} {version} {lying.hex()}"):
                        decode(cls, lying, version)


@pytest.mark.parametrize("kind", Compression)
@pytest.mark.parametrize("codec", ["pure", "compiled"])
def test_batches_cost_what_their_bytes_may_cost(kind: Compression, codec: str) -> None:
    twin: ModuleType = codec_pure if codec == "pure" else load_implementation("codec")
    chooser = random.Random(f"{SEED} {kind}")
    sound = batch_of(*[b"value" * 3] * 5)
    body = sound[61:]
    for _ in range(60 * ROUNDS):
        content = compress(kind, damaged(chooser, body) if chooser.random() < 0.5 else body)
        if kind and chooser.random() < 0.5:
            content = damaged(chooser, content)
        count = chooser.choice([5, 5, 6, 2**31 - 1, 1_000_000, -1])
        header = read_header(sound)._replace(
            attributes=int(kind),
            batch_length=49 + len(content),
            record_count=count,
            last_offset_delta=chooser.choice([4, count - 1, 2**31 - 1]),
        )
        batch = bytearray(61) + content
        pack_header(batch, header)
        write_crc(batch, 0, len(batch))
        with bounded(len(batch) + len(body), f"{kind.name} {batch.hex()}"):
            for found, bytes_ in iter_bodies(batch):
                twin.decode_records(bytes_, found, "t", 0)
                twin.ColumnDecoder().decode(bytes_, found)


@pytest.mark.parametrize("kind", [kind for kind in Compression if kind])
def test_compressed_data_costs_what_it_holds(kind: Compression) -> None:
    chooser = random.Random(f"{SEED} {kind}")
    sound = compress(kind, bytes(range(256)) * 4)
    for _ in range(200 * ROUNDS):
        data = damaged(chooser, sound)
        with bounded(len(sound) + 1_024, f"{kind.name} {data.hex()}"):
            decompress(kind, data, 10_000)


STORED: dict[str, Callable[[bytes], object]] = {
    "assignment": decode_assignment,
    "subscription": lambda data: subscribed_topics([[data]]),
    "key of __consumer_offsets": lambda data: decode_change(data, None),
    "value of __consumer_offsets": lambda data: decode_change(b"\0\2\0\1g", data),
    "ZooKeeper's first request": read_connect,
}


@pytest.mark.parametrize("what", STORED)
def test_what_others_store_or_send_costs_what_its_bytes_may_cost(what: str) -> None:
    chooser = random.Random(SEED)
    read = STORED[what]
    sound = b"\0\1" + bytes(20) + b"\0\5topic" + struct.pack(">i", 1) + bytes(12)
    for _ in range(200 * ROUNDS):
        data = damaged(chooser, damaged(chooser, sound), first=0)
        with bounded(len(data), f"{what} {data.hex()}"):
            read(data)


def test_a_decoder_that_believes_a_count_is_found() -> None:
    with pytest.raises(AssertionError, match="planted"), bounded(4, "planted"):
        bytearray(1_000_000)


def test_the_limits_of_counts_are_those_of_kafka() -> None:
    assert (ARRAY_ENTRIES_MAX, TAGS_MAX) == (1_000_000, 10_000)
