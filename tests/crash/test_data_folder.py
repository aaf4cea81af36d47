"""Data folders that a broker must not use: it says which and why, does nothing, and exits with 1."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from tests.support.broker_process import BrokerProcess


def refusal(data: Path) -> str:
    """Start a broker that cannot start; return what it says."""
    command = [sys.executable, "-m", "barnabas.cli.main", "up", "--port", "0", "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture
def stopped(broker: BrokerProcess) -> BrokerProcess:
    assert broker.stop() == 0
    return broker


def test_folder_of_a_running_broker(broker: BrokerProcess) -> None:
    assert "is used by another broker (process " in refusal(broker.data)


def test_folder_of_a_newer_format(stopped: BrokerProcess) -> None:
    meta = stopped.data / "meta.properties"
    meta.write_text(meta.read_text().replace("version=0", "version=9"))
    assert f"cannot read {meta}: format version '9' is unknown, '0' is supported" in refusal(stopped.data)


def test_folder_of_another_cluster(stopped: BrokerProcess) -> None:
    meta = stopped.data / "meta.properties"
    meta.write_text(re.sub("cluster.id=.*", "cluster.id=other", meta.read_text()))
    assert f"{meta} belongs to cluster 'other'" in refusal(stopped.data)


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert f"{tmp_path / 'data'} cannot be used as a data folder: File exists" in refusal(tmp_path / "data")


@pytest.fixture
def read_only(stopped: BrokerProcess) -> Iterator[Path]:
    """The folder of a broker, mounted read-only where root runs the tests: permissions do not stop root."""
    data = stopped.data
    if os.geteuid():
        data.chmod(0o555)
        yield data
        data.chmod(0o755)
        return
    try:
        subprocess.run(["mount", "--bind", str(data), str(data)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a folder cannot be mounted read-only here: {error}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(data)], check=True)
        yield data
    finally:
        subprocess.run(["umount", "--lazy", str(data)], check=True)


def test_read_only_folder(read_only: Path) -> None:
    said = refusal(read_only)
    assert f"{read_only} cannot be used as a data folder" in said
    assert "Read-only file system" in said or "Permission denied" in said


def test_partition_that_cannot_be_loaded_is_offline_and_the_others_are_served(broker: BrokerProcess) -> None:
    first, second = barnabas.TopicPartition("clicks", 0), barnabas.TopicPartition("clicks", 1)
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks", partitions=2)
    with barnabas.Producer(broker.bootstrap) as producer:
        for number in range(2):
            producer.send("clicks", b"value", partition=number).result()
    assert broker.stop() == 0
    log = broker.data / "clicks-0" / f"{0:020}.log"
    log.rename(broker.data / "moved")
    log.mkdir()
    broker.start()
    with barnabas.Admin(broker.bootstrap, default_api_timeout_ms=4_000) as admin:
        assert admin.end_offsets([second]) == {second: 1}
        with pytest.raises(barnabas.BarnabasError):
            admin.end_offsets([first])
    settings = {"retries": 0, "delivery_timeout_ms": 8_000, "request_timeout_ms": 4_000, "linger_ms": 0}
    with barnabas.Producer(broker.bootstrap, **settings) as producer:
        assert producer.send("clicks", b"value", partition=1).result().offset == 1
        with pytest.raises(barnabas.BarnabasError, match=r"KAFKA_STORAGE_ERROR|8000 ms|8 s"):
            producer.send("clicks", b"value", partition=0).result()
    assert f"{broker.data / 'clicks-0'}: cannot load the log" in broker.log.read_text()
    broker.stop()
    log.rmdir()
    (broker.data / "moved").rename(log)
    broker.start()
    with barnabas.Admin(broker.bootstrap) as admin:
        assert admin.end_offsets([first, second]) == {first: 1, second: 2}
