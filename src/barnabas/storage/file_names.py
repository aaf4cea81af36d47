"""The names of the files and directories in a data directory, as in Kafka."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from barnabas.model import TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
DAMAGED_SUFFIX = ".damaged"
BEFORE_START_SUFFIX = ".before-start"
TEMPORARY_SUFFIX = ".tmp"
CLEANED_SUFFIX = ".cleaned"
"""The suffix of a file that the cleaner writes."""
SWAP_SUFFIX = ".swap"
"""The suffix of a cleaned file during the swap."""
DELETED_FOLDER_SUFFIX = "-delete"
FUTURE_FOLDER_SUFFIX = "-future"
"""The suffix of a future log, which will replace a log in another data directory (KIP-113)."""

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
DELETION_NOTE = ".deleted-by-broker"
MOVE_NOTE = ".moved-by-broker"
WANTED_MOVES = "log-moves"
LEAVING_LOGS = "logs-moved-away"
LIFE_COUNTER = "life-counter"
RESERVE = ".reserve"
LOCK = ".lock"

_FOLDER_NAME_MAX = 255
_OFFSET_DIGITS = 20
_OFFSET_MAX = 2**63 - 1
_SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
_DELETED_FOLDER = re.compile(r"[a-zA-Z0-9._-]+-(0|[1-9][0-9]*)\.[0-9a-f]{32}-delete")
_PARTITION_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]*)")


def offset_name(offset: int, suffix: str) -> str:
    """Return the name of a file for an offset.

    >>> offset_name(368769, LOG_SUFFIX)
    '00000000000000368769.log'
    """
    return f"{offset:0{_OFFSET_DIGITS}}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """Return the offset in a file name, or None if the name is not an offset with this suffix."""
    if len(name) != _OFFSET_DIGITS + len(suffix) or not name.endswith(suffix):
        return None
    digits = name[:_OFFSET_DIGITS]
    if not (digits.isascii() and digits.isdigit()):
        return None
    offset = int(digits)
    return offset if offset <= _OFFSET_MAX else None


def offsets_by_suffix(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the offsets in the file names of a partition directory, for each suffix of segment files.

    >>> offsets_by_suffix(["00000000000000000007.log", "00000000000000000007.index", "notes"])
    {'.log': [7], '.index': [7], '.timeindex': [], '.snapshot': []}
    """
    offsets: dict[str, list[int]] = {suffix: [] for suffix in _SEGMENT_SUFFIXES}
    for name in names:
        suffix = name[_OFFSET_DIGITS:]
        if suffix in offsets and (offset := offset_of(name, suffix)) is not None:
            offsets[suffix].append(offset)
    return offsets


def is_deleted_file(name: str) -> bool:
    """Return whether a file name belongs to a deleted file of a log.

    >>> is_deleted_file("00000000000000368769.log.deleted"), is_deleted_file("notes.deleted")
    (True, False)
    """
    return name.endswith(DELETED_SUFFIX) and _is_of_segment(name.removesuffix(DELETED_SUFFIX))


def is_temporary_file(name: str) -> bool:
    """Return whether a file name belongs to a temporary file. Such a file is renamed when it is complete.

    >>> is_temporary_file("leader-epoch-checkpoint.tmp"), is_temporary_file("notes.tmp")
    (True, False)
    """
    whole = name.removesuffix(TEMPORARY_SUFFIX)
    known = whole in {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA} or _is_of_segment(whole)
    return name.endswith(TEMPORARY_SUFFIX) and known


def segment_file_of(name: str, ending: str) -> tuple[int, str] | None:
    """Return the base offset and the suffix of a segment file whose name ends with an additional suffix, or None.

    >>> segment_file_of("00000000000000368769.log.swap", SWAP_SUFFIX)
    (368769, '.log')
    >>> segment_file_of("notes.log.swap", SWAP_SUFFIX)
    """
    if not name.endswith(ending):
        return None
    whole = name.removesuffix(ending)
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        if (offset := offset_of(whole, suffix)) is not None:
            return offset, suffix
    return None


def is_deleted_folder(name: str) -> bool:
    """Return whether a directory name belongs to a deleted partition.

    >>> is_deleted_folder("clicks-0.0123456789abcdef0123456789abcdef-delete"), is_deleted_folder("to-delete")
    (True, False)
    """
    return _DELETED_FOLDER.fullmatch(name) is not None


def is_future_folder(name: str) -> bool:
    """Return whether a directory name belongs to a future log.

    >>> is_future_folder("clicks-0.0123456789abcdef0123456789abcdef-future"), is_future_folder("the-future")
    (True, False)
    """
    whole = name.removesuffix(FUTURE_FOLDER_SUFFIX)
    return whole != name and is_deleted_folder(whole + DELETED_FOLDER_SUFFIX)


def future_folder_name(partition: TopicPartition, unique_id: str) -> str:
    """Return the directory name of a partition's future log."""
    return deleted_folder_name(partition, unique_id).removesuffix(DELETED_FOLDER_SUFFIX) + FUTURE_FOLDER_SUFFIX


def is_of_empty_log(name: str) -> bool:
    """Return whether a file with this name may exist in a log that never contained a record.

    >>> is_of_empty_log("partition.metadata"), is_of_empty_log("00000000000000000007.log"), is_of_empty_log("notes")
    (True, False, False)
    """
    return name in _OF_EMPTY_LOG


def _is_of_segment(name: str) -> bool:
    return any(offset_of(name, suffix) is not None for suffix in _SEGMENT_SUFFIXES)


_WHOLE = (
    *(offset_name(0, suffix) for suffix in _SEGMENT_SUFFIXES),
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    MOVE_NOTE,
)
_OF_EMPTY_LOG = frozenset([*_WHOLE, *(name + TEMPORARY_SUFFIX for name in _WHOLE), DELETION_NOTE])


def partition_of(folder_name: str) -> TopicPartition | None:
    """Return the partition of a partition directory, or None if the name is not the name of a partition directory.

    >>> partition_of("page-views-12")
    TopicPartition(topic='page-views', partition=12)
    """
    match = _PARTITION_FOLDER.fullmatch(folder_name)
    # With interning, memory contains the topic name only once for all its partitions.
    return TopicPartition(sys.intern(match["topic"]), int(match["partition"])) if match else None


def deleted_folder_name(partition: TopicPartition, unique_id: str) -> str:
    """Return the directory name that a deleted partition gets until it is removed from the disk."""
    end = f"-{partition.partition}.{unique_id}{DELETED_FOLDER_SUFFIX}"
    return partition.topic[: _FOLDER_NAME_MAX - len(end)] + end
