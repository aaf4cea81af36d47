"""What the clock decides in one log while the clock is in doubt: nothing is deleted and nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.clock import HOLD_S, GuardedClock, ManualClock
from barnabas.model import TopicPartition
from barnabas.storage import Log, LogConfig, OsFileSystem
from barnabas.storage.folder_identity import newest_modified_ms
from barnabas.storage.log_config import CleanupPolicy
from barnabas.storage.producer_state import PRODUCER_EXPIRATION_S
from tests.support.compaction_steps import Keyed, keyed_batch
from tests.support.log_steps import delete_old_segments

YEAR_S = 365 * 86_400
PLACE = TopicPartition("clicks", 0)

Open = Callable[..., Log]


@pytest.fixture
def guarded(clock: ManualClock) -> GuardedClock:
    return GuardedClock(clock)


@pytest.fixture
def open_guarded(tmp_path: Path, guarded: GuardedClock) -> Open:
    def open_log(**settings: object) -> Log:
        config = LogConfig(**settings)  # type: ignore[arg-type]
        return Log.open(tmp_path / "clicks-0", PLACE, config, guarded, OsFileSystem())

    return open_log


def fill(log: Log, make_batch: Callable[..., bytearray], count: int = 4) -> None:
    for sequence in range(count):
        log.append(make_batch(producer_id=7, producer_epoch=0, base_sequence=sequence), 0)
        log.roll()
    log.flush()


def test_retention_by_time_waits(open_guarded: Open, clock: ManualClock, make_batch: Callable[..., bytearray]) -> None:
    log = open_guarded()
    fill(log, make_batch)
    clock.jump(YEAR_S)
    assert delete_old_segments(log) == 0
    clock.advance(4)
    clock.jump(-YEAR_S)
    assert delete_old_segments(log) == 0
    clock.advance(HOLD_S)
    assert delete_old_segments(log) == 0
    assert log.log_start_offset == 0
    clock.jump(YEAR_S)
    assert delete_old_segments(log) == 0
    clock.advance(HOLD_S)  # the clock is believed in the end
    assert delete_old_segments(log) == 4
    log.close()


def test_retention_by_size_goes_on(
    open_guarded: Open, clock: ManualClock, make_batch: Callable[..., bytearray]
) -> None:
    log = open_guarded(retention_bytes=1)
    fill(log, make_batch)
    clock.jump(YEAR_S)
    assert delete_old_segments(log) == 3
    log.close()


def test_nothing_is_compacted(open_guarded: Open, clock: ManualClock) -> None:
    log = open_guarded(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    log.append(keyed_batch([Keyed(b"key", b"value", 1_000)]), 0)
    log.roll()
    log.flush()
    assert log.cleaning_search() is not None
    clock.jump(-YEAR_S)
    assert log.cleaning_search() is None
    clock.advance(HOLD_S)
    assert log.cleaning_search() is not None
    log.close()


def test_wall_clock_makes_no_log_forget_a_producer(
    open_guarded: Open, clock: ManualClock, make_batch: Callable[..., bytearray]
) -> None:
    log = open_guarded()
    fill(log, make_batch)
    clock.jump(YEAR_S)
    clock.advance(HOLD_S)
    log.append(make_batch(), 0)
    log.roll()
    assert set(log.producers) == {7}
    log.close()
    clock.jump(YEAR_S)
    log = open_guarded()
    assert set(log.producers) == {7}
    clock.advance(PRODUCER_EXPIRATION_S)
    log.append(make_batch(), 0)
    log.roll()
    assert log.producers == {}
    log.close()


def test_log_that_a_wrong_clock_loaded_accepts_no_retry_after_the_next_start(
    tmp_path: Path, clock: ManualClock, make_batch: Callable[..., bytearray]
) -> None:
    def start() -> Log:
        return Log.open(tmp_path / "clicks-0", PLACE, LogConfig(), GuardedClock(clock), OsFileSystem())

    crashed = start()
    for sequence in range(4):
        crashed.append(make_batch(producer_id=7, producer_epoch=0, base_sequence=sequence), 0)
    crashed.flush()
    clock.jump(-14 * 86_400)
    start().close()  # reads the batches, and stores a snapshot
    clock.jump(14 * 86_400)
    log = start()
    retry = log.append(make_batch(producer_id=7, producer_epoch=0, base_sequence=3), 0)
    assert (retry.duplicate, log.log_end_offset) == (True, 4)
    log.close()


def test_the_newest_file_of_data_folders_tells_of_the_last_life(tmp_path: Path) -> None:
    filesystem = OsFileSystem()
    assert newest_modified_ms(filesystem, [tmp_path, tmp_path / "missing"]) is None
    for name, modified_ms in (("meta.properties", 5_000), ("recovery-point-offset-checkpoint", 7_000)):
        (tmp_path / name).touch()
        filesystem.set_modified_ms(tmp_path / name, modified_ms)
    (tmp_path / "clicks-0").mkdir()
    assert newest_modified_ms(filesystem, [tmp_path, tmp_path / "missing"]) == 7_000
