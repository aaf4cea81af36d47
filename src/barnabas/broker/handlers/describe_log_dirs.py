"""DescribeLogDirs, versions 1 to 4: the data folder, its volume, and the size of each log in it."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.broker.api import Context, Steps, is_pause_due, serves
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.topics import Topics
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.topic_lookup import Topic


@serves(DescribeLogDirsRequest, ends_with_client=True)
def describe_log_dirs(
    topics: Topics, settings: DynamicSettings, request: DescribeLogDirsRequest, context: Context
) -> Steps[DescribeLogDirsResponse]:
    """Describe the logs of the partitions asked for, or of all."""
    wanted = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    described = []
    for number, topic in enumerate(list(topics.all())):
        if is_pause_due(number):
            yield
        if wanted is None or topic.name in wanted:
            described.append((yield from _describe(topic, None if wanted is None else wanted[topic.name])))
    folder = Path(settings.config.data).absolute()
    volume = shutil.disk_usage(folder)
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=str(folder),
        topics=described,
        total_bytes=volume.total,
        usable_bytes=volume.free,
    )
    return DescribeLogDirsResponse(results=[result])


def _describe(topic: Topic, numbers: Collection[int] | None) -> Steps[DescribeLogDirsTopic]:
    partitions = []
    for count, (number, replica) in enumerate(sorted(topic.hosted.items())):
        if is_pause_due(count):
            yield
        if numbers is None or number in numbers:
            size = replica.log.size_bytes
            partitions.append(
                DescribeLogDirsPartition(partition_index=number, partition_size=size, offset_lag=0, is_future_key=False)
            )
    return DescribeLogDirsTopic(name=topic.name, partitions=partitions)
