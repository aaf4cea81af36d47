"""Flushes of a log: while it grows, and at its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from barnabas.records import Record
from barnabas.storage import Log

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]
ReadAll = Callable[..., list[Record]]


def offsets_of(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


def test_flush_moves_the_recovery_point(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(3), 0)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 3
    log.append(make_batch(3), 0)
    log.roll()
    assert log.is_flush_due
    log.append(make_batch(3), 0)
    log.flush()
    assert not log.is_flush_due
    assert log.recovery_point == 9


def test_flush_runs_beside_appends_and_rolls(open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll) -> None:
    log = open_log(segment_bytes=5_000, index_interval_bytes=100)
    done = threading.Event()
    failures: list[BaseException] = []

    def flush_all_the_time() -> None:
        try:
            while not done.is_set():
                before = log.log_end_offset
                log.flush()
                assert log.recovery_point >= before
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            failures.append(error)

    flusher = threading.Thread(target=flush_all_the_time)
    flusher.start()
    for number in range(2_000):
        log.append(make_batch(producer_id=1, producer_epoch=0, base_sequence=number), 0)
    done.set()
    flusher.join()
    assert not failures
    log.abandon()
    log = open_log(recovery_point=log.recovery_point)
    assert offsets_of(read_all(log)) == list(range(2_000))


def test_log_that_nobody_touched_is_closed_without_work(
    open_log: OpenLog, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    log.append(make_batch(), 0)
    log.close()
    log = open_log(clean=True)
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("nothing to make durable"))
    log.close()
    monkeypatch.undo()
    assert open_log(clean=True).log_end_offset == 1
