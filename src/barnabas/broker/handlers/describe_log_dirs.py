"""DescribeLogDirs, versions 1 to 4: describe the log directories, their volumes, and the size of each log.

As in Kafka, an offline log directory has the error KAFKA_STORAGE_ERROR and no logs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.broker.pipeline.call import Call, Steps, is_pause_due, serves
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.topics import Topics
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.storage.data_folders import DataFolders, FolderState
from barnabas.storage.future_logs import LogMove

if TYPE_CHECKING:
    from barnabas.broker.replica import Replica

FolderOf = Callable[[TopicPartition], Path | None]


@serves(DescribeLogDirsRequest, ends_with_client=True)
def describe_log_dirs(
    topics: Topics, replicas: ReplicaManager, folders: DataFolders, request: DescribeLogDirsRequest, call: Call
) -> Steps[DescribeLogDirsResponse]:
    """Describe the logs of the requested partitions, or of all partitions."""
    wanted = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    states = folders.states()
    described: dict[Path | None, list[DescribeLogDirsTopic]] = {state.path: [] for state in states}
    for number, topic in enumerate(list(topics.all())):
        if is_pause_due(number):
            yield
        if wanted is None or topic.name in wanted:
            numbers = None if wanted is None else wanted[topic.name]
            there = yield from _describe(replicas.of_topic(topic.name), numbers, folders.folder_of)
            for path, partitions in there.items():
                if path in described:
                    described[path].append(DescribeLogDirsTopic(name=topic.name, partitions=partitions))
    for move in list(folders.moves.values()):
        if wanted is None or move.current.partition.partition in wanted.get(move.current.partition.topic, ()):
            described[move.target].append(_future(move))
    return DescribeLogDirsResponse(results=[_result(state, described[state.path]) for state in states])


def _describe(
    replicas: Mapping[int, Replica], numbers: Collection[int] | None, folder_of: FolderOf
) -> Steps[dict[Path | None, list[DescribeLogDirsPartition]]]:
    """Return the descriptions of a topic's logs, by log directory."""
    there: dict[Path | None, list[DescribeLogDirsPartition]] = {}
    for count, (number, replica) in enumerate(sorted(replicas.items())):
        if is_pause_due(count):
            yield
        if numbers is None or number in numbers:
            there.setdefault(folder_of(replica.topic_partition), []).append(
                DescribeLogDirsPartition(
                    partition_index=number, partition_size=replica.log.size_bytes, offset_lag=0, is_future_key=False
                )
            )
    return there


def _future(move: LogMove) -> DescribeLogDirsTopic:
    """Return the description of a log that is being moved to a directory."""
    partition = DescribeLogDirsPartition(
        partition_index=move.current.partition.partition,
        partition_size=move.future.size_bytes,
        offset_lag=move.missing,
        is_future_key=True,
    )
    return DescribeLogDirsTopic(name=move.current.partition.topic, partitions=[partition])


def _result(state: FolderState, topics: list[DescribeLogDirsTopic]) -> DescribeLogDirsResult:
    folder = state.path.absolute()
    if state.failure is not None:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(folder), topics=[])
    volume = shutil.disk_usage(folder)
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=str(folder),
        topics=topics,
        total_bytes=volume.total,
        usable_bytes=volume.free,
    )
