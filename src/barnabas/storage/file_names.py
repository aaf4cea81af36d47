"""The names of the files and folders of a data folder: Kafka's."""

from __future__ import annotations

import re

from barnabas.model import TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
TEMPORARY_SUFFIX = ".tmp"
DELETED_FOLDER_SUFFIX = "-delete"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
LOCK = ".lock"

_FOLDER_NAME_MAX = 255
_OFFSET_DIGITS = 20
_PARTITION_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]*)")


def offset_name(offset: int, suffix: str) -> str:
    """Return the name of a file that belongs to an offset.

    >>> offset_name(368769, LOG_SUFFIX)
    '00000000000000368769.log'
    """
    return f"{offset:0{_OFFSET_DIGITS}}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """Return the offset in a file name, or None if the name is not one of an offset with this suffix."""
    digits = name[: -len(suffix)]
    if name.endswith(suffix) and len(digits) == _OFFSET_DIGITS and digits.isascii() and digits.isdigit():
        return int(digits)
    return None


def partition_of(folder_name: str) -> TopicPartition | None:
    """Return the partition that a folder holds, or None if the name is not one of a partition.

    >>> partition_of("page-views-12")
    TopicPartition(topic='page-views', partition=12)
    """
    match = _PARTITION_FOLDER.fullmatch(folder_name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def deleted_folder_name(partition: TopicPartition, unique_id: str) -> str:
    """Return the name that a partition's folder bears between its deletion and its removal."""
    end = f"-{partition.partition}.{unique_id}{DELETED_FOLDER_SUFFIX}"
    return partition.topic[: _FOLDER_NAME_MAX - len(end)] + end
