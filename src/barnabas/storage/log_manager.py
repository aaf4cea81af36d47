"""All logs of a broker: one data folder, used by one process at a time.

Layout: `<topic>-<partition>/` per log, `meta.properties` (whose folder it is), `.lock`,
three checkpoints with an offset of each log (`barnabas.storage.offset_checkpoints`), and `.kafka_cleanshutdown` while
no broker runs and the last one stopped cleanly. Other folders and files are left alone.

A log that cannot be loaded is offline: its files are not touched, and the other logs can be used.

The marker of a clean shutdown is written after every log was fsynced, and only if every one was; it is removed,
durably, before anything is written.

Not safe to use from several threads, except for `flush_sealed`, `remove_deleted_records`, `checkpoint_...` and
`purge_deleted`.
"""

from __future__ import annotations

import functools
import logging
import os
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from barnabas.clock import Clock
from barnabas.errors import BarnabasError, DataFolderError, StorageError
from barnabas.model import TopicPartition
from barnabas.storage.checkpoints import (
    StoredOffsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_partition_metadata,
)
from barnabas.storage.deleted_files import DeletedFiles
from barnabas.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    DELETED_FOLDER_SUFFIX,
    DELETION_NOTE,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    deleted_folder_name,
    is_deleted_folder,
    partition_of,
)
from barnabas.storage.filesystem import FileSystem, is_shortage, read_file, replace_file
from barnabas.storage.folder_identity import NO_ROOM, identify, lock_folder, note_boot
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.offline_log import offline_log
from barnabas.storage.offset_checkpoints import OffsetCheckpoints
from barnabas.storage.segment_list import SEALED_OPEN_MAX, OpenSegments
from barnabas.storage.set_aside import set_aside
from barnabas.storage.side_by_side import in_groups

logger = logging.getLogger(__name__)

_SERIAL_MAX = 32
"""Up to so many logs are closed one after the other; more are closed on threads, which wait for the disk side by
side."""

_CLOSING_THREADS = 16
_AT_ONCE = 16
"""Many logs are loaded or closed on a thread in groups of this size."""

_LOADING_THREADS = 4
"""A start that finds nothing in the page cache waits for the disk most of the time, once for every file. More threads
only wait for the interpreter."""
_ONE_BY_ONE_MAX = 1_000
"""So many logs are loaded one by one, since some may have much to check; if they are more, in groups."""


class _Found(NamedTuple):
    """A log folder as it was loaded."""

    log: Log
    topic_id: uuid.UUID | None


SEALED_UNFLUSHED_MAX = 16
"""Segments sealed since the last flush, over all logs, that are worth a flush soon: each holds a file open."""


class LogManager:
    """The logs in a data folder. Opening one locks the folder and loads, and recovers, every log in it.

    :param config: of logs whose topic has no settings of its own.
    :param topic_configs: returns those of the others, by topic; asked after a stop that was not clean, since what is
        damage in a log depends on its settings.
    :param file_delete_delay_ms: how long the files of what was deleted stay.
    :param segments_open_max: how many sealed segments, of all logs, are kept open after they were read.
    :param cluster_id: of the cluster that the broker belongs to; written into a new folder, compared with what
        an old one says. None: whatever the folder says.
    :param boot_id: names the present boot of the machine: after another one, and a stop that was not clean,
        `lost_memory` says that what was not fsynced is lost, until `note_boot`.
    :raises DataFolderError: the folder is used by another broker, belongs to another one, or cannot be read or
        written; the message names the file or folder.
    """

    def __init__(
        self,
        data_dir: Path,
        config: LogConfig,
        clock: Clock,
        filesystem: FileSystem,
        *,
        broker_id: int = 0,
        cluster_id: str | None = None,
        file_delete_delay_ms: int = 0,
        segments_open_max: int = SEALED_OPEN_MAX,
        boot_id: str = "",
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
        topic_configs: Callable[[], Mapping[str, LogConfig]] = dict,
        new_threads: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        self.data_dir = data_dir
        self.config = config
        self.topic_ids: dict[TopicPartition, uuid.UUID] = {}
        """What `partition.metadata` says, where there is one."""
        self.missing: set[TopicPartition] = set()
        """Those that `restore` had to make anew."""
        self.on_flush_due: Callable[[], object] = lambda: None
        """Called on the thread that rolls a segment, when `flush_sealed` should be called soon."""
        self._rolled = 0
        self._on_rolled, self._on_truncated = self._note_roll, self._checkpoint  # the same ones for all logs
        self._clock = clock
        self._boot_id = boot_id
        self._filesystem = filesystem
        self._new_id = new_id
        self._new_threads = new_threads
        self._logs: dict[TopicPartition, Log] = {}
        self._open_segments = OpenSegments(segments_open_max)
        self._foreign: set[TopicPartition] = set()
        """Their folders belong to other topics."""
        self._half_deleted: set[TopicPartition] = set()
        """Logs that were deleted, but whose folders could not be renamed."""
        self._deleted = DeletedFiles(filesystem, clock, file_delete_delay_ms / 1000)
        self._checkpoints = OffsetCheckpoints(filesystem, data_dir)
        self._closed = False
        try:
            filesystem.make_folder(data_dir)
            self._lock_file = lock_folder(filesystem, data_dir)
        except OSError as error:
            raise DataFolderError(f"{data_dir}: cannot be used as a data folder: {error}") from error
        try:
            self.meta = identify(filesystem, data_dir, broker_id, cluster_id, new_id)
            self.was_clean = self._load_logs(topic_configs)
            last_boot_id = self.meta.boot_id if self.meta else ""
            self.lost_memory = not self.was_clean and last_boot_id not in {"", boot_id}
            if not self.lost_memory:
                self.note_boot()
        except BaseException:
            self._abandon()
            raise

    def note_boot(self) -> None:
        """Count nothing as lost any longer. Until then each start finds `lost_memory`, however this one ends.

        :raises DataFolderError: it cannot be written.
        """
        if self.meta is not None:
            self.meta = note_boot(self._filesystem, self.data_dir, self.meta, self._boot_id)
        self.lost_memory = False

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the folder belongs to, if it is known."""
        return self.meta.cluster_id if self.meta else None

    # --- logs ---

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, if it is here."""
        return self._logs.get(partition)

    def count(self) -> int:
        """Return how many logs there are."""
        return len(self._logs)

    def all(self) -> dict[TopicPartition, Log]:
        """Return all logs."""
        return dict(self._logs)

    def create(
        self, partition: TopicPartition, config: LogConfig | None = None, topic_id: uuid.UUID | None = None
    ) -> Log:
        """Begin a log; return the one that is here already if there is one.

        :raises StorageError: the disk refuses.
        """
        log = self._logs.get(partition)
        if log is not None:
            return log
        if any(self._checkpoints.of(partition)) or self._checkpoints.first_dirty_offset(partition):
            # They are of a log that was deleted, and must not be taken for those of this one.
            self._checkpoint()
        if partition in self._half_deleted:
            self._set_folder_aside(partition)
        folder = self.data_dir / str(partition)
        if self._filesystem.exists(folder):
            raise StorageError(f"{folder} is there already, and nobody knows whose it is; move it away")
        try:
            self._make_folder(folder, topic_id)
            log = self._open(partition, config or self.config)
        except (OSError, StorageError) as error:
            self._remove_unfinished(folder)
            raise StorageError(f"{folder}: cannot be made: {error}") from error
        return self._keep(log, topic_id)

    def restore(self, partition: TopicPartition, config: LogConfig | None, topic_id: uuid.UUID) -> Log:
        """Return the log of a partition that there should be; begin it where the checkpoints say if it is gone.

        Where that is not possible, or another topic's folder has its name, the log that is returned is offline.
        """
        log, known_id = self._logs.get(partition), self.topic_ids.get(partition)
        if log is not None and (known_id == topic_id or (log.is_offline and known_id is None)):
            return log
        if known_id not in (None, topic_id):
            self._foreign.add(partition)
            reason = f"it belongs to another topic of this name, with the id {known_id}; move it away, and start again"
            return self.put_offline(partition, reason)
        folder = self.data_dir / str(partition)
        if log is None:
            self.missing.add(partition)
        try:
            if log is None and any(self._checkpoints.of(partition)):
                logger.error("%s is missing; what was in it is lost, unless you put it back and start again", folder)
            self._make_folder(folder, topic_id)
            log = log or self._open(partition, config or self.config, self._checkpoints.of(partition))
        except (OSError, StorageError) as error:
            if log is not None:
                logger.warning("%s: its %s cannot be written: %s", folder, PARTITION_METADATA, error)
                return self._keep(log, topic_id)
            return self.put_offline(partition, f"cannot be made anew: {error}; mend this, and start again")
        return self._keep(log, topic_id)

    def _keep(self, log: Log, topic_id: uuid.UUID | None) -> Log:
        if topic_id is not None:
            self.topic_ids[log.partition] = topic_id
        self._logs[log.partition] = log
        return log

    def _make_folder(self, folder: Path, topic_id: uuid.UUID | None) -> None:
        self._filesystem.make_folder(folder)
        if topic_id is not None:
            content = encode_partition_metadata(topic_id)
            replace_file(self._filesystem, folder / PARTITION_METADATA, content, durable=False)

    def _remove_unfinished(self, folder: Path) -> None:
        try:
            self._filesystem.remove_folder(folder)
        except OSError as error:
            logger.warning("%s: a log that could not be made cannot be removed: %s", folder, error)

    def delete(self, partition: TopicPartition) -> None:
        """Take a log out of use; its folder is renamed now and removed by `purge_deleted`.

        :raises StorageError: the disk refuses.
        """
        log = self._logs.pop(partition, None)
        if log is None:
            return
        self.topic_ids.pop(partition, None)
        log.abandon()
        if partition in self._foreign:
            self._foreign.discard(partition)
            logger.warning("%s is left as it is: it belongs to another topic of this name", log.folder)
            return
        self._set_folder_aside(partition)

    def _set_folder_aside(self, partition: TopicPartition) -> None:
        folder = self.data_dir / str(partition)
        self._half_deleted.add(partition)
        try:
            self._filesystem.open(folder / DELETION_NOTE, create=True).close()
        except OSError as error:
            logger.warning("%s: a start will not know that it was deleted, and leave it: %s", folder, error)
        target = self.data_dir / deleted_folder_name(partition, self._new_id().hex)
        try:
            self._filesystem.replace(folder, target)
            self._half_deleted.discard(partition)
            self._filesystem.fsync_folder(self.data_dir)
        except FileNotFoundError:
            logger.warning("%s is gone already", folder)
            self._half_deleted.discard(partition)
            return
        except OSError as error:
            raise StorageError(f"{folder}: cannot be renamed to {target.name}: {error}") from error
        self._deleted.add([target])

    def remove_deleted_records(self) -> None:
        """Store durably where the logs begin, and set aside the files of segments whose records are all deleted.

        To be called off the event loop after `Log.delete_records_before`, whose effect survives everything from then
        on, and after `Log.delete_old_segments`. A log whose disk refuses goes offline.

        :raises StorageError: it could not be stored where the logs begin; no file was touched.
        """
        logs = [log for log in self.all().values() if not log.is_offline]
        for log in logs:
            # Or else a power loss could leave a log that ends before it begins.
            if log.recovery_point < log.log_start_offset:
                _succeeds(log.flush)
        self.checkpoint_log_starts()
        for log in logs:
            _succeeds(functools.partial(self._set_aside, log))

    def _set_aside(self, log: Log) -> None:
        self._deleted.add(log.remove_old_files())

    def delete_later(self, paths: list[Path]) -> None:
        """Remove files that a log set aside, after the delay."""
        self._deleted.add(paths)

    def purge_deleted(self) -> None:
        """Remove the files that were set aside `file_delete_delay_ms` ago. Regions that were handed out stay readable.

        :raises StorageError: the disk refuses.
        """
        try:
            self._deleted.purge()
        except OSError as error:
            raise StorageError(f"{self.data_dir}: deleted files cannot be removed: {error}") from error

    # --- durability ---

    def flush_sealed(self) -> None:
        """Flush the logs that began a new segment since they were flushed, or have much that is not, and store the
        recovery points and high watermarks.

        To be called now and then, off the event loop. It bounds what a recovery has to check. A log whose disk
        refuses goes offline, and the others are flushed.

        :raises StorageError: the recovery points could not be stored.
        """
        flushed = False
        self._rolled = 0
        for log in self.all().values():
            if log.has_unflushed_segments and not log.is_offline:
                flushed |= _succeeds(log.flush)
        if flushed:
            self.checkpoint_recovery_points()
        self.checkpoint_high_watermarks()

    def _note_roll(self) -> None:
        self._rolled += 1
        if self._rolled >= SEALED_UNFLUSHED_MAX:
            self.on_flush_due()

    def checkpoint_recovery_points(self) -> None:
        """Store up to which offset each log is durable.

        :raises StorageError: the disk refuses.
        """
        self._store(RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point)

    def checkpoint_log_starts(self) -> None:
        """Store where each log begins.

        :raises StorageError: the disk refuses.
        """
        self._store(LOG_START_CHECKPOINT, lambda log: log.log_start_offset)

    def checkpoint_high_watermarks(self) -> None:
        """Store up to where each log could be read.

        :raises StorageError: the disk refuses.
        """
        self._store(HIGH_WATERMARK_CHECKPOINT, lambda log: log.high_watermark_to_store)

    def checkpoint_first_dirty_offsets(self) -> None:
        """Store up to where each log is compacted.

        :raises StorageError: the disk refuses.
        """
        self._store(CLEANER_CHECKPOINT, lambda log: log.first_dirty_offset)

    def _checkpoint(self) -> None:
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        self.checkpoint_high_watermarks()
        self.checkpoint_first_dirty_offsets()

    def _store(self, name: str, offset_of: Callable[[Log], int]) -> None:
        self._checkpoints.store(name, lambda: {partition: offset_of(log) for partition, log in self.all().items()})

    def close(self) -> None:
        """Make all logs durable, and say so for the next start. Does nothing the second time.

        A log that is offline, or whose disk refuses now, is left for the next start to recover.

        :raises StorageError: this stop was not a clean one; says which logs are the reason.
        """
        if self._closed:
            return
        try:
            failed = self._close_logs()
            self._sync_folder()
            self._checkpoint()
            if failed:
                raise StorageError(f"{self.data_dir}: not closed cleanly: {', '.join(failed)}")
            if not self.lost_memory and all(each.lost_from is None for each in self._logs.values()):
                self._write_clean_marker()
        finally:
            self._abandon()

    def _close_logs(self) -> list[str]:
        """Close all logs, side by side if they are many; return the names of those that were not closed cleanly."""
        logs = list(self._logs.values())
        if len(logs) <= _SERIAL_MAX:
            closed = [_succeeds(log.close) for log in logs]
        else:
            with self._new_threads(_CLOSING_THREADS, "close") as threads:
                closed = in_groups(threads, lambda log: _succeeds(log.close), logs, _AT_ONCE)
        return [str(log.partition) for log, is_closed in zip(logs, closed, strict=True) if not is_closed]

    def _sync_folder(self) -> None:
        """Make the names of the logs' folders durable, once for all."""
        try:
            self._filesystem.fsync_folder(self.data_dir)
        except OSError as error:
            raise StorageError(f"{self.data_dir}: not closed cleanly: {error}") from error

    def _abandon(self) -> None:
        """Let go of everything, as a crash would."""
        self._closed = True
        for log in self._logs.values():
            log.abandon()
        self._lock_file.close()

    def _write_clean_marker(self) -> None:
        try:
            path = self.data_dir / CLEAN_SHUTDOWN
            replace_file(self._filesystem, path, encode_clean_shutdown(), durable=True)
        except OSError as error:
            raise StorageError(f"{self.data_dir}: the clean shutdown cannot be marked: {error}") from error

    # --- opening ---

    def _load_logs(self, topic_configs: Callable[[], Mapping[str, LogConfig]]) -> bool:
        """Load every log; return whether the last broker here stopped cleanly."""
        try:
            names = self._filesystem.list_folder(self.data_dir)
            clean = CLEAN_SHUTDOWN in names
            if clean:
                self._filesystem.unlink(self.data_dir / CLEAN_SHUTDOWN)
                self._filesystem.fsync_folder(self.data_dir)
            partitions = [partition for name in sorted(names) if (partition := partition_of(name)) is not None]
            self._checkpoints.read(partitions)
        except OSError as error:
            raise DataFolderError(f"{self.data_dir}: cannot be loaded: {error}") from error
        self._find_deleted(names)
        for found in self._load_all(partitions, clean, {} if clean else topic_configs()):
            if found is not None:
                self._keep(*found)
        return clean

    def _find_deleted(self, names: list[str]) -> None:
        """Schedule the removal of folders that a broker deleted; leave all others, whatever their names."""
        for name in names:
            if name.endswith(DELETED_FOLDER_SUFFIX):
                folder = self.data_dir / name
                if is_deleted_folder(name) and self._filesystem.exists(folder / DELETION_NOTE):
                    self._deleted.add([folder], at_once=True)
                else:
                    logger.warning("%s: no broker noted that it deleted it; it is left as it is", folder)

    def _load_all(
        self, partitions: list[TopicPartition], clean: bool, configs: Mapping[str, LogConfig]
    ) -> list[_Found | None]:
        """Load logs side by side: neither to wait for the disk nor to check batches needs the interpreter."""
        thread_count = max(_LOADING_THREADS, os.cpu_count() or 1)
        at_once = 1 if len(partitions) <= _ONE_BY_ONE_MAX else _AT_ONCE
        with self._new_threads(thread_count, "load") as threads:
            return in_groups(
                threads, lambda each: self._load(each, clean, configs.get(each.topic)), partitions, at_once
            )

    def _load(self, partition: TopicPartition, clean: bool, config: LogConfig | None) -> _Found | None:
        """Load a log, or return one that is offline; None if there is none.

        :raises DataFolderError: files or memory are short: no log is to blame.
        """
        stored = self._checkpoints.of(partition)
        try:
            log = self._open(partition, config or self.config, stored, clean=clean)
            return _Found(log, self._read_topic_id(partition))
        except Exception as error:
            # An error in one log must not keep the others from being used.
            cause = error.__cause__ or error
            if isinstance(cause, OSError) and is_shortage(cause) and cause.errno not in NO_ROOM:
                raise DataFolderError(f"{self.data_dir / str(partition)}: cannot be loaded: {error}") from error
            if isinstance(cause, NotADirectoryError):
                return None
            logger.debug("%s", partition, exc_info=True)
            reason = f"cannot be loaded: {error or error!r}; mend its folder or move it away, and start again"
            return _Found(self._unusable(partition, reason), self._topic_id_of_unusable(partition))

    def put_offline(self, partition: TopicPartition, reason: str) -> Log:
        """Let a partition have a log that is offline; its folder, if there is one, is not touched."""
        if (log := self._logs.get(partition)) is not None:
            log.abandon()
        self.topic_ids.pop(partition, None)
        return self._keep(self._unusable(partition, reason), None)

    def _unusable(self, partition: TopicPartition, reason: str) -> Log:
        folder = self.data_dir / str(partition)
        logger.error("%s: %s; the partition is offline, and nothing in the folder is changed", folder, reason)
        stored = self._checkpoints.of(partition)
        log = offline_log(folder, partition, self.config, self._clock, self._filesystem, stored, reason)
        log.first_dirty_offset = self._checkpoints.first_dirty_offset(partition)
        return log

    def _topic_id_of_unusable(self, partition: TopicPartition) -> uuid.UUID | None:
        try:
            return self._read_topic_id(partition)
        except OSError:
            return None

    def _read_topic_id(self, partition: TopicPartition) -> uuid.UUID | None:
        """Return the id of the topic that a folder belongs to; None if it is missing or damaged."""
        try:
            return decode_partition_metadata(
                read_file(self._filesystem, f"{self.data_dir}/{partition}/{PARTITION_METADATA}")
            )
        except FileNotFoundError:
            return None
        except ValueError as error:
            path = self.data_dir / str(partition) / PARTITION_METADATA
            renamed = set_aside(self._filesystem, path)
            logger.warning("%s is damaged, and renamed to %s: %s", path, renamed.name, error)
            return None

    def _open(
        self,
        partition: TopicPartition,
        config: LogConfig,
        stored: StoredOffsets = StoredOffsets(),  # noqa: B008 - immutable
        *,
        clean: bool = False,
    ) -> Log:
        log = Log.open(
            self.data_dir / str(partition),
            partition,
            config,
            self._clock,
            self._filesystem,
            clean=clean,
            recovery_point=stored.recovery_point,
            log_start_offset=stored.log_start_offset,
            high_watermark=stored.high_watermark,
            open_segments=self._open_segments,
        )
        log.on_truncated = self._on_truncated
        log.on_rolled = self._on_rolled
        # Or else, where the end is lost, tombstones that come in its place would go before what they delete.
        log.first_dirty_offset = min(self._checkpoints.first_dirty_offset(partition), log.log_end_offset)
        return log


def _succeeds(action: Callable[[], None]) -> bool:
    """Do something to one log; its error is logged, so that the other logs have their turn."""
    try:
        action()
    except BarnabasError as error:
        logger.warning("%s", error)
        return False
    return True
