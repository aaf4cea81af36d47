"""Histories of a real broker: one that is killed and keeps its promises, and one whose log somebody has cut."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.laboratory.history import (
    Anomaly,
    History,
    Outcome,
    RecordedConsumer,
    RecordedProducer,
    Report,
    check,
    read_to_the_end,
)
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until

TOPIC = "numbers"
PARTITIONS = 2
PLACES = [(TOPIC, partition) for partition in range(PARTITIONS)]
ENOUGH = 500
PRODUCER_SETTINGS = {"linger_ms": 1, "batch_size": 1_000, "retry_backoff_ms": 20}


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return make_broker(num_partitions=str(PARTITIONS), group_min_session_timeout_ms="500")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history"


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    with History(path) as history:
        yield history


def send_until(done: threading.Event, history: History, bootstrap: str, process: str) -> None:
    producer = barnabas.Producer(bootstrap, acks="all", **PRODUCER_SETTINGS)
    with RecordedProducer(history, producer, process) as recorded:
        for number in itertools.count():
            delivery = recorded.send(PLACES[number % PARTITIONS], f"{process}: {number}".encode())
            if number % 50 == 0 and delivery:
                delivery.exception()
            if done.is_set():
                break


def poll_until(done: threading.Event, history: History, bootstrap: str, process: str) -> None:
    consumer = barnabas.Consumer(bootstrap, group="readers", auto_offset_reset="earliest")
    with RecordedConsumer(history, consumer, process) as recorded:
        recorded.subscribe([TOPIC])
        while not done.is_set():
            recorded.poll(timeout_s=0.05)


def checked(history: History, path: Path, broker: BrokerProcess) -> Report:
    read_to_the_end(history, broker.bootstrap, [TOPIC], timeout_s=1.0)
    history.close()
    return check(path)


@contextlib.contextmanager
def at_work(history: History, broker: BrokerProcess) -> Iterator[None]:
    """Two producers, and two consumers of one group."""
    done = threading.Event()
    threads = [
        threading.Thread(target=work, args=(done, history, broker.bootstrap, f"{work.__name__[:4]} {number}"))
        for work in (send_until, poll_until)
        for number in (1, 2)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def wait_for_progress(history: History) -> None:
    wanted = {place: history.highest(place) + ENOUGH for place in PLACES}
    wait_until(lambda: all(history.highest(place) > wanted[place] for place in PLACES), "records come and go")


def test_broker_that_is_killed_keeps_its_promises(history: History, path: Path, broker: BrokerProcess) -> None:
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
    with at_work(history, broker):
        wait_for_progress(history)
        history.event("the broker is killed")
        broker.kill()
        broker.restart()
        history.event("the broker is back")
        wait_for_progress(history)
    report = checked(history, path, broker)
    assert report.findings == ()
    assert report.ok
    assert report.sends[Outcome.OK] >= 4 * ENOUGH


def test_log_that_was_cut_is_found_out(history: History, path: Path, broker: BrokerProcess) -> None:
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
    producer = barnabas.Producer(broker.bootstrap, acks="all", **PRODUCER_SETTINGS)
    with RecordedProducer(history, producer, "producer") as recorded:
        for number in range(ENOUGH):
            recorded.send(PLACES[0], str(number).encode())
    broker.kill()
    (segment,) = (broker.data / f"{TOPIC}-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size // 2)
    broker.restart()
    report = checked(history, path, broker)
    (finding,) = report.findings
    assert finding.anomaly is Anomaly.UNSEEN
    assert finding.count >= ENOUGH // 4
    assert report.unread == ()
