"""All logs of a broker: one data folder, used by one process at a time.

Layout: `<topic>-<partition>/` per log, `meta.properties` (whose folder it is), `.lock`,
`recovery-point-offset-checkpoint` (per log, the offset up to which it was flushed), `log-start-offset-checkpoint`
(per log, the offset before which records were deleted), and `.kafka_cleanshutdown` while no broker runs and the last
one stopped cleanly. Other folders and files are left alone.

The marker of a clean shutdown is written after every log was fsynced, and only if every one was; it is removed,
durably, before anything is written.

Not safe to use from several threads, except for `flush_sealed`, `remove_deleted_records`, `checkpoint_...` and
`purge_deleted`.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from barnabas.clock import Clock
from barnabas.errors import BarnabasError, CorruptBatchError, DataFolderError, StorageError
from barnabas.model import TopicPartition
from barnabas.storage.checkpoints import (
    MetaProperties,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
)
from barnabas.storage.config import LogConfig
from barnabas.storage.deleted_files import DeletedFiles
from barnabas.storage.file_names import (
    CLEAN_SHUTDOWN,
    DELETED_FOLDER_SUFFIX,
    LOCK,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TEMPORARY_SUFFIX,
    deleted_folder_name,
    partition_of,
)
from barnabas.storage.filesystem import DataFile, FileSystem, read_file, replace_file, write_fully
from barnabas.storage.log import Log

logger = logging.getLogger(__name__)

SEALED_UNFLUSHED_MAX = 16
"""Segments sealed since the last flush, over all logs, that are worth a flush soon: each holds a file open."""


class LogManager:
    """The logs in a data folder. Opening one locks the folder and loads, and recovers, every log in it.

    :param config: of logs whose topic has no settings of its own.
    :param file_delete_delay_ms: how long the files of what was deleted stay.
    :param cluster_id: of the cluster that the broker belongs to; written into a new folder, compared with what
        an old one says. None: whatever the folder says.
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
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self.data_dir = data_dir
        self.config = config
        self.topic_ids: dict[TopicPartition, uuid.UUID] = {}
        """What `partition.metadata` says, where there is one."""
        self.on_flush_due: Callable[[], None] = lambda: None
        """Called, on the thread that appends, when `flush_sealed` should not wait for its time."""
        self._rolled = 0
        self._clock = clock
        self._filesystem = filesystem
        self._new_id = new_id
        self._logs: dict[TopicPartition, Log] = {}
        self._half_deleted: set[TopicPartition] = set()
        """Not in use any more; their folders could not be renamed."""
        self._deleted = DeletedFiles(filesystem, clock, file_delete_delay_ms / 1000)
        self._checkpoint_lock = threading.Lock()
        self._stored: dict[str, dict[TopicPartition, int]] = {}
        """What the two checkpoints say, by file name."""
        self._closed = False
        try:
            filesystem.make_folder(data_dir)
            self._lock_file = self._lock()
        except OSError as error:
            raise DataFolderError(f"{data_dir}: cannot be used as a data folder: {error}") from error
        try:
            self.meta = self._check_meta(broker_id, cluster_id)
            self.was_clean = self._load_logs()
        except BaseException:
            self._abandon()
            raise

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the folder belongs to, if it is known."""
        return self.meta.cluster_id if self.meta else None

    # --- logs ---

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, if it is here."""
        return self._logs.get(partition)

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
        if any(partition in offsets for offsets in self._stored.values()):
            # They are of a log that was deleted, and must not be taken for those of this one.
            self._checkpoint()
        if partition in self._half_deleted:
            self._set_folder_aside(partition)
        folder = self.data_dir / str(partition)
        is_new = not folder.exists()
        try:
            self._filesystem.make_folder(folder)
            if topic_id is not None:
                content = encode_partition_metadata(topic_id)
                replace_file(self._filesystem, folder / PARTITION_METADATA, content, durable=False)
            log = self._open(partition, config or self.config)
        except (OSError, StorageError) as error:
            if is_new:
                self._remove_unfinished(folder)
            raise StorageError(f"{folder}: cannot be made: {error}") from error
        if topic_id is not None:
            self.topic_ids[partition] = topic_id
        return log

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
        self._set_folder_aside(partition)

    def _set_folder_aside(self, partition: TopicPartition) -> None:
        folder = self.data_dir / str(partition)
        self._half_deleted.add(partition)
        target = self.data_dir / deleted_folder_name(partition, self._new_id().hex)
        try:
            self._filesystem.replace(folder, target)
            self._half_deleted.discard(partition)
            self._filesystem.fsync_folder(self.data_dir)
        except OSError as error:
            raise StorageError(f"{folder}: cannot be renamed to {target.name}: {error}") from error
        self._deleted.add([target])

    def remove_deleted_records(self) -> None:
        """Make it durable where logs begin, and set aside the files of segments that hold deleted records only.

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
        """Flush the logs that began a new segment since they were flushed, and store the recovery points.

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

    def _checkpoint(self) -> None:
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()

    def _store(self, name: str, offset_of: Callable[[Log], int]) -> None:
        """Store an offset of each log, durably; an offset of 0 need not be told."""
        with self._checkpoint_lock:
            offsets = {partition: offset for partition, log in self.all().items() if (offset := offset_of(log))}
            if self._stored.get(name, {}) == offsets:
                return
            try:
                replace_file(self._filesystem, self.data_dir / name, encode_offsets(offsets), durable=True)
            except OSError as error:
                raise StorageError(f"{self.data_dir / name} cannot be stored: {error}") from error
            self._stored[name] = offsets

    def close(self) -> None:
        """Make all logs durable, and say so for the next start. Does nothing the second time.

        A log that is offline, or whose disk refuses now, is left for the next start to recover.

        :raises StorageError: this stop was not a clean one; says which logs are the reason.
        """
        if self._closed:
            return
        try:
            failed = [str(partition) for partition, log in self._logs.items() if not _succeeds(log.close)]
            self._checkpoint()
            if failed:
                raise StorageError(f"{self.data_dir}: not closed cleanly: {', '.join(failed)}")
            self._write_clean_marker()
        finally:
            self._abandon()

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

    def _lock(self) -> DataFile:
        path = self.data_dir / LOCK
        file = self._filesystem.open(path, create=True)
        if not self._filesystem.try_lock(file):
            owner = self._filesystem.pread(file, 20, 0).decode("ascii", "replace").strip()
            file.close()
            raise DataFolderError(
                f"{self.data_dir} is used by another broker (process {owner or 'unknown'});"
                " stop it or use another data folder"
            )
        self._filesystem.truncate(file, 0)
        write_fully(self._filesystem, file, [str(os.getpid()).encode()])
        return file

    def _check_meta(self, broker_id: int, cluster_id: str | None) -> MetaProperties | None:
        path = self.data_dir / META_PROPERTIES
        try:
            meta = decode_meta_properties(read_file(self._filesystem, path))
        except FileNotFoundError:
            if cluster_id is None:
                return None
            meta = MetaProperties(broker_id, cluster_id)
            self._write_meta(meta)
            return meta
        except (OSError, ValueError) as error:
            raise DataFolderError(f"{path} cannot be understood: {error}") from error
        if meta.broker_id != broker_id:
            raise DataFolderError(f"{path} says broker {meta.broker_id}; this is broker {broker_id}")
        if cluster_id is not None and meta.cluster_id != cluster_id:
            raise DataFolderError(f"{path} says cluster {meta.cluster_id!r}; this is cluster {cluster_id!r}")
        return meta

    def _write_meta(self, meta: MetaProperties) -> None:
        path = self.data_dir / META_PROPERTIES
        try:
            replace_file(self._filesystem, path, encode_meta_properties(meta), durable=True)
        except OSError as error:
            raise DataFolderError(f"{path} cannot be written: {error}") from error

    def _load_logs(self) -> bool:
        """Load every log; return whether the last broker here stopped cleanly."""
        try:
            names = self._filesystem.list_folder(self.data_dir)
            clean = CLEAN_SHUTDOWN in names
            if clean:
                self._filesystem.unlink(self.data_dir / CLEAN_SHUTDOWN)
                self._filesystem.fsync_folder(self.data_dir)
            points = self._read_offsets(RECOVERY_POINT_CHECKPOINT)
            starts = self._read_offsets(LOG_START_CHECKPOINT)
        except OSError as error:
            raise DataFolderError(f"{self.data_dir}: cannot be loaded: {error}") from error
        self._deleted.add(
            [self.data_dir / name for name in names if name.endswith(DELETED_FOLDER_SUFFIX)], at_once=True
        )
        for name in sorted(names):
            partition = partition_of(name)
            if partition is None or not (self.data_dir / name).is_dir():
                continue
            if not name.endswith(TEMPORARY_SUFFIX):
                self._load(partition, clean, points.get(partition, 0), starts.get(partition, 0))
        return clean

    def _load(self, partition: TopicPartition, clean: bool, recovery_point: int, log_start_offset: int) -> None:
        folder = self.data_dir / str(partition)
        try:
            self._open(partition, self.config, clean, recovery_point, log_start_offset)
            content = read_file(self._filesystem, folder / PARTITION_METADATA)
            self.topic_ids[partition] = decode_partition_metadata(content)
        except FileNotFoundError:
            return
        except (OSError, ValueError, StorageError, CorruptBatchError) as error:
            raise DataFolderError(f"{folder}: cannot be loaded: {error}") from error

    def _open(
        self,
        partition: TopicPartition,
        config: LogConfig,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> Log:
        log = Log.open(
            self.data_dir / str(partition),
            partition,
            config,
            self._clock,
            self._filesystem,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )
        log.on_truncated = self._checkpoint
        log.on_rolled = self._note_roll
        self._logs[partition] = log
        return log

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """Return what a checkpoint says; nothing if it is damaged.

        Without recovery points, all logs are checked. Without log starts, logs begin with their first segment.
        """
        path = self.data_dir / name
        try:
            self._stored[name] = decode_offsets(read_file(self._filesystem, path))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            logger.warning("%s is damaged and not believed: %s", path, error)
            return {}
        return self._stored[name]


def _succeeds(action: Callable[[], None]) -> bool:
    """Do something to one log; its error is logged, so that the other logs have their turn."""
    try:
        action()
    except BarnabasError as error:
        logger.warning("%s", error)
        return False
    return True
