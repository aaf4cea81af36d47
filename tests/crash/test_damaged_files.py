"""Under a stopped broker any one file is removed, emptied, zeroed, cut, swapped with a neighbour's, or an older one.

Whatever it is: nothing is deleted, no offset is used twice, and the other partitions are served as before.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker_events import Events
from barnabas.broker.cluster_watch import MetadataUpdate
from barnabas.broker.open_files import OpenFiles
from barnabas.broker.random_source import RandomSource
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import default_log_config
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.clock import ManualClock
from barnabas.coordination import topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.values import BrokerRegistration, LiveBroker
from barnabas.errors import BarnabasError, CorruptBatchError, StorageError
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, Record
from barnabas.storage import Log, LogManager, OsFileSystem
from tests.support.log_steps import read

DAMAGED = TopicPartition("clicks", 0)
BESIDE = TopicPartition("clicks", 1)
OTHER = TopicPartition("other", 0)
CONFIG = BrokerConfig()
SETTINGS = {"segment.bytes": "1000", "index.interval.bytes": "100", "retention.ms": "-1"}
RECORDS = 40
STARTED_WITH = 10
"""Before this offset the records of a partition are deleted."""

MakeBatch = Callable[..., bytearray]
ReadAll = Callable[[Log], list[Record]]
DAMAGES = ["removed", "emptied", "zeroed", "cut", "swapped", "older"]


@contextmanager
def started(folder: Path) -> Iterator[tuple[Topics, TopicAdmin, LogManager]]:
    """Use a data folder as a broker does."""
    with closing(EmbeddedMetadataStore(folder / "tree.sqlite")) as tree:
        topic_metadata_store.prepare(tree, "castle")
        logs = LogManager(folder, default_log_config(CONFIG), ManualClock(), OsFileSystem(), cluster_id="castle")
        try:

            async def in_metadata_thread(function: Callable[..., Any], *arguments: Any) -> Any:
                return function(*arguments)

            run: Any = in_metadata_thread
            topics, files = Topics(CONFIG, tree, logs, run, Events()), OpenFiles(10_000, 100, logs.count)
            admin = TopicAdmin(
                CONFIG.broker_id, topics, tree, run, Events(), files, RandomSource(), lambda _count: None
            )
            me = LiveBroker(BrokerRegistration(CONFIG.broker_id, "here", 1), 1)
            update = MetadataUpdate({CONFIG.broker_id: me}, topics=dict(topic_metadata_store.each_topic(tree)))
            asyncio.run(topics.load(update))
            yield topics, admin, logs
        finally:
            logs.abandon()


def append(topics: Topics, where: TopicPartition, first: int, last: int) -> None:
    for number in range(first, last, 2):
        builder = BatchBuilder()
        builder.append_many(1_000 + number, [f"<{where}:{number + index}>".encode() for index in range(2)])
        batch = builder.build(producer_id=1, producer_epoch=0, base_sequence=number)
        partition = topics.replicas.leader(*where)
        partition.log.append(bytearray(batch), partition.leader_epoch)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data folder, stopped cleanly, and how it was some time before."""
    folder = tmp_path_factory.mktemp("made")
    now, before = folder / "now", folder / "before"
    now.mkdir()
    for half in (0, 1):
        with started(now) as (topics, admin, logs):
            if not half:
                asyncio.run(admin.create("clicks", 2, SETTINGS))
                asyncio.run(admin.create("other", 1, SETTINGS))
            for where in (DAMAGED, BESIDE, OTHER):
                append(topics, where, half * RECORDS // 2, (half + 1) * RECORDS // 2)
            if not half:
                logs.all()[DAMAGED].delete_records_before(STARTED_WITH)
                logs.remove_deleted_records()
            logs.close()
        if not half:
            shutil.copytree(now, before)
    return now, before


def damage_file(path: Path, damage: str, before: Path) -> bool:
    """Damage a file; return False if that changes nothing."""
    content = path.read_bytes()
    if damage == "removed":
        path.unlink()
        return True
    if damage == "swapped":
        neighbours = [each for each in sorted(path.parent.glob(f"*{path.suffix}")) if each != path and each.is_file()]
        if path.name.endswith("offset-checkpoint"):
            neighbours = [each for each in sorted(path.parent.glob("*offset-checkpoint")) if each != path]
        elif not neighbours or not path.suffix:
            neighbours = [path.parent.parent / str(BESIDE) / path.name]
        if not neighbours[0].is_file():
            return False
        path.write_bytes(neighbours[0].read_bytes())
        neighbours[0].write_bytes(content)
    elif damage == "older":
        if not before.is_file():
            return False
        shutil.copy(before, path)
    else:
        size = len(content)
        path.write_bytes({"emptied": b"", "zeroed": bytes(size), "cut": content[: size // 2]}[damage])
    return path.read_bytes() != content


def values_in(folder: Path) -> set[bytes]:
    """All values that are anywhere in the files of a data folder."""
    found: set[bytes] = set()
    for path in folder.rglob("*"):
        if path.is_file() and "sqlite" not in path.name:
            found.update(re.findall(rb"<[a-z]+-\d:\d+>", path.read_bytes()))
    return found


def files_of(now: Path) -> list[Path]:
    names = [path.relative_to(now) for path in sorted(now.iterdir()) if path.is_file()]
    return names + [path.relative_to(now) for path in sorted((now / str(DAMAGED)).iterdir())]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_any_one_file_is_damaged(
    damage: str, clean: bool, made: tuple[Path, Path], memory_path: Path, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    now, before = made
    for name in files_of(now):
        folder = memory_path / "data"
        shutil.copytree(now, folder)
        if not clean:
            (folder / ".kafka_cleanshutdown").unlink()
        if (folder / name).exists() and damage_file(folder / name, damage, before / name):
            check_start(folder, name, make_batch, read_all)
        shutil.rmtree(folder)


def check_start(folder: Path, name: Path, make_batch: MakeBatch, read_all: ReadAll) -> None:
    values, names = values_in(folder), {path.relative_to(folder) for path in folder.rglob("*")}
    # What all logs depend on. The broker does not start, says why, and touches nothing.
    may_refuse = name.name in {"meta.properties", "tree.sqlite"}
    with suppress(BarnabasError) if may_refuse else nullcontext(), started(folder) as (topics, admin, logs):
        opened = logs.all()
        for where in (BESIDE, OTHER):
            check_served(opened[where], read_all)
        if topics.get("clicks") is not None:
            check_no_offset_is_used_twice(topics, make_batch)
        else:
            # The tree knows nothing of the folders: they are in the way, and stay.
            with pytest.raises(BarnabasError):
                asyncio.run(admin.create("clicks", 2, {}))
    lost = values - values_in(folder)
    # A batch that was cut in two is no batch.
    assert len(lost) <= 2, (name, lost)
    gone = {path for path in names if not list(folder.glob(f"{path}*"))}
    assert not {path for path in gone if not path.name.startswith((".kafka_clean", "tree"))}, name


def check_served(log: Log, read_all: ReadAll) -> None:
    records = read_all(log)
    assert [record.value for record in records] == [f"<{log.partition}:{record.offset}>".encode() for record in records]
    assert log.log_end_offset >= RECORDS // 2


def check_no_offset_is_used_twice(topics: Topics, make_batch: MakeBatch) -> None:
    partition = topics.replicas.leader(*DAMAGED)
    try:
        info = partition.log.append(make_batch([b"new"]), partition.leader_epoch)
    except StorageError:
        return
    assert info.base_offset >= RECORDS
    log = partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            region = read(log, offset, 1, log.high_watermark)
        except CorruptBatchError:
            break
        assert region
        offset += 1
