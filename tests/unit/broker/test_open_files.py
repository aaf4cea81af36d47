"""How the broker gets along with a limited number of open files."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.background_tasks import BackgroundTasks, setter_for_threads
from barnabas.broker.broker_events import Events
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.main import _raise_open_files_limit
from barnabas.broker.open_files import OTHER_FILES, OpenFiles
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.storage import Log, LogConfig, OsFileSystem
from barnabas.storage.log_appender import UNFLUSHED_SEGMENTS_MAX


@pytest.fixture
def hard_limit() -> Iterator[int]:
    """Lower what the process is allowed, below what it may allow itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_broker_allows_itself_all_the_files_that_it_may(hard_limit: int) -> None:
    _raise_open_files_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard_limit


def budget(files_max: int, logs: int = 0, connections_max: int = 5_000) -> OpenFiles:
    return OpenFiles(files_max, connections_max, lambda: logs)


@pytest.mark.parametrize("files_max", [256, 1_024, 20_000, 1_000_000, sys.maxsize])
@pytest.mark.parametrize("connections_max", [10, 5_000, 1_000_000])
def test_logs_and_connections_never_spend_more_than_there_is(files_max: int, connections_max: int) -> None:
    full = budget(files_max, connections_max=connections_max)
    for logs in (0, 1, full.logs_max // 2, full.logs_max):
        shared = budget(files_max, logs, connections_max)
        spent = logs + shared.connections_max() + 2 * shared.segments_max + OTHER_FILES
        assert spent <= files_max
        assert shared.connections_max() <= connections_max
        assert shared.connections_max() >= min(connections_max, (files_max - spent) // 4, 10)


def test_partitions_that_would_spend_the_files_are_refused() -> None:
    files = budget(1_024, logs=600)
    files.check_room(files.logs_max - 600)
    with pytest.raises(ApiError, match=r"ulimit -n is 1024") as caught:
        files.check_room(files.logs_max - 599)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(("files_max", "level"), [(1_024, "WARNING"), (1_000_000, "INFO")])
def test_how_the_files_are_shared_out_is_told(files_max: int, level: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        budget(files_max, logs=3).log_limits()
    (record,) = caplog.records
    assert record.levelname == level
    assert f"open file limit is {files_max}" in record.message


def test_unflushed_segments_of_a_log_hold_so_many_files_only(tmp_path: Path) -> None:
    """Rolls that are faster than the disk wait for it."""
    log = Log.open(tmp_path, TopicPartition("clicks", 0), LogConfig(), ManualClock(), OsFileSystem())
    for _ in range(3 * UNFLUSHED_SEGMENTS_MAX):
        builder = BatchBuilder()
        builder.append(1_000, None, b"value")
        log.append(builder.build(), 0)
        log.roll()
        open_logs = [link for link in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if str(tmp_path) in link]
        assert len(open_logs) <= UNFLUSHED_SEGMENTS_MAX + 1
    log.abandon()


def test_sealed_segments_are_flushed_when_they_pile_up() -> None:
    async def pile_up() -> None:
        flushed, due = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        logs: Any = SimpleNamespace(flush_sealed=lambda: loop.call_soon_threadsafe(flushed.set))
        no: Any = None
        background = BackgroundTasks(BrokerConfig, no, no, no, no, ManualClock(), DiskWork(), Events(), due)
        task = asyncio.create_task(background._flush_sealed(logs))
        await asyncio.sleep(0)
        await asyncio.to_thread(setter_for_threads(due))  # as a roll does
        async with asyncio.timeout(60):
            await flushed.wait()
        task.cancel()

    asyncio.run(pile_up(), debug=True)  # debug: a plain `due.set` on another thread is an error
