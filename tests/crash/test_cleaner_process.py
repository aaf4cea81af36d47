"""kill -9 of the broker, and of the process that compacts its logs, under load.

A reader from the beginning ends with the last acknowledged value of each key, and offsets and values fit together;
the process that compacts ends with its broker, however that ends.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import subprocess
import termios
import threading
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.broker.cleaner_process import CleanerProcess
from barnabas.clock import SYSTEM_CLOCK
from barnabas.storage.cleaner.job import CleaningFailedError, CleaningJob, SegmentRef
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until

TOPIC = "states"
KEYS = 50
IN_FLIGHT_MAX = 1_000
TIMEOUT_S = 120.0

SETTINGS = {
    "log_cleanup_policy": "compact",
    "log_segment_bytes": "200000",
    "log_cleaner_backoff_ms": "50",
    "log_cleaner_min_cleanable_ratio": "0.01",
    "log_flush_offset_checkpoint_interval_ms": "100",
    "file_delete_delay_ms": "100",
}


def cleaners_of(pid: int) -> list[int]:
    """Return the processes that compact for a broker."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"barnabas.storage.cleaner" in (status.parent / "cmdline").read_bytes():
                found.append(int(status.parent.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Load:
    """Sends values in ascending order, round the keys, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.acknowledged: dict[int, int] = {}
        """Offset by value."""
        self.failures: list[BaseException] = []
        self._producer = barnabas.Producer(bootstrap, linger_ms=2, batch_size=2_000, retry_backoff_ms=20)
        self._ends = threading.Event()
        self._goes_on = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        assert self.failures == []
        assert len(self.acknowledged) == self.sent

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                if self.sent - len(self.acknowledged) > IN_FLIGHT_MAX:
                    self._goes_on.wait(0.01)
                    self._goes_on.clear()
                    continue
                number = self.sent
                self.sent += 1
                delivery = self._producer.send(TOPIC, b"%d" % number + b"." * 50, key=b"%d" % (number % KEYS))
                delivery.add_done_callback(lambda done, number=number: self._note(done, number))
            self._producer.close(timeout_s=TIMEOUT_S)
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            self.failures.append(error)

    def _note(self, done: barnabas.Delivery, number: int) -> None:
        error = done.exception()
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[number] = done.result().offset
        self._goes_on.set()


def compactions(broker: BrokerProcess) -> int:
    return broker.log.read_text().count("compacted up to offset")


def read_all(bootstrap: str) -> list[tuple[int, bytes, int]]:
    """Return offset, key and value of all records of the topic."""
    with barnabas.Consumer(bootstrap) as consumer:
        place = barnabas.TopicPartition(TOPIC, 0)
        end = consumer.end_offsets([place])[place]
        consumer.assign([place])
        consumer.seek(place, 0)
        found: list[tuple[int, bytes, int]] = []
        wait_until(lambda: _read_on(consumer, place, found) >= end, "all records")
        return found


def _read_on(consumer: barnabas.Consumer, place: barnabas.TopicPartition, found: list[tuple[int, bytes, int]]) -> int:
    for record in consumer.poll(max_records=1_000, timeout_s=0.1):
        assert record.key is not None
        assert record.value is not None
        found.append((record.offset, record.key, int(record.value.rstrip(b"."))))
    return consumer.position(place)


def test_kill_broker_and_cleaner_under_load(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(**SETTINGS)
    load = Load(broker.bootstrap)
    for kills_broker in (False, True):
        before = compactions(broker)
        wait_until(lambda before=before: compactions(broker) > before, "compaction")
        wait_until(lambda: cleaners_of(broker.pid), "a process that compacts")
        for cleaner in cleaners_of(broker.pid):
            with suppress(ProcessLookupError):
                os.kill(cleaner, signal.SIGKILL)
        if not kills_broker:
            continue  # it starts another one
        wait_until(lambda: cleaners_of(broker.pid), "another process that compacts")
        cleaners = cleaners_of(broker.pid)
        broker.kill()
        wait_until(lambda cleaners=cleaners: not any(map(is_alive, cleaners)), "their end")
        broker.restart()
    before = compactions(broker)
    wait_until(lambda: compactions(broker) > before, "compaction after the start")
    load.stop()
    found = read_all(broker.bootstrap)
    offsets = [offset for offset, _, _ in found]
    assert all(one < other for one, other in itertools.pairwise(offsets))
    assert all(load.acknowledged[value] == offset for offset, _, value in found)
    last = {key: value for _, key, value in found}
    wanted = {b"%d" % (number % KEYS): number for number in range(load.sent)}
    assert last == wanted
    assert len(found) < load.sent
    assert "Traceback" not in broker.log.read_text()


def test_the_process_that_compacts_ends_with_a_broker_that_stops(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(**SETTINGS)
    load = Load(broker.bootstrap)
    wait_until(lambda: cleaners_of(broker.pid), "a process that compacts")
    cleaners = cleaners_of(broker.pid)
    load.stop()
    assert broker.stop() == 0
    wait_until(lambda: not any(map(is_alive, cleaners)), "their end")


def test_no_process_is_started_where_nothing_is_compacted(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(**SETTINGS | {"log_cleanup_policy": "delete"})
    load = Load(broker.bootstrap)
    wait_until(lambda: len(load.acknowledged) > 2_000, "acknowledgements")
    load.stop()
    assert cleaners_of(broker.pid) == []


def test_a_process_that_is_killed_while_it_is_told_a_job_costs_one_job(tmp_path: Path) -> None:
    segments = tuple(SegmentRef(number, number + 1, 100) for number in range(20_000))
    folder = str(tmp_path / "missing")
    job = CleaningJob(folder, segments, 0, 0, 0, {}, 1_000, 1_000, 1_000, 1_000, 1_000, 1e9)
    cleaner = CleanerProcess(SYSTEM_CLOCK.monotonic)
    assert isinstance(cleaner.ask(None), CleaningFailedError)
    assert cleaner.process_id is not None
    os.kill(cleaner.process_id, signal.SIGSTOP)
    process = cleaner._process
    assert process is not None
    assert process.stdin is not None
    told = process.stdin
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(cleaner.ask, job)
        wait_until(lambda: _waiting_bytes(told.fileno()) > 60_000, "the pipe is full")
        cleaner.end()
        assert isinstance(answer.result(TIMEOUT_S), CleaningFailedError)
    after = cleaner.ask(job)
    assert isinstance(after, CleaningFailedError)
    assert "No such file" in str(after)
    cleaner.end()


def test_process_that_starts_while_the_broker_stops_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker closes the cleaner in the moment between the start of the process and the first message."""
    cleaner = CleanerProcess(SYSTEM_CLOCK.monotonic)
    start = subprocess.Popen

    def close_during_start(*arguments: Any, **named: Any) -> Any:
        process = start(*arguments, **named)
        cleaner.close()
        return process

    monkeypatch.setattr(subprocess, "Popen", close_during_start)
    with ThreadPoolExecutor(1) as thread:
        assert isinstance(thread.submit(cleaner.ask, None).result(TIMEOUT_S), CleaningFailedError)
    assert cleaner.process_id is None
    assert isinstance(cleaner.ask(None), CleaningFailedError)


def _waiting_bytes(pipe: int) -> int:
    count = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]
