"""librdkafka's clients are recorded as they are: what they did, what they saw, and what nobody knows."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import barnabas
from barnabas.errors import ErrorCode
from barnabas.laboratory.history import History, Outcome, Report, check, read_to_the_end
from tests.faults import foreign
from tests.faults.foreign import ForeignConsumer, ForeignProducer, all_stopped, outcome_of_foreign
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until

TOPIC = "numbers"
PLACES = [(TOPIC, 0), (TOPIC, 1)]
ENOUGH = 300


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history"


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    with History(path) as history:
        yield history


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, len(PLACES))
    return TOPIC


def checked(history: History, path: Path, broker: BrokerProcess) -> Report:
    read_to_the_end(history, broker.bootstrap, [TOPIC])
    history.close()
    return check(path)


def wait_for_progress(history: History) -> None:
    wanted = {place: history.highest(place) + ENOUGH for place in PLACES}
    wait_until(lambda: all(history.highest(place) > wanted[place] for place in PLACES), "records come and go")


class EndlessConsumer:
    """Reads nothing, and does not close until it may: like some of librdkafka's after many lost connections."""

    may_close = threading.Event()

    def __init__(self, _settings: dict[str, Any]) -> None:
        pass

    def assign(self, _places: object) -> None:
        pass

    def poll(self, _timeout_s: float) -> None:
        pass

    def close(self) -> None:
        self.may_close.wait()


def test_a_consumer_that_does_not_close_is_left(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", EndlessConsumer)
    monkeypatch.setattr(foreign, "CLOSE_S", 0.1)
    reader = ForeignConsumer(history, "127.0.0.1:1", PLACES, "reader").start()
    try:
        reader.stop()
    finally:
        EndlessConsumer.may_close.set()
    assert reader.is_left


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, Outcome.FAIL),
        (ErrorCode.INVALID_RECORD, Outcome.FAIL),
        (ErrorCode.NOT_ENOUGH_REPLICAS, Outcome.INFO),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Outcome.INFO),
        (confluent_kafka.KafkaError._MSG_TIMED_OUT, Outcome.INFO),
        (confluent_kafka.KafkaError._PURGE_QUEUE, Outcome.INFO),
        (confluent_kafka.KafkaError._TRANSPORT, Outcome.INFO),
    ],
)
def test_only_refusals_say_that_nothing_is_in_the_log(code: int, outcome: Outcome) -> None:
    assert outcome_of_foreign(confluent_kafka.KafkaError(code)) is outcome


def test_clients_that_live_through_a_kill_are_recorded_without_an_anomaly(
    history: History, path: Path, broker: BrokerProcess, topic: str
) -> None:
    producer = ForeignProducer(history, broker.bootstrap, PLACES, "producer")
    reader = ForeignConsumer(history, broker.bootstrap, PLACES, "reader")
    members = [ForeignConsumer(history, broker.bootstrap, PLACES, f"member {each}", "readers") for each in (1, 2)]
    clients = [producer, reader, *members]
    for each in clients:
        each.start()
    try:
        wait_for_progress(history)
        wait_until(lambda: reader.read_count and any(each.read_count for each in members), "there are readers")
        broker.kill()
        history.event("the broker is killed")
        broker.restart()
        wait_for_progress(history)
    finally:
        all_stopped(clients)
    report = checked(history, path, broker)
    assert report.findings == ()
    assert report.ok
    assert report.sends[Outcome.OK] >= 4 * ENOUGH
    with closing(sqlite3.connect(path)) as database:
        names = database.execute(
            "SELECT DISTINCT name FROM seen JOIN polls USING (poll) JOIN processes USING (process)"
        )
        readers = {name for (name,) in names}
    assert "reader" in readers
    assert readers & {"member 1", "member 2"}


def test_send_that_is_refused_has_failed_and_one_that_nobody_answers_is_unknown(
    history: History, path: Path, broker: BrokerProcess, topic: str
) -> None:
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.alter_config(topic, to_set={"max.message.bytes": "1"})
    producer = ForeignProducer(history, broker.bootstrap, PLACES, "refused").start()
    wait_until(lambda: producer.errors["MSG_SIZE_TOO_LARGE"], "a broker refuses")
    producer.stop()
    broker.kill()
    silent = ForeignProducer(history, broker.bootstrap, PLACES, "unanswered", message_timeout_ms=500).start()
    wait_until(lambda: silent.errors["_MSG_TIMED_OUT"], "a send is given up")
    silent.stop()
    broker.restart()
    report = checked(history, path, broker)
    assert report.ok
    assert report.sends[Outcome.OK] == 0
    assert min(report.sends[Outcome.FAIL], report.sends[Outcome.INFO]) > 0


def test_what_the_producer_tells_of_its_sequences_is_written_down(
    history: History, tmp_path: Path, broker: BrokerProcess, topic: str
) -> None:
    told = tmp_path / "producer.log"
    with ForeignProducer(history, broker.bootstrap, PLACES, "producer", told=told):
        wait_until(lambda: told.exists() and "Epoch:0" in told.read_text(), "its epoch is there")
        wait_until(lambda: "BaseSeq 0" in told.read_text(), "its first sequence is there")


def test_what_a_client_cannot_do_is_raised_by_stop(history: History, broker: BrokerProcess) -> None:
    producer = ForeignProducer(history, broker.bootstrap, PLACES, "wrong", no_such_setting="1").start()
    with pytest.raises(confluent_kafka.KafkaException, match=r"no\.such\.setting"):
        producer.stop()
    producer.stop()
