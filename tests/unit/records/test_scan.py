"""What both scans over batch headers do, run on each: the compiled one is skipped, visibly, where it was not built."""

from __future__ import annotations

import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
from crc32c import crc32c

from barnabas.records import scan_pure
from barnabas.records.compression import Compression, compress
from barnabas.records.header import read_header
from barnabas.records.scan import max_record_count

SMALLEST_RECORD = bytes((12, 0, 0, 0, 1, 1, 0))


@pytest.fixture(params=["pure", "compiled"])
def scan(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "pure":
        return scan_pure
    return pytest.importorskip("barnabas.records.scan_compiled", reason="the compiled scan was not built")


def batch(
    base_offset: int,
    count: int = 1,
    *,
    epoch: int = 0,
    timestamp_ms: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    body_bytes: int = 39,
    attributes: int = 0,
) -> bytes:
    """A batch of 100 bytes, unless the body is given another size. `producer`: its id, epoch and first sequence."""
    tail = struct.pack(">hiqqqhii", attributes, count - 1, 0, timestamp_ms, *producer, count) + bytes(body_bytes)
    return struct.pack(">qiibI", base_offset, len(tail) + 9, epoch, 2, crc32c(tail)) + tail


def scanned(scan: ModuleType, data: bytes, base_offset: int = 0, **named: Any) -> Any:
    """A scan that was fed with all of the data at once."""
    result = scan.SegmentScan(base_offset, **{"check_crc": True, "end": len(data), **named})
    result.feed(data, 0)
    return result


def test_batches_are_taken_in_as_far_as_the_chunk_holds_them_whole(scan: ModuleType) -> None:
    data = b"".join(batch(7 + i, timestamp_ms=50 - i) for i in range(3))
    result = scan.SegmentScan(7, check_crc=True)
    assert (result.feed(data[:250], 0), result.wanted_bytes, result.next_offset) == (200, 100 - 39, 9)
    assert result.feed(data[200:], 200) == result.size == 300
    assert (result.batch_count, result.next_offset, result.first_last_offset, result.damage) == (3, 10, 7, None)
    assert (result.max_timestamp_ms, result.max_timestamp_offset, result.first_timestamp_ms) == (50, 7, 50)


def test_a_batch_larger_than_the_chunk_tells_its_size(scan: ModuleType) -> None:
    data = batch(0, body_bytes=5_000)
    result = scan.SegmentScan(0, check_crc=True)
    assert (result.feed(data[:1_000], 0), result.wanted_bytes) == (0, 5_061)
    assert (result.feed(b"", 0), result.wanted_bytes) == (0, 5_061)
    assert (result.feed(data, 0), result.wanted_bytes) == (5_061, 61)


def test_without_crc_a_header_is_enough(scan: ModuleType) -> None:
    data = batch(0, 4, body_bytes=5_000) + batch(4, timestamp_ms=9)
    result = scan.SegmentScan(0, check_crc=False, end=len(data))
    assert result.feed(data[:61], 0) == 5_061
    assert result.feed(data[5_061:5_122], 5_061) == len(data)
    assert (result.next_offset, result.max_timestamp_ms, result.max_timestamp_offset) == (5, 9, 4)


def test_a_chunk_from_elsewhere_is_refused(scan: ModuleType) -> None:
    result = scanned(scan, batch(0))
    with pytest.raises(ValueError, match="the chunk begins at position 0, but the scan continues at 100"):
        result.feed(batch(1), 0)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        pytest.param(batch(2), "batch with offset 2 instead of 1", id="gap"),
        pytest.param(batch(1, epoch=3), "leader epoch 3 at offset 1 comes after 4", id="epoch"),
        pytest.param(batch(1, attributes=5), "batch at position 100: compression 5 does not exist", id="compression"),
        pytest.param(batch(1)[:-1], "batch at position 100 goes on beyond 199", id="cut"),
        pytest.param(bytes(100), "batch at position 100: magic 0, should be 2", id="zeros"),
        pytest.param(bytes(60), "batch at position 100: only 60 of the header's 61 bytes", id="tail"),
    ],
)
def test_damage_ends_the_scan_for_good(scan: ModuleType, second: bytes, words: str) -> None:
    result = scanned(scan, batch(0, epoch=4) + second)
    assert result.damage.startswith(words)
    assert (result.size, result.batch_count) == (100, 1)
    assert result.feed(batch(1, epoch=4), 100) == 100


def test_gaps_are_taken_up_to_an_offset(scan: ModuleType) -> None:
    """As compaction leaves them: before the first batch, and between batches."""
    data = batch(3) + batch(4) + batch(9, 2) + batch(11) + batch(30)
    result = scanned(scan, data, gaps_up_to=29)
    assert (result.size, result.next_offset, result.damage) == (400, 12, "batch with offset 30 instead of 12")
    assert scanned(scan, data, gaps_up_to=30).damage is None
    back = scanned(scan, batch(9) + batch(8), gaps_up_to=2**63 - 1)
    assert back.damage == "batch with offset 8 instead of 10"


def test_no_offset_goes_beyond_what_an_index_can_say(scan: ModuleType) -> None:
    result = scanned(scan, batch(7) + batch(8, 2**31 - 1) + batch(7 + 2**31), base_offset=7)
    assert result.damage == "batch at position 200: last offset 2147483655 is more than 2147483647 above 7"
    assert result.next_offset == 7 + 2**31


def test_a_flipped_bit_in_a_body_is_damage_where_crcs_are_checked(scan: ModuleType) -> None:
    data = bytearray(batch(0) + batch(1))
    data[150 + 30] ^= 4
    assert scanned(scan, bytes(data), check_crc=False).size == 200
    result = scanned(scan, bytes(data))
    assert result.size == 100
    assert result.damage.startswith("batch at position 100: CRC 0x")


def test_no_batch_goes_beyond_what_positions_can_say(scan: ModuleType) -> None:
    position = 2**31 - 150
    result = scan.SegmentScan(0, check_crc=True, position=position)
    data = batch(0) + batch(1)
    assert result.feed(data, position) == position + 100
    assert result.damage.startswith(f"batch at position {position + 100} goes on beyond 2147483647")


def test_a_scan_from_the_middle_takes_the_offset_that_it_finds(scan: ModuleType) -> None:
    result = scan.SegmentScan(0, check_crc=True, position=400)
    assert result.next_offset == -1
    result.feed(batch(30, 2, epoch=5) + batch(32, epoch=5) + batch(33, epoch=6), 400)
    assert (result.first_last_offset, result.next_offset, result.size) == (31, 34, 700)
    assert (result.epochs, result.epoch) == ([(5, 30), (6, 33)], 6)


def test_a_scan_from_an_index_entry_makes_it_and_those_after_it_again(scan: ModuleType) -> None:
    data = b"".join(batch(i, timestamp_ms=i % 13 + i // 9) for i in range(40))
    whole = scanned(scan, data, index_interval_bytes=250)
    offsets, positions = whole.offset_entries
    times_ms, time_offsets = whole.time_entries
    assert positions.tolist() == list(range(300, 4_000, 300))
    kept = sum(offset < offsets[4] for offset in time_offsets)
    part = scan.SegmentScan(
        0,
        check_crc=True,
        index_interval_bytes=250,
        position=positions[4],
        bytes_since_entry=251,
        max_timestamp_ms=times_ms[kept - 1],
        max_timestamp_offset=time_offsets[kept - 1],
    )
    part.feed(data[positions[4] :], positions[4])
    assert part.first_last_offset == offsets[4]
    assert part.offset_entries == (offsets[4:], positions[4:])
    assert part.time_entries == (times_ms[kept:], time_offsets[kept:])
    assert (part.max_timestamp_ms, part.max_timestamp_offset) == (whole.max_timestamp_ms, whole.max_timestamp_offset)
    assert part.bytes_since_entry == whole.bytes_since_entry


def test_the_last_five_batches_of_each_producer_are_kept(scan: ModuleType) -> None:
    data = b"".join(batch(i, producer=(9, 0, i)) for i in range(7))
    assert scanned(scan, data).producers == {9: (0, tuple((i, i, i, i) for i in range(2, 7)))}


def test_a_new_producer_epoch_forgets_the_batches_of_the_old_one(scan: ModuleType) -> None:
    data = batch(0, producer=(9, 0, 0)) + batch(1, 3, producer=(9, 1, 2**31 - 2))
    assert scanned(scan, data).producers == {9: (1, ((2**31 - 2, 0, 1, 3),))}


def test_control_batches_and_batches_without_producer_are_no_producers(scan: ModuleType) -> None:
    assert scanned(scan, batch(0, producer=(9, 0, 0), attributes=0x20) + batch(1)).producers == {}


def test_many_producers_are_kept_in_the_order_in_which_they_came(scan: ModuleType) -> None:
    ids = [(i * 7_919) % 5_003 for i in range(5_003)]
    data = b"".join(batch(i, producer=(ids[i % 5_003], 0, i // 5_003), body_bytes=0) for i in range(10_006))
    producers = scanned(scan, data).producers
    assert list(producers) == ids
    assert producers[ids[1]] == (0, ((0, 0, 1, 1), (1, 1, 5_004, 5_004)))


def test_scans_in_several_threads_do_not_disturb_each_other(scan: ModuleType) -> None:
    data = b"".join(batch(i, producer=(i % 3, 0, i)) for i in range(3_000))
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: scanned(scan, data), range(8)))
    assert {result.size for result in results} == {len(data)}
    assert all(result.producers == results[0].producers for result in results)


def test_a_scan_keeps_no_hold_of_the_chunk(scan: ModuleType) -> None:
    chunk = bytearray(batch(0) + bytes(100))
    before = sys.getrefcount(chunk)
    assert scanned(scan, chunk).damage is not None
    chunk.clear()
    assert sys.getrefcount(chunk) == before


@pytest.mark.parametrize("named", [{"base_offset": -1}, {"position": -1}, {"end": -2}, {"max_timestamp_offset": 3}])
def test_a_scan_of_what_cannot_be_is_refused(scan: ModuleType, named: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="offset"):
        scan.SegmentScan(**{"base_offset": 5, "check_crc": True, **named})


@pytest.mark.parametrize(
    ("body", "count", "fits"),
    [
        (b"", 0, True),
        (b"", 1, False),
        (SMALLEST_RECORD * 3, 3, True),
        (SMALLEST_RECORD * 3, 2, False),
        (SMALLEST_RECORD * 3, 4, False),
        (SMALLEST_RECORD * 3, 2**40, False),
        (SMALLEST_RECORD * 3, -1, False),
        (SMALLEST_RECORD + b"\x00", 1, False),
        (SMALLEST_RECORD[:-1], 1, False),
        (b"\x0a" + SMALLEST_RECORD[2:], 1, False),
        (b"\x0b" + SMALLEST_RECORD[1:], 1, False),
        (b"\xd8\x04" + bytes(300), 1, True),
        (b"\xd8\x04" + bytes(299), 1, False),
        (b"\x8c\x80\x00" + bytes(6), 1, True),
        (b"\xff" * 9 + b"\x02" + bytes(9), 1, False),
        (b"\x80" * 20, 2, False),
    ],
)
def test_records_are_counted_by_their_lengths(scan: ModuleType, body: bytes, count: int, fits: bool) -> None:
    for buffer in (body, bytearray(body), memoryview(body)):
        assert scan.count_records(buffer, count) is fits


LIMITS = {"batch_bytes_max": 100, "bytes_max": 1_000, "offset_max": 1_000, "timestamp_ms_max": 50}


def plain(count: int = 1, *, body: bytes | None = None, **named: Any) -> bytearray:
    """A batch of records without content, as a producer sends it."""
    body = SMALLEST_RECORD * count if body is None else body
    made = bytearray(batch(0, count, body_bytes=len(body), **named)[:61] + body)
    made[17:21] = crc32c(made[21:]).to_bytes(4, "big")
    return made


def test_plain_batches_are_given_their_offsets_and_epoch_in_place(scan: ModuleType) -> None:
    requests = [plain(), plain(2, timestamp_ms=50), memoryview(plain(3, timestamp_ms=-1))]
    unstamped = [bytes(each) for each in requests]
    stamped = scan.stamp_plain_batches(requests, 1, 7, 3, **LIMITS)
    assert stamped == [(75, 8, 50), (82, 11, -1)]
    for each, offset, unstamped in zip(
        requests[1:], (7, 9), (plain(2, timestamp_ms=50), plain(3, timestamp_ms=-1)), strict=False
    ):
        assert struct.unpack_from(">qii", each) == (offset, len(each) - 12, 3)
        assert each[16:] == unstamped[16:]
    assert requests[0] == plain()
    assert scan.stamp_plain_batches(requests, 3, 7, 3, **LIMITS) == []


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(plain()[:-1], id="cut"),
        pytest.param(plain() + b"\0", id="more behind it"),
        pytest.param(b"", id="nothing"),
        pytest.param(bytes(plain()), id="not writable"),
        pytest.param(plain(0), id="no records"),
        pytest.param(plain(2, body=SMALLEST_RECORD), id="too few records"),
        pytest.param(plain(1, body=SMALLEST_RECORD * 2), id="too many records"),
        pytest.param(plain(producer=(0, 0, 0)), id="of a producer with an id"),
        pytest.param(plain(attributes=0x10), id="of a transaction"),
        pytest.param(plain(attributes=0x20), id="control"),
        pytest.param(plain(attributes=0x100), id="unknown attribute"),
        pytest.param(plain(attributes=5), id="unknown compression"),
        pytest.param(plain(9, attributes=1, body=b""), id="compressed to less than there can be"),
        pytest.param(plain(timestamp_ms=51), id="too late"),
        pytest.param(plain(6), id="too large"),
    ],
)
def test_what_is_not_plain_ends_them_and_is_not_touched(scan: ModuleType, other: bytes | bytearray) -> None:
    before = bytes(other)
    assert scan.stamp_plain_batches([plain(), other, plain()], 0, 0, 0, **LIMITS) == [(68, 0, 0)]
    assert other == before


def test_batches_of_a_producer_are_plain_as_long_as_they_follow_on_one_another(scan: ModuleType) -> None:
    requests = [plain(2, producer=(9, 2, 5)), plain(1, producer=(9, 2, 7)), plain(3, producer=(9, 2, 8))]
    assert scan.stamp_plain_batches(requests, 0, 7, 3, **LIMITS) == [(75, 8, 0), (68, 9, 0), (82, 12, 0)]
    assert [struct.unpack_from(">q", each)[0] for each in requests] == [7, 9, 10]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param((9, 2, 7), id="the same sequence again"),
        pytest.param((9, 2, 9), id="a sequence left out"),
        pytest.param((9, 3, 8), id="another epoch"),
        pytest.param((8, 2, 8), id="another producer"),
        pytest.param((-1, -1, -1), id="no producer"),
    ],
)
def test_what_does_not_follow_of_a_producer_ends_them(scan: ModuleType, other: tuple[int, int, int]) -> None:
    requests = [plain(producer=(9, 2, 7)), plain(producer=other)]
    before = bytes(requests[1])
    assert scan.stamp_plain_batches(requests, 0, 0, 0, **LIMITS) == [(68, 0, 0)]
    assert requests[1] == before


def test_nothing_follows_where_sequences_go_round(scan: ModuleType) -> None:
    requests = [plain(producer=(9, 2, 2**31 - 1)), plain(producer=(9, 2, 0))]
    assert len(scan.stamp_plain_batches(requests, 0, 0, 0, **LIMITS)) == 1


@pytest.mark.parametrize("producer", [(-1, -1, -1), (0, 0, 0), (9, 2, 5)])
def test_the_header_of_a_usual_batch_is_told(scan: ModuleType, producer: tuple[int, int, int]) -> None:
    usual = plain(2, producer=producer, timestamp_ms=77)
    for buffer in (usual, bytes(usual), memoryview(usual)):
        assert scan.usual_header(buffer, 75) == tuple(read_header(usual))
    assert scan.usual_header(usual, 74) is None


@pytest.mark.parametrize("producer", [(-2, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_a_producer_without_epoch_or_sequence_is_not_usual(scan: ModuleType, producer: tuple[int, int, int]) -> None:
    assert scan.usual_header(plain(producer=producer), 100) is None


@pytest.mark.parametrize("limit", [{"bytes_max": 203}, {"offset_max": 1}])
def test_plain_batches_end_where_there_is_no_room(scan: ModuleType, limit: dict[str, int]) -> None:
    stamped = scan.stamp_plain_batches([plain(), plain(), plain()], 0, 0, 0, **{**LIMITS, **limit})
    assert [last_offset for _, last_offset, _ in stamped] == [0, 1]


def test_the_bytes_of_plain_batches_are_let_go_of(scan: ModuleType) -> None:
    requests = [plain(), plain(0)]
    scan.stamp_plain_batches(requests, 0, 0, 0, **LIMITS)
    for each in requests:
        each.clear()  # which nobody may do who shares its bytes


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("count", [1, 100, 1_000_000])
def test_no_compressed_body_holds_more_records_than_are_thought_possible(compression: Compression, count: int) -> None:
    assert max_record_count(len(compress(compression, SMALLEST_RECORD * count)), compression) >= count


def test_a_body_of_a_few_bytes_is_known_to_hold_few_records() -> None:
    most = {compression: max_record_count(20, compression) for compression in Compression}
    assert list(most.values()) == [2, 2_948, 62, 728, 93_622]
    assert all(max_record_count(0, compression) == 0 for compression in Compression)
