"""`barnabas log dump`: what is in the files, damage among it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from barnabas.records import BatchBuilder, Compression, stamp
from barnabas.storage.file_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, offset_name
from barnabas.storage.segment_index import OffsetIndex, TimeIndex
from tests.support.compacted_logs import Batch, Kept

BASE = 100


def batch(base_offset: int, *values: bytes | None, compression: Compression = Compression.NONE) -> bytes:
    builder = BatchBuilder(compression)
    for number, value in enumerate(values):
        builder.append(1_000 * base_offset + number, b"k", value, [("h", b"1")])
    data = bytearray(builder.build(producer_id=7, producer_epoch=0, base_sequence=base_offset))
    stamp(data, 0, base_offset, 0)
    return bytes(data)


FIRST = batch(100, b"a", None)
SECOND = batch(102, b"c", compression=Compression.GZIP)
THIRD = batch(103, b"d")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of clicks-3, with one segment of three batches and its indexes."""
    made = tmp_path / "clicks-3"
    made.mkdir()
    (made / offset_name(BASE, LOG_SUFFIX)).write_bytes(FIRST + SECOND + THIRD)
    offsets, times = OffsetIndex(), TimeIndex()
    offsets.append(2, len(FIRST))
    offsets.append(3, len(FIRST + SECOND))
    times.maybe_append(100_001, 1)
    times.maybe_append(103_000, 3)
    (made / offset_name(BASE, INDEX_SUFFIX)).write_bytes(offsets.encode())
    (made / offset_name(BASE, TIME_INDEX_SUFFIX)).write_bytes(times.encode())
    return made


def write(folder: Path, suffix: str, data: bytes) -> Path:
    path = folder / offset_name(BASE, suffix)
    path.write_bytes(data)
    return path


def rows(outcome) -> list[dict]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_batches_are_shown_with_position_offsets_and_producer(folder, run) -> None:
    outcome = run("log", "dump", folder)
    assert outcome.code == 0, outcome.err
    name, heading, first, second, third = outcome.out.splitlines()
    assert name == str(folder / offset_name(BASE, LOG_SUFFIX))
    assert heading.split()[:3] == ["position", "bytes", "offsets"]
    assert first.split()[:4] == ["0", str(len(FIRST)), "100-101", "1970-01-01T00:01:40.001Z"]
    assert first.endswith("none, producer 7 epoch 0 sequence 100-101")
    assert "gzip" in second
    assert third.split()[0] == str(len(FIRST + SECOND))


def test_records_are_shown(folder, run) -> None:
    lines = run("log", "dump", folder, "--records").out.splitlines()
    assert lines[3].split() == ["100", "1970-01-01T00:01:40.000Z", '"k"', '"a"', 'h="1"']
    assert lines[4].split() == ["101", "1970-01-01T00:01:40.001Z", '"k"', "null", 'h="1"']


def test_what_compaction_left_is_no_damage(folder, run) -> None:
    """Nor is an index of Kafka's, in which an entry has the last offset of all batches that were written at once."""
    left = Batch(105, 109, [Kept(107, 9, b"k")], delete_horizon_ms=5_000), Batch(110, 110)
    log = write(folder, LOG_SUFFIX, b"".join(batch.encode() for batch in left))
    outcome = run("log", "dump", log)
    assert outcome.code == 0, outcome.err
    _, _, first, second = outcome.out.splitlines()
    assert first.endswith("none, 1 record, tombstones until 1970-01-01T00:00:05.000Z")
    assert second.endswith("none, 0 records")
    assert [row["delete_horizon_ms"] for row in rows(run("log", "dump", log, "--json"))] == [5_000, None]
    assert run("log", "dump", write(folder, INDEX_SUFFIX, bytes.fromhex("0000000a00000000"))).code == 0


def test_json_is_one_object_a_line(folder, run) -> None:
    first, second, third = rows(run("log", "dump", folder, "--records", "--json"))
    assert (first["position"], first["base_offset"], first["last_offset"], first["record_count"]) == (0, 100, 101, 2)
    assert second["compression"] == "gzip"
    assert third["records"] == [
        {"offset": 103, "timestamp_ms": 103_000, "key": "k", "value": "d", "headers": [["h", "1"]]}
    ]
    assert "records" not in rows(run("log", "dump", folder, "--json"))[0]


def test_indexes_are_shown(folder, run) -> None:
    index = folder / offset_name(BASE, INDEX_SUFFIX)
    assert [(row["offset"], row["log_position"]) for row in rows(run("log", "dump", index, "--json"))] == [
        (102, len(FIRST)),
        (103, len(FIRST + SECOND)),
    ]
    outcome = run("log", "dump", index.with_suffix(TIME_INDEX_SUFFIX))
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines()[2].split() == ["101", "1970-01-01T00:01:40.001Z"]


def test_room_that_kafka_allots_in_advance_is_no_damage(folder, run) -> None:
    index = folder / offset_name(BASE, INDEX_SUFFIX)
    index.write_bytes(index.read_bytes() + bytes(80))
    outcome = run("log", "dump", index, "--json")
    assert (outcome.code, len(rows(outcome))) == (0, 2)


def test_flipped_bit_is_shown_with_its_position_and_the_rest_is_read(folder, run) -> None:
    broken = bytearray(SECOND)
    broken[-1] ^= 1
    write(folder, LOG_SUFFIX, FIRST + broken + THIRD)
    outcome = run("log", "dump", folder, "--json")
    assert outcome.code == 1
    assert f"is damaged at position {len(FIRST)}: CRC" in outcome.err
    assert [row.get("base_offset") for row in rows(outcome)] == [100, None, 103]
    assert f"{len(FIRST):>10}  DAMAGED: CRC" in run("log", "dump", folder).out


@pytest.mark.parametrize(
    ("data", "position", "reason"),
    [
        (FIRST + SECOND[:-1], len(FIRST), "but the file has only"),
        (FIRST + SECOND[:20], len(FIRST), "only 20 of the header's 61 bytes"),
        (FIRST + bytes(100), len(FIRST), "magic 0, should be 2"),
        (SECOND + FIRST, len(SECOND), "offsets from 100, must be 103 or more"),
    ],
)
def test_what_is_no_log_is_shown_with_its_position(folder, run, data, position, reason) -> None:
    write(folder, LOG_SUFFIX, data)
    outcome = run("log", "dump", folder)
    assert outcome.code == 1
    assert f"damaged at position {position}" in outcome.err
    assert reason in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("suffix", "data", "position", "reason"),
    [
        (INDEX_SUFFIX, bytes.fromhex("0000000200000001"), 0, "no batch starts there"),
        (INDEX_SUFFIX, struct.pack(">II", 1, len(FIRST)), 0, "the batch there ends with 102"),
        (INDEX_SUFFIX, bytes.fromhex("000000010000000000000001"), 8, "4 extra bytes at the end"),
        (INDEX_SUFFIX, bytes.fromhex("00000001000000000000000100000000"), 8, "is not after"),
        (TIME_INDEX_SUFFIX, bytes.fromhex("000000000000000500000001"), 0, "whose highest timestamp is 100001"),
        (TIME_INDEX_SUFFIX, bytes.fromhex("000000000000000500000063"), 0, "which is in no batch"),
    ],
)
def test_index_that_says_something_else_than_its_log_is_damaged(folder, run, suffix, data, position, reason) -> None:
    outcome = run("log", "dump", write(folder, suffix, data))
    assert outcome.code == 1
    assert f"damaged at position {position}" in outcome.err
    assert reason in outcome.err


def test_index_without_its_log_is_shown_as_it_is(folder, run) -> None:
    (folder / offset_name(BASE, LOG_SUFFIX)).unlink()
    assert run("log", "dump", folder / offset_name(BASE, INDEX_SUFFIX)).code == 0


def test_files_of_another_kind_are_refused(folder, run, tmp_path) -> None:
    for name in ("x.log", "00000000000000000100.snapshot"):
        (folder / name).touch()
        assert "does not have the name of a segment file" in run("log", "dump", folder / name).err
    assert "has no segments" in run("log", "dump", tmp_path).err
    missing = run("log", "dump", folder / offset_name(5, LOG_SUFFIX))
    assert (missing.code, missing.err.count("\n")) == (1, 1)
    assert "no such file" in missing.err
