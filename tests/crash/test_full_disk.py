"""A disk that is really full: a small tmpfs, which needs root. What is acknowledged is stored, other logs go on."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

import barnabas
from tests.interop.conftest import CLIENTS
from tests.support.broker_process import BrokerProcess
from tests.support.reading import read_topic

DISK_BYTES = 8 * 1024 * 1024
SPARE_BYTES = 2 * 1024 * 1024
RECORDS = 4_000
STORAGE_ERROR = 56


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small file system cannot be mounted here: {getattr(error, 'stderr', None) or error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def broker(small_disk: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(small_disk / "data", {"log_segment_bytes": "500000", "offsets_retention_minutes": "1"})
    process.log = small_disk.parent / "broker.log"
    process.start()
    yield process
    process.close()


def produce(broker: BrokerProcess, topic: str, count: int) -> tuple[dict[int, bytes], set[int]]:
    """Send numbered values, each batch once; return what was acknowledged, by offset, and the codes of errors."""
    settings = {"bootstrap.servers": broker.bootstrap, "retries": 0, "acks": "all", "batch.size": 20_000}
    producer = confluent_kafka.Producer(settings)
    acknowledged: dict[int, bytes] = {}
    codes: set[int] = set()

    def on_delivery(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error:
            codes.add(error.code())
        else:
            acknowledged[message.offset()] = message.value()

    for number in range(count):
        producer.produce(topic, b"%06d" % number * 400, partition=0, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(60) == 0
    return acknowledged, codes


def check_stored(broker: BrokerProcess, topic: str, acknowledged: dict[int, bytes]) -> int:
    """Check that all that was acknowledged is there; return how many records there are."""
    with barnabas.Admin(broker.bootstrap) as admin:
        end = admin.end_offsets([barnabas.TopicPartition(topic, 0)])[barnabas.TopicPartition(topic, 0)]
    stored = {place.offset: event.value for place, event in read_topic(CLIENTS[0], broker.bootstrap, topic, end)}
    assert acknowledged.items() <= stored.items()
    assert sorted(stored) == list(range(end))
    return end


def fill_disk(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("settings", [{}, {"flush.messages": "1"}], ids=["unflushed", "flushed"])
def test_full_disk_stops_writes_until_there_is_room_and_nothing_else(
    broker: BrokerProcess, small_disk: Path, settings: dict[str, str]
) -> None:
    spare = small_disk / "spare"
    spare.write_bytes(bytes(SPARE_BYTES))
    with barnabas.Admin(broker.bootstrap) as admin:
        for topic in ("large", "small"):
            admin.create_topic(topic, config=settings)
    small, codes = produce(broker, "small", 10)
    assert len(small) == 10
    assert not codes
    large, codes = produce(broker, "large", RECORDS)
    assert codes == {STORAGE_ERROR}
    assert 0 < len(large) < RECORDS
    log = broker.log.read_text()
    assert "No space left on device" in log
    assert "offline" not in log
    assert check_stored(broker, "large", large) < RECORDS

    spare.unlink()
    more, codes = produce(broker, "large", 10)
    assert (len(more), codes) == (10, set())
    again, codes = produce(broker, "small", 10)
    assert not codes
    assert check_stored(broker, "small", small | again) == 20

    broker.kill()
    broker.restart()
    end = check_stored(broker, "large", large | more)
    check_stored(broker, "small", small | again)
    last, codes = produce(broker, "large", 1)
    assert (list(last), codes) == ([end], set())


def refusal(broker: BrokerProcess, topic: str, timeout_ms: int) -> str:
    """Try for so long to make a topic, and return what is told; on a slow machine no answer comes in a short time."""
    with barnabas.Admin(broker.bootstrap, default_api_timeout_ms=timeout_ms) as admin:
        with pytest.raises(barnabas.TimedOutError) as caught:
            admin.create_topic(topic)
        return str(caught.value)


def test_topic_that_does_not_fit_is_not_made(broker: BrokerProcess, small_disk: Path) -> None:
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("warm-up")
        filler = small_disk / "filler"
        fill_disk(filler)
        told = (refusal(broker, "refused", timeout_ms) for timeout_ms in (1_000, 10_000, 60_000))
        assert any("No space left on device" in each or "disk is full" in each for each in told)
        filler.unlink()
        assert not (broker.data / "refused-0").exists()
        assert admin.list_topics() == ["warm-up"]
        admin.create_topic("refused")
    assert broker.stop() == 0


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_broker_starts_on_a_full_disk_and_serves_reads(broker: BrokerProcess, small_disk: Path, ends: str) -> None:
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks", partitions=4)
    stored, codes = produce(broker, "clicks", 20)
    assert not codes
    filler = small_disk / "filler"
    if ends == "stop":
        assert broker.stop() == 0
        fill_disk(filler)
    else:
        fill_disk(filler)
        broker.kill()
    broker.restart()
    assert check_stored(broker, "clicks", stored) == 20
    assert "the disk is nearly full; deleted the reserve file" in broker.log.read_text()
    filler.unlink()
    more, codes = produce(broker, "clicks", 1)
    assert (list(more), codes) == ([20], set())
    assert broker.stop() == 0


def test_topic_can_be_deleted_on_a_full_disk(broker: BrokerProcess, small_disk: Path) -> None:
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks")
        produce(broker, "clicks", 20)
        fill_disk(small_disk / "filler")
        admin.delete_topic("clicks")
        assert admin.list_topics() == []
    assert not (broker.data / "clicks-0").exists()
