"""A broker with several data folders: what it does when one of them is gone."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.client.admin.brokers import LogDir
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until

TOPIC = "clicks"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with the folders a and b, and two of the topic's four partitions in each."""
    settings = {"replica_high_watermark_checkpoint_interval_ms": "50"}
    made = BrokerProcess(tmp_path / "a", settings, [tmp_path / "b"])
    try:
        made.start()
        with barnabas.Admin(made.bootstrap) as admin:
            admin.create_topic(TOPIC, 4)
        produce(made, range(4))
        yield made
    finally:
        made.close()


def produce(broker: BrokerProcess, partitions: Iterable[int]) -> None:
    with barnabas.Producer(broker.bootstrap) as producer:
        for number in partitions:
            producer.send(TOPIC, b"%d" % number, partition=number)


def lose(broker: BrokerProcess, folder: Path, to: Path) -> None:
    """Take a folder away from under the broker, which finds out by what is written into it.

    Who writes is connected before: the broker may end as soon as the folder is gone, by what it had to store there.
    """
    number = partitions_in(folders(broker)[folder.name])[0]
    # What is behind the folder cannot be answered.
    with barnabas.Producer(broker.bootstrap, acks=0, request_timeout_ms=5_000, delivery_timeout_ms=10_000) as producer:
        producer.send(TOPIC, b"%d" % number, partition=number).result()
        shutil.move(folder, to)
        producer.send(TOPIC, b"%d" % number, partition=number)


def folders(broker: BrokerProcess) -> dict[str, LogDir]:
    with barnabas.Admin(broker.bootstrap) as admin:
        return {Path(each.path).name: each for each in admin.log_dirs()}


def ends(broker: BrokerProcess) -> dict[TopicPartition, int]:
    with barnabas.Admin(broker.bootstrap) as admin:
        return admin.end_offsets([(TOPIC, number) for number in range(4)])


def values(broker: BrokerProcess) -> list[bytes | None]:
    """All values in the topic."""
    there = ends(broker)
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(list(there))
        found: list[bytes | None] = []
        while len(found) < sum(there.values()):
            found += [record.value for record in consumer.poll()]
    return sorted(found, key=str)


def partitions_in(folder: LogDir) -> list[int]:
    return sorted(each.partition for each in folder.sizes if each.topic == TOPIC)


def test_logs_are_spread_over_the_folders_and_found_again(broker: BrokerProcess) -> None:
    before = folders(broker)
    assert [len(partitions_in(each)) for each in before.values()] == [2, 2]
    assert all(size > 0 for each in before.values() for size in each.sizes.values())
    assert broker.stop() == 0
    broker.restart()
    assert {name: each.sizes for name, each in folders(broker).items()} == {
        name: each.sizes for name, each in before.items()
    }
    assert values(broker) == [b"0", b"1", b"2", b"3"]


def test_broker_starts_without_a_folder_and_finds_it_again_when_it_is_back(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    in_a = partitions_in(folders(broker)["a"])
    assert broker.stop() == 0
    shutil.move(tmp_path / "b", tmp_path / "away")
    (tmp_path / "b").write_text("not a folder")
    broker.restart()
    found = folders(broker)
    assert [each.error for each in found.values()] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    assert not found["b"].sizes
    assert partitions_in(found["a"]) == in_a
    produce(broker, in_a)
    assert broker.stop() == 0
    (tmp_path / "b").unlink()
    shutil.move(tmp_path / "away", tmp_path / "b")
    broker.restart()
    assert len(values(broker)) == 6


def test_folder_that_goes_while_the_broker_runs_takes_its_logs_with_it_and_the_last_one_the_broker(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    in_a = partitions_in(folders(broker)["a"])
    lose(broker, tmp_path / "b", tmp_path / "away")
    wait_until(lambda: folders(broker)["b"].error == ErrorCode.KAFKA_STORAGE_ERROR, "the data directory is offline")
    produce(broker, in_a)
    assert folders(broker)["a"].error == ErrorCode.NONE
    assert broker.process is not None
    lose(broker, tmp_path / "a", tmp_path / "away-too")
    assert broker.process.wait(60) == 1
    last = broker.log.read_text().splitlines()[-1]
    assert "not closed cleanly" in last
    assert str(tmp_path / "a") in last


def test_log_moves_to_another_folder_while_it_is_used(broker: BrokerProcess, tmp_path: Path) -> None:
    found = folders(broker)
    moved, stays = partitions_in(found["a"])
    before = ends(broker)
    stop = threading.Event()
    sent = [0]

    def write() -> None:
        with barnabas.Producer(broker.bootstrap) as producer:
            while not stop.is_set():
                for delivery in [producer.send(TOPIC, b"%d" % number, partition=moved) for number in range(50)]:
                    delivery.result()
                    sent[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until(lambda: sent[0] >= 100, "there is something to move")
        with barnabas.Admin(broker.bootstrap) as admin:
            asked = {(TOPIC, moved): found["b"].path, (TOPIC, stays): found["a"].path, ("none", 0): found["b"].path}
            assert admin.alter_replica_log_dirs(0, asked) == {
                (TOPIC, moved): ErrorCode.NONE,
                (TOPIC, stays): ErrorCode.NONE,
                ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert admin.alter_replica_log_dirs(0, {(TOPIC, moved): "/nowhere"}) == {
                (TOPIC, moved): ErrorCode.LOG_DIR_NOT_FOUND
            }
        wait_until(lambda: moved in partitions_in(folders(broker)["b"]), "it is moved")
        at = sent[0]
        wait_until(lambda: sent[0] > at + 100, "writes go on")
    finally:
        stop.set()
        writer.join()
    assert ends(broker)[TopicPartition(TOPIC, moved)] == before[TopicPartition(TOPIC, moved)] + sent[0]
    assert len(values(broker)) == sum(before.values()) + sent[0]
    assert partitions_in(folders(broker)["a"]) == [stays]
    assert broker.stop() == 0
    broker.restart()
    assert len(values(broker)) == sum(before.values()) + sent[0]
    assert not (tmp_path / "a" / f"{TOPIC}-{moved}").exists()
