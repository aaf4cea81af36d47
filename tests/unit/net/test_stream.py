"""Frames come out the same, whatever the pieces in which their bytes go in."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import MalformedMessageError
from barnabas.net.stream import (
    KEPT_BYTES_MAX,
    KEPT_MAX,
    OWN_MEMORY_BYTES_MAX,
    OWN_MEMORY_BYTES_MIN,
    FrameReader,
)


def stream_of(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


FRAMES = [b"first", b"", b"x" * 300, b"last"]


def test_whole_stream_at_once() -> None:
    assert FrameReader(1000).feed(stream_of(FRAMES)) == FRAMES


def test_byte_by_byte() -> None:
    reader = FrameReader(1000)
    fed = [frame for byte in stream_of(FRAMES) for frame in reader.feed(bytes([byte]))]
    assert fed == FRAMES
    assert not reader.partial


def test_trailing_bytes_wait_for_the_rest() -> None:
    reader = FrameReader(1000)
    stream = stream_of(FRAMES)
    assert reader.feed(stream + stream[:7]) == FRAMES
    assert reader.partial
    assert reader.feed(stream[7:]) == FRAMES


@given(st.lists(st.binary(max_size=50), max_size=8), st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_any_cut_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    reader = FrameReader(50)
    stream = stream_of(frames)
    got, position, turn = [], 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        got += reader.feed(memoryview(stream)[position : position + size])
        position, turn = position + size, turn + 1
    assert got == frames
    assert not reader.partial


def test_a_piece_that_is_a_frame_comes_out_as_bytes_of_its_own() -> None:
    reader, piece = FrameReader(1000), bytearray(stream_of([b"first"]))
    for fed in (bytes(piece), memoryview(piece)):
        (frame,) = reader.feed(fed)
        assert type(frame) is bytes
        assert frame == b"first"
        assert not reader.partial
    (frame,) = reader.feed(memoryview(piece))
    piece[4:] = b"other"  # the next bytes are received into the same place
    assert frame == b"first"


def test_a_piece_that_looks_like_a_frame_is_none_where_another_one_is_under_way() -> None:
    inner = stream_of([b"inner"])
    reader = FrameReader(100_000)
    assert reader.feed(stream_of([inner])[:4]) == []
    assert reader.feed(inner) == [inner]
    # Of this one half of the size has come: what follows begins with the size of the rest.
    outer = stream_of([b"\xff\xfe" + bytes(65_534)])
    assert reader.feed(outer[:2]) == []
    assert reader.feed(outer[2:]) == [outer[4:]]
    assert FrameReader(100_000).feed(outer[2:]) == [outer[6:]]


def test_a_piece_that_looks_like_a_frame_goes_to_the_place_of_a_large_one() -> None:
    inner = stream_of([bytes(OWN_MEMORY_BYTES_MIN)])
    reader = FrameReader(len(inner))
    assert reader.feed(stream_of([inner])[:4]) == []
    assert reader.get_buffer() is not None
    assert reader.feed(inner) == [inner]


def test_a_piece_that_is_a_frame_over_the_limit_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="a frame of 5 bytes"):
        FrameReader(4).feed(stream_of([b"large"]))
    assert FrameReader(5).feed(stream_of([b"large"])) == [b"large"]


LARGE = bytes(range(256)) * 1024


@given(
    st.tuples(st.integers(50_000, 150_000), st.booleans()),  # so that no stream comes in pieces of a few bytes alone
    st.lists(st.tuples(st.integers(1, 150_000), st.booleans()), max_size=20),
)
def test_a_large_frame_is_the_same_whether_received_in_its_place_or_not(
    large: tuple[int, bool], others: list[tuple[int, bool]]
) -> None:
    pieces = [*others, large]
    reader = FrameReader(len(LARGE))
    expected = [b"first", LARGE, b"between", LARGE, b"last"]
    stream = memoryview(stream_of(expected))
    got: list[bytes | bytearray] = []
    position, turn = 0, 0
    while position < len(stream):
        size, in_place = pieces[turn % len(pieces)]
        turn += 1
        vacancy = reader.get_buffer() if in_place else None
        if vacancy is None:
            data = stream[position : position + size]
            got += reader.feed(data)
        else:
            data = stream[position : position + min(size, len(vacancy))]
            with vacancy:
                vacancy[: len(data)] = data
            frame = reader.buffer_updated(len(data))
            got += [] if frame is None else [frame]
        position += len(data)
    assert got == expected
    assert not reader.partial
    assert reader.get_buffer() is None


def test_there_is_a_place_for_large_frames_only_and_not_for_huge_ones() -> None:
    for size, has_place in ((1_000, False), (OWN_MEMORY_BYTES_MIN + 2, True), (OWN_MEMORY_BYTES_MAX + 1, False)):
        reader = FrameReader(2**30)
        reader.feed(struct.pack(">i", size) + b"..")
        place = reader.get_buffer()
        assert (place is not None) == has_place
        assert place is None or len(place) == size - 2
        assert reader.held_bytes == 2


def receive_large(reader: FrameReader, size: int, filler: int) -> memoryview:
    """Receive a frame of one byte again and again into its place."""
    reader.feed(struct.pack(">i", size))
    vacancy = reader.get_buffer()
    assert vacancy is not None
    with vacancy:
        vacancy[:] = bytes([filler]) * size
    frame = reader.buffer_updated(size)
    assert frame is not None
    return frame


def test_a_place_is_used_again_when_nobody_looks_at_the_frame_any_longer() -> None:
    reader = FrameReader(2**30)
    first = receive_large(reader, 3_000_000, 1)
    part_of_first = first[10:20]
    second = receive_large(reader, 2_900_000, 2)
    places = [id(first.obj), id(second.obj)]
    assert places[0] != places[1]
    del second
    third = receive_large(reader, 3_100_000, 3)
    assert id(third.obj) == places[1]
    del first, third
    assert id(receive_large(reader, 3_000_000, 4).obj) != places[0], "a part of it is looked at"
    assert bytes(part_of_first) == bytes([1]) * 10
    del part_of_first
    assert id(receive_large(reader, 3_000_000, 5).obj) == places[0]


def test_few_places_are_kept_and_no_very_large_one() -> None:
    reader = FrameReader(2**30)
    frames = [receive_large(reader, 1_000_000, number) for number in range(4)]
    assert len({id(frame.obj) for frame in frames}) == 4
    assert all(set(bytes(frame[:5])) == {number} for number, frame in enumerate(frames))
    frames += [receive_large(reader, KEPT_BYTES_MAX + 1, 4)]
    assert len(reader._places._kept) == KEPT_MAX
    assert sum(map(len, reader._places._kept)) <= KEPT_MAX * KEPT_BYTES_MAX


def test_views_are_of_what_was_fed_and_can_be_written() -> None:
    data = bytearray(stream_of(FRAMES)[:-1])
    reader = FrameReader(1000)
    first, *_ = views = reader.feed_views(data)
    assert views == FRAMES[:-1]
    first[0:2] = b"Th"
    assert data[4:9] == b"Thrst"
    data[-1:] = b"?"
    assert reader.feed_views(b"t") == FRAMES[-1:], "a frame that is not whole is kept apart"


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(MalformedMessageError, match=f"a frame of {size} bytes"):
        FrameReader(100).feed(struct.pack(">i", size))


def test_an_impossible_size_is_refused_byte_by_byte() -> None:
    reader = FrameReader(100)
    for byte in struct.pack(">i", 101)[:3]:
        reader.feed(bytes([byte]))
    with pytest.raises(MalformedMessageError):
        reader.feed(b"\x65")


def test_memory_grows_with_what_came_not_with_what_was_announced() -> None:
    reader = FrameReader(2**31 - 1)
    reader.feed(struct.pack(">i", 2**31 - 1) + b"only this")
    assert len(reader._frame) == len(b"only this")
