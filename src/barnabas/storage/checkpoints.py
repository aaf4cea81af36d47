"""The small text files of a log, and the checkpoint files with one offset for each log. All have Kafka's formats.

Invariants. Each write replaces a file as a whole and atomically. `OffsetCheckpoints` durably stores recovery points,
log start offsets, high watermarks and first dirty offsets. A damaged checkpoint is renamed and treated as empty.
Recovery then uses the files of each log.

Threads. Any thread may use this module.

Errors. Parsers are strict: a file that differs from the written format raises ValueError. The caller then gets the same
data from another source, except for `meta.properties`. StorageError is raised if a checkpoint cannot be stored; the old
file remains. OSError is raised if a file cannot be read.
"""

from __future__ import annotations

import base64
import functools
import json
import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from barnabas.errors import StorageError
from barnabas.model import LIFE_MAX, LifeMark, TopicPartition
from barnabas.storage.damaged_files import rename_damaged
from barnabas.storage.file_names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from barnabas.storage.filesystem import FileSystem, read_file, replace_file

logger = logging.getLogger(__name__)

_VERSION = "0"
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_METADATA_VERSION = "version: 0"
_TOPIC_ID = "topic_id: "

_REMEMBERED = 1_000
"""The number of decoded file contents in the cache. The logs of a topic usually have equal files."""


class EpochStart(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


def _encode_lines(rows: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(rows)), *rows, ""]).encode()


def _decode_lines(data: bytes) -> list[str]:
    lines = data.decode("ascii").split("\n")
    if lines[0] != _VERSION or len(lines) < 2 or str(len(lines) - 3) != lines[1] or lines[-1]:
        raise ValueError("the version or the number of rows is wrong")
    return lines[2:-1]


def _number(text: str, greatest: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(greatest)) or int(text) > greatest:
        raise ValueError(f"{text[:40]!r} is not an offset, epoch or partition")
    return int(text)


class StoredOffsets(NamedTuple):
    """The offsets of one log in three checkpoints of the data directory.

    An offset is 0 if its checkpoint does not contain the log.
    """

    recovery_point: int = 0
    """The offset below which all records were fsynced."""
    log_start_offset: int = 0
    """The offset below which all records were deleted."""
    high_watermark: int = 0
    """The offset up to which consumers could read."""

    @property
    def reached_by_two(self) -> int:
        """The greatest offset that at least two of the three checkpoints have reached."""
        return sorted(self)[1]


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the content of `recovery-point-offset-checkpoint`, or of another checkpoint in its format.

    >>> encode_offsets({TopicPartition("clicks", 0): 42})
    b'0\\n1\\nclicks 0 42\\n'
    """
    return _encode_lines([f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())])


def decode_offsets(
    data: bytes, known: Mapping[TopicPartition, TopicPartition] = MappingProxyType({})
) -> dict[TopicPartition, int]:
    """Decode the content of a checkpoint; see `encode_offsets`.

    :param known: existing partition objects. The result reuses them for equal partitions, to save memory.
    :raises ValueError: the content is damaged.
    """
    offsets = {}
    for row in _decode_lines(data):
        topic, partition, offset = row.split(" ")
        where = TopicPartition(topic, _number(partition, _INT_MAX))
        offsets[known.get(where, where)] = _number(offset, _LONG_MAX)
    return offsets


def encode_leader_epochs(entries: Iterable[EpochStart]) -> bytes:
    """Return the content of `leader-epoch-checkpoint`."""
    return _encode_lines([f"{entry.epoch} {entry.start_offset}" for entry in entries])


@functools.lru_cache(_REMEMBERED)
def decode_leader_epochs(data: bytes) -> tuple[EpochStart, ...]:
    """Decode the content of `leader-epoch-checkpoint`.

    :raises ValueError: the content is damaged, or epochs or offsets do not ascend.
    """
    entries: list[EpochStart] = []
    for row in _decode_lines(data):
        epoch_text, start_text = row.split(" ")
        epoch, start_offset = _number(epoch_text, _INT_MAX), _number(start_text, _LONG_MAX)
        if entries and (epoch <= entries[-1].epoch or start_offset < entries[-1].start_offset):
            raise ValueError(f"epoch {epoch} at offset {start_offset} follows {entries[-1]}")
        entries.append(EpochStart(epoch, start_offset))
    return tuple(entries)


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """Return the content of `partition.metadata` (KIP-516)."""
    return f"{_METADATA_VERSION}\n{_TOPIC_ID}{encode_uuid(topic_id)}".encode()


@functools.lru_cache(_REMEMBERED)
def decode_partition_metadata(data: bytes) -> uuid.UUID:
    """Decode the content of `partition.metadata`.

    :raises ValueError: the content is damaged.
    """
    version, topic_id = data.decode("ascii").strip().split("\n")
    if version != _METADATA_VERSION or not topic_id.startswith(_TOPIC_ID):
        raise ValueError(f"{version!r}, {topic_id!r}; must be {_METADATA_VERSION!r} and {_TOPIC_ID!r} with an id")
    return decode_uuid(topic_id.removeprefix(_TOPIC_ID))


def encode_uuid(value: uuid.UUID) -> str:
    """Return an id in Kafka's text form: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """Decode an id from Kafka's text form.

    :raises ValueError: `text` is not an id.
    """
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def encode_clean_shutdown() -> bytes:
    """Return the content of `.kafka_cleanshutdown`. Its broker epoch is always -1, because Barnabas does not use it
    (KIP-966)."""
    return json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":")).encode()


def encode_life(mark: LifeMark, confirmed_life: int = 0) -> bytes:
    """Return the content of `life-counter`.

    :param confirmed_life: the highest counter that the metadata store is known to have had.

    >>> encode_life(LifeMark(7, 1_700_000_000_000, 42), 6)
    b'0\\n1\\n7 1700000000000 42 6\\n'
    """
    return _encode_lines([f"{mark.life} {mark.noted_ms} {mark.record_count} {confirmed_life}"])


def decode_life(data: bytes) -> tuple[LifeMark, int]:
    """Decode the content of `life-counter`: the counter, and the highest known counter in the metadata store.

    :raises ValueError: the content is damaged.
    """
    (row,) = _decode_lines(data)
    life, noted_ms, record_count, confirmed = (_number(each, LIFE_MAX) for each in row.split(" "))
    return LifeMark(life, noted_ms, record_count), confirmed


class MetaProperties(NamedTuple):
    """The cluster and the broker that own a data directory, and the boot id of the machine at its last use.

    :param folder_ids: the ids of all data directories of the broker, in order. It is empty if the broker has only one.
    """

    broker_id: int
    cluster_id: str
    directory_id: str = ""
    boot_id: str = ""
    folder_ids: tuple[str, ...] = ()


def encode_meta_properties(meta: MetaProperties) -> bytes:
    rows = [f"version=0\nbroker.id={meta.broker_id}\ncluster.id={meta.cluster_id}"]
    rows += [f"directory.id={meta.directory_id}"] if meta.directory_id else []
    rows += [f"boot.id={meta.boot_id}"] if meta.boot_id else []
    rows += [f"folder.ids={','.join(meta.folder_ids)}"] if meta.folder_ids else []
    return "\n".join([*rows, ""]).encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Decode the content of `meta.properties`.

    :raises ValueError: the content is damaged, or has an unknown version.
    """
    rows = [row.strip() for row in data.decode().splitlines()]
    properties = dict(row.split("=", 1) for row in rows if row and not row.startswith("#"))
    if properties.get("version") != "0":
        version = properties.get("version")
        raise ValueError(
            f"format version {version!r} is unknown, '0' is supported; a newer Barnabas may have written the file"
        )
    if missing := {"broker.id", "cluster.id"} - properties.keys():
        raise ValueError(f"missing: {', '.join(sorted(missing))}")
    return MetaProperties(
        int(properties["broker.id"]),
        properties["cluster.id"],
        properties.get("directory.id", ""),
        properties.get("boot.id", ""),
        tuple(each for each in properties.get("folder.ids", "").split(",") if each),
    )


_NAMES = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
_ALL_NAMES = (*_NAMES, CLEANER_CHECKPOINT)


class OffsetCheckpoints:
    """The stored offsets of the logs of a data directory."""

    def __init__(self, filesystem: FileSystem, folder: Path) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._lock = threading.Lock()
        self._stored: dict[str, dict[TopicPartition, int]] = {name: {} for name in _ALL_NAMES}

    def read(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read the checkpoint files.

        :param partitions: the logs in the data directory.
        :raises OSError: the file system returned an error.
        """
        known = {each: each for each in partitions}
        for name in _ALL_NAMES:
            path = self._folder / name
            try:
                self._stored[name] = decode_offsets(read_file(self._filesystem, path), known)
            except FileNotFoundError:
                continue
            except ValueError as error:
                renamed = rename_damaged(self._filesystem, path)
                logger.warning(
                    "checkpoint %s is damaged; renamed it to %s and ignoring its content: %s", path, renamed.name, error
                )

    def of(self, partition: TopicPartition) -> StoredOffsets:
        with self._lock:
            return StoredOffsets(*(self._stored[name].get(partition, 0) for name in _NAMES))

    def first_dirty_offset(self, partition: TopicPartition) -> int:
        """Return the stored offset up to which a log is compacted; 0 if no offset is stored."""
        with self._lock:
            return self._stored[CLEANER_CHECKPOINT].get(partition, 0)

    def store(self, name: str, offsets: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Durably store one offset for each log. Offsets of 0 are left out.

        :param offsets: returns the offsets. It is called under the lock, so older offsets never replace newer offsets.
        :raises StorageError: the write failed; the old file remains.
        """
        with self._lock:
            current = {partition: offset for partition, offset in offsets().items() if offset}
            if self._stored[name] != current:
                self._replace(name, current)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Remove some logs from all checkpoints.

        :raises StorageError: the write failed.
        """
        with self._lock:
            for name, stored in list(self._stored.items()):
                others = {each: offset for each, offset in stored.items() if each not in partitions}
                if len(others) < len(stored):
                    self._replace(name, others)

    def _replace(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        try:
            replace_file(self._filesystem, self._folder / name, encode_offsets(offsets), durable=True)
        except OSError as error:
            raise StorageError(f"cannot write checkpoint {self._folder / name}: {error}") from error
        self._stored[name] = offsets
