"""How long a broker takes from its start until it serves, with data that was flushed and data that was not.

    .venv/bin/python -m bench.start_up [GIGABYTES ...]

For each size a topic of 4 partitions is filled with batches of 64 KiB (random bytes, no sparse files) and flushed;
the broker is then started after a clean stop and after a kill. Last, the same after a kill with 1 GB in one
partition that was not flushed: all of it has to be read and checked. The page cache is dropped before each start
where that is allowed, so that the disk is measured too. Nothing is left behind.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import barnabas
from barnabas.clock import SYSTEM_CLOCK
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.storage import LogConfig, LogManager, OsFileSystem

GIGABYTE = 10**9
PARTITIONS = 4
BATCH_BYTES = 64 * 1024
VALUE_BYTES = 1_000
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


class Broker:
    """A broker process on a folder."""

    def __init__(self, data: Path) -> None:
        started = time.perf_counter()
        command = [sys.executable, "-m", "barnabas.cli.main", "up", "--port", "0", "--data", str(data)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout
        line = self._process.stdout.readline()
        self.seconds_to_ready = time.perf_counter() - started
        self.bootstrap = line.split()[1]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def fill(data: Path, size_bytes: int, partitions: int, *, flush: bool) -> None:
    """Write into the logs of a stopped broker, and leave them as a kill would."""
    manager = LogManager(data, LogConfig(), SYSTEM_CLOCK, OsFileSystem())
    builder = BatchBuilder()
    while builder.size_bytes < BATCH_BYTES:
        builder.append(SYSTEM_CLOCK.time_ms(), None, secrets.token_bytes(VALUE_BYTES))
    batch = builder.build()
    for number in range(partitions):
        log = manager.create(TopicPartition("clicks", number))
        for _ in range(size_bytes // partitions // len(batch)):
            log.append(batch, leader_epoch=0)
        if flush:
            log.flush()
    if flush:
        manager.checkpoint_recovery_points()
    manager._abandon()


def time_start(what: str, data: Path) -> None:
    with contextlib.suppress(OSError):
        os.sync()
        DROP_CACHES.write_text("1")
    broker = Broker(data)
    sys.stdout.write(f"{what}: ready after {broker.seconds_to_ready:.2f} s\n")
    broker.stop()


def new_topic(data: Path) -> None:
    broker = Broker(data)
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks", partitions=PARTITIONS, config={"retention.ms": "-1"})
        admin.describe_topics(["clicks"])
    barnabas.Producer(broker.bootstrap).close()
    broker.stop()


def measure(folder: Path, gigabytes: float) -> None:
    data = folder / "flushed"
    new_topic(data)
    fill(data, int(gigabytes * GIGABYTE), PARTITIONS, flush=True)
    time_start(f"{gigabytes:g} GB flushed, after a kill", data)
    time_start(f"{gigabytes:g} GB flushed, after a clean stop", data)
    shutil.rmtree(data)


def measure_recovery(folder: Path) -> None:
    data = folder / "unflushed"
    new_topic(data)
    fill(data, GIGABYTE, 1, flush=False)
    time_start("1 GB not flushed, after a kill", data)
    shutil.rmtree(data)


def main() -> None:
    """Measure every size that is asked for."""
    sizes = [float(argument) for argument in sys.argv[1:]] or [0.0, 1.0, 20.0]
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=Path.cwd()) as folder:
        for size in sizes:
            measure(Path(folder), size)
        measure_recovery(Path(folder))


if __name__ == "__main__":
    main()
