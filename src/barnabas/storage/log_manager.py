"""The logs of one data directory, which one process uses at a time.

A data directory contains `<topic>-<partition>/` for each log, `meta.properties` (cluster id and broker id), `.lock`,
the checkpoints with an offset of each log (`barnabas.storage.checkpoints`), and `.kafka_cleanshutdown`. The file
`.kafka_cleanshutdown` exists after a clean shutdown until the next start. `LogManager` does not change other
directories and files.

Invariants. If a log cannot be loaded, it is offline: its files are not changed, and the other logs are usable. The
clean-shutdown marker is written only after every log was fsynced without an error. At start the marker is removed
durably before anything else is written.

Threads. Not thread-safe, with these exceptions. Any thread may call `flush_sealed`, `remove_deleted_records`,
`checkpoint_...` and `purge_deleted`, and `create` and `restore` with partitions that no other thread passes.

Errors. DataFolderError is raised if the directory is unusable, and StorageError if a log or a checkpoint is unusable.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from barnabas.clock import Clock
from barnabas.errors import BarnabasError, DataFolderError, StorageError
from barnabas.log_lines import LogEvent, event, lines_about_partition
from barnabas.model import LifeMark, TopicPartition
from barnabas.storage.checkpoints import (
    OffsetCheckpoints,
    encode_clean_shutdown,
)
from barnabas.storage.deleted_files import DeletedFiles
from barnabas.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    partition_of,
)
from barnabas.storage.filesystem import DataFile, FileSystem, make_folder_to_stay, replace_file
from barnabas.storage.folder_identity import identify, lock_folder, note_boot
from barnabas.storage.future_logs import FutureLogs
from barnabas.storage.life_counter import LifeCounter
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_folders import LogFolders
from barnabas.storage.log_loading import LogLoader, map_in_chunks
from barnabas.storage.segment_list import SEALED_OPEN_MAX, OpenSegments

logger = logging.getLogger(__name__)

_SERIAL_MAX = 32
"""Up to this number of logs, `close` closes them one by one.

More logs are closed on several threads, which wait for the disk in parallel.
"""

_CLOSING_THREADS = 16
_AT_ONCE = 16
"""The number of logs in a task of a closing thread."""

SEALED_UNFLUSHED_MAX = 16
"""The number of sealed and unflushed segments over all logs at which a flush is due. Each of them keeps a file open."""


class LogManager:
    """The logs of a data directory. The constructor locks the directory, and loads and recovers every log.

    :param config: the settings of logs whose topic has no settings of its own.
    :param topic_configs: returns the settings of the other logs, by topic. It is called after an unclean shutdown,
        because the settings of a log determine whether a gap is damage.
    :param file_delete_delay_ms: the time from the deletion of a file to its removal.
    :param segments_open_max: the maximum number of sealed segments over all logs that keep their files open after a
        read.
    :param open_segments: the object that limits the open segments. Several data directories may share it; then
        `segments_open_max` is not used.
    :param cluster_id: the id of the broker's cluster. It is stored in a new directory, and compared with the id in an
        existing directory. None accepts any cluster id.
    :param boot_id: the id of the current boot of the machine. If it differs from the stored id after an unclean
        shutdown, unsynced data may be lost, and `lost_memory` is true until `note_boot`.
    :param on_flush_due: called on the thread that rolls a segment, when `flush_sealed` should run soon.
    :param loads: True to load the logs in the constructor; False if the caller calls `load`.
    :param process_id: the process id of the owner, for the lock file; None for this process.
    :raises DataFolderError: another process uses the directory, the directory belongs to another broker, or it cannot
        be read or written. The message contains the path.
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
        process_id: int | None = None,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
        topic_configs: Callable[[], Mapping[str, LogConfig]] = dict,
        new_threads: Callable[[int, str], Executor] = ThreadPoolExecutor,
        open_segments: OpenSegments | None = None,
        on_flush_due: Callable[[], object] = lambda: None,
        loads: bool = True,
    ) -> None:
        self.data_dir = data_dir
        self.config = config
        self.topic_ids: dict[TopicPartition, uuid.UUID] = {}
        """The topic ids from `partition.metadata`, for partitions with this file."""
        self.missing: set[TopicPartition] = set()
        """The partitions whose log was missing at start. `restore` created an empty log for each of them."""
        self.gone: set[TopicPartition] = set()
        """The partitions in `missing` whose lost log may have contained records.

        An administrator can copy the log back.
        """
        self._on_flush_due = on_flush_due
        self._rolled = 0
        self._boot_id = boot_id
        self._filesystem = filesystem
        self._new_threads = new_threads
        self._logs: dict[TopicPartition, Log] = {}
        self._foreign: set[TopicPartition] = set()
        """Partitions whose directories belong to other topics."""
        self._deleted = DeletedFiles(filesystem, clock, file_delete_delay_ms / 1000)
        self._folders = LogFolders(filesystem, data_dir, self._deleted, new_id)
        self._checkpoints = OffsetCheckpoints(filesystem, data_dir)
        self._loader = LogLoader(
            data_dir,
            config,
            clock,
            filesystem,
            self._folders,
            self._checkpoints,
            open_segments or OpenSegments(segments_open_max),
            new_threads,
            self._checkpoint,
            self._note_roll,
        )
        self.future_logs = FutureLogs(self._logs, self._folders, self._loader, self._checkpoint)
        """The moves of logs to this data directory and from it."""
        self._closed = False
        self.failure: str | None = None
        """The reason if the whole data directory is offline, otherwise None."""
        self._lock_file = self._lock(process_id)
        try:
            self.meta = identify(filesystem, data_dir, broker_id, cluster_id, new_id)
            self.life = LifeCounter(filesystem, data_dir)
            self.was_clean = self.lost_memory = False
            # The directory may look new because it is the mount point of a data directory that is not mounted.
            self.is_old = bool(self.meta and self.meta.boot_id)
            if loads:
                self.load(topic_configs)
                if self.is_old and not self.lost_memory:
                    self.note_boot()
        except BaseException:
            self.abandon()
            raise

    def _lock(self, process_id: int | None) -> DataFile:
        try:
            make_folder_to_stay(self._filesystem, self.data_dir)
            return lock_folder(self._filesystem, self.data_dir, process_id)
        except OSError as error:
            raise DataFolderError(f"{self.data_dir}: cannot be used as a data directory: {error}") from error

    def load(
        self,
        topic_configs: Callable[[], Mapping[str, LogConfig]] = dict,
        contested: Collection[TopicPartition] = (),
    ) -> None:
        """Load and recover every log.

        :param contested: partitions with logs in several data directories of the broker; their logs are not loaded.
        :raises DataFolderError: the directory cannot be read or written.
        """
        self._load_logs(topic_configs, contested)

    def note_boot(self, folder_ids: Collection[str] = ()) -> None:
        """Store the id of the current boot. From now on, the directory is not new, and `lost_memory` is false.

        Without this call, the next start sets `lost_memory` again, or treats the directory as new again.

        :param folder_ids: the ids of all data directories of the broker, if there are several.
        :raises DataFolderError: the directory cannot be written.
        """
        if self.meta is not None:
            self.meta = note_boot(self._filesystem, self.data_dir, self.meta, self._boot_id, folder_ids)
        self.lost_memory = False

    def increment_life_counter(self, now_ms: int) -> LifeMark:
        """Increment the life counter durably; see `LifeCounter.increment`.

        :raises StorageError: the write failed.
        """
        return self.life.increment(now_ms, self._record_count())

    def confirm_life_counter(self) -> None:
        """Store durably that the metadata store contains the life counter; see `LifeCounter.confirm`.

        :raises StorageError: the write failed.
        """
        self.life.confirm()

    @property
    def must_stay_ahead(self) -> bool:
        """True if the life counter must not increase: its value shows that the metadata store is older than a log."""
        return any(log.is_newer_than_tree for log in self.all().values())

    def report_age(self) -> None:
        """Log whether this data directory is an older copy of itself."""
        self.life.report(self._record_count())

    def _record_count(self) -> int:
        return sum(log.log_end_offset for log in self.all().values())

    @property
    def folder_id(self) -> str:
        """The id of the data directory; empty if it has none."""
        return self.meta.directory_id if self.meta else ""

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that owns the data directory, or None."""
        return self.meta.cluster_id if self.meta else None

    def fail(self, reason: str) -> None:
        """Put the data directory offline with all its logs, so that nothing is written to it.

        Any thread may call this method.
        """
        self.failure = reason
        for log in self.all().values():
            log.put_offline(reason)

    # --- logs ---

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, or None if this data directory has none."""
        return self._logs.get(partition)

    def count(self) -> int:
        return len(self._logs)

    def all(self) -> dict[TopicPartition, Log]:
        """Return a copy of all logs by partition."""
        return dict(self._logs)

    @lines_about_partition
    def create(
        self, partition: TopicPartition, config: LogConfig | None = None, topic_id: uuid.UUID | None = None
    ) -> Log:
        """Create a log, or return the existing log.

        Several threads may call this method, each with different partitions.

        :raises StorageError: the file system returned an error, or a directory with unknown files has the name of the
            partition directory.
        """
        log = self._logs.get(partition)
        if log is not None:
            return log
        if any(self._checkpoints.of(partition)) or self._checkpoints.first_dirty_offset(partition):
            # The checkpoints may contain offsets of a deleted log. The new log must not inherit them.
            self._checkpoint()
        folders, folder = self._folders, self._folders.path_of(partition)
        if partition in folders.half_deleted:
            folders.rename_deleted(partition)
        if self._filesystem.exists(folder):
            if not folders.has_no_records(partition):
                raise StorageError(f"{folder} exists and contains files of an unknown topic; move it away")
            logger.warning("%s is an empty directory of a failed creation; using it for the new log", folder)
        try:
            folders.make(partition, topic_id)
            log = self._loader.open(partition, config or self.config)
        except (OSError, StorageError) as error:
            folders.remove_unfinished(partition)
            raise StorageError(f"{folder}: cannot create the log: {error}") from error
        return self._keep(log, topic_id)

    def is_half_deleted(self, partition: TopicPartition) -> bool:
        """Return whether the log of a partition was deleted, but its directory could not be renamed yet."""
        return partition in self._folders.half_deleted

    def is_checkpointed(self, partition: TopicPartition) -> bool:
        """Return whether the checkpoints contain offsets of this partition. They show that its log had records."""
        return any(self._checkpoints.of(partition))

    def topic_id_of(self, partition: TopicPartition) -> uuid.UUID | None:
        """Return the topic id in the partition directory, or None.

        :raises OSError: the file system returned an error.
        """
        return self._folders.topic_id_of(partition)

    def has_no_records(self, partition: TopicPartition) -> bool:
        """Return whether the log of a partition never contained a record, according to its directory and the
        checkpoints."""
        return not any(self._checkpoints.of(partition)) and self._folders.has_no_records(partition)

    @lines_about_partition
    def restore(
        self, partition: TopicPartition, config: LogConfig | None, topic_id: uuid.UUID, *, in_doubt: bool = False
    ) -> Log:
        """Return the log of a partition that should exist.

        Create a missing log, starting at the offsets in the checkpoints.

        The returned log is offline if this fails, or if the partition directory belongs to another topic. A directory
        of another topic that has no records is renamed. Several threads may call this method, each with different
        partitions.

        :param in_doubt: True if a partition directory without a topic id may belong to an earlier topic with the same
            name.
        """
        if self.is_known(partition, topic_id):
            return self._logs[partition]
        if (reason := self._what_is_in_the_way(partition, topic_id, in_doubt)) is not None:
            self._foreign.add(partition)
            return self.put_offline(partition, reason)
        return self._begin_again(partition, config or self.config, topic_id)

    def is_in_old_copy(self, _partition: TopicPartition) -> bool:
        """Return whether this data directory is an older copy of itself; see `DataFolders.is_in_old_copy`."""
        return self.life.old_copy is not None

    def is_in_newer_folder(self, _partition: TopicPartition) -> bool:
        """Return whether the metadata store is older than this data directory."""
        return self.life.is_ahead

    def may_have_more(self, _topic: str) -> bool:
        """Return whether a topic may have logs in an unavailable data directory; see `DataFolders.may_have_more`."""
        return False

    def is_known(self, partition: TopicPartition, topic_id: uuid.UUID) -> bool:
        """Return whether the log of this topic is loaded. In this case, `restore` returns it unchanged."""
        log, known_id = self._logs.get(partition), self.topic_ids.get(partition)
        return log is not None and (known_id == topic_id or (log.is_offline and known_id is None))

    def _what_is_in_the_way(self, partition: TopicPartition, topic_id: uuid.UUID, in_doubt: bool) -> str | None:
        """Return the reason if a log cannot use its partition directory, otherwise None.

        Rename a directory of another topic that has no records.
        """
        known_id = self.topic_ids.get(partition)
        is_other = known_id not in {None, topic_id}
        if is_other or (in_doubt and known_id is None and partition in self._logs):
            if self.has_no_records(partition):
                _succeeds(functools.partial(self.delete, partition))
            elif is_other:
                return (
                    f"the directory belongs to another topic of this name, with id {known_id}; move it away and restart"
                )
            else:
                return (
                    f"a topic of this name was deleted, and the directory has no {PARTITION_METADATA} to identify"
                    " its topic; move it away and restart the broker"
                )
        if partition in self._folders.half_deleted:
            return "the directory of a deleted topic still has this name; remove or rename it and restart the broker"
        return None

    def _begin_again(self, partition: TopicPartition, config: LogConfig, topic_id: uuid.UUID) -> Log:
        """Store the topic id of a log. If the log is missing, create it."""
        folder, log = self._folders.path_of(partition), self._logs.get(partition)
        if log is None:
            self._forget_checkpoints_of_deleted(partition)
            self.missing.add(partition)
            # The first flush of a log makes the name of its directory durable. So a missing log was never flushed and
            # has lost no flushed records, unless the data directory is new or the checkpoints contain offsets of the
            # log.
            if not self.is_old or any(self._checkpoints.of(partition)):
                self.gone.add(partition)
        try:
            if log is None and any(self._checkpoints.of(partition)):
                message = "%s is missing; its records are lost unless you copy the directory back and restart"
                logger.error(message, folder, extra=event(LogEvent.LOG_MISSING, partition))
            self._folders.make(partition, topic_id)
            log = log or self._loader.open(partition, config, self._checkpoints.of(partition))
        except (OSError, StorageError) as error:
            if log is not None:
                logger.warning("cannot write the topic id of %s to %s: %s", folder, PARTITION_METADATA, error)
                return self._keep(log, topic_id)
            return self.put_offline(partition, f"cannot create the log: {error}; fix the cause and restart the broker")
        return self._keep(log, topic_id)

    def _forget_checkpoints_of_deleted(self, partition: TopicPartition) -> None:
        """Remove the offsets of deleted logs from the checkpoints. They belong to an earlier topic with the same name.

        The offsets of other missing logs remain, because they may be the only evidence that records were lost.
        """
        if partition in self._folders.deleted_logs and any(self._checkpoints.of(partition)):
            deleted = self._folders.deleted_logs - self._logs.keys()
            _succeeds(functools.partial(self._checkpoints.forget, deleted))

    def _keep(self, log: Log, topic_id: uuid.UUID | None) -> Log:
        if topic_id is not None:
            self.topic_ids[log.partition] = topic_id
        self._logs[log.partition] = log
        return log

    @lines_about_partition
    def delete(self, partition: TopicPartition) -> None:
        """Delete a log: rename its directory now; `purge_deleted` removes it later.

        :raises StorageError: the file system returned an error.
        """
        log = self._logs.pop(partition, None)
        if log is None:
            return
        self.topic_ids.pop(partition, None)
        log.abandon()
        if partition in self._foreign:
            self._foreign.discard(partition)
            logger.warning("%s belongs to another topic of this name; the deletion leaves it unchanged", log.folder)
            return
        self._folders.rename_deleted(partition)

    def remove_deleted_records(self) -> None:
        """Store the log start offsets durably, and rename the files of segments whose records were all deleted.

        A background thread calls this method after `Log.delete_records_before`. After this call, deleted records cannot
        become visible again after a crash. A log with a file system error goes offline.

        :raises StorageError: the log start offsets could not be stored. No file was renamed.
        """
        logs = [log for log in self.all().values() if not log.is_offline]
        for log in logs:
            # Without this flush, the log end offset could be below the log start offset after a power failure.
            if log.recovery_point < log.log_start_offset:
                _succeeds(log.flush)
        self.checkpoint_log_starts()
        for log in logs:
            _succeeds(functools.partial(self._set_aside, log))

    def _set_aside(self, log: Log) -> None:
        self._deleted.add(log.rename_deleted_files())

    def set_file_delete_delay(self, delay_ms: int) -> None:
        """Set `file_delete_delay_ms` for later deletions."""
        self._deleted.set_delay(delay_ms / 1000)

    def delete_later(self, paths: list[Path]) -> None:
        """Remove files that a log has renamed, after the delay."""
        self._deleted.add(paths)

    def purge_deleted(self) -> None:
        """Remove the files that were deleted `file_delete_delay_ms` ago. `FileRegion`s in use stay readable.

        :raises StorageError: the file system returned an error.
        """
        if self._deleted.has_due_folders:
            # As long as these directories exist, a start can attribute offsets in the checkpoints to deleted logs. So
            # the checkpoints are written before the directories are removed.
            self._checkpoint()
        try:
            self._deleted.purge()
        except OSError as error:
            raise StorageError(f"{self.data_dir}: cannot remove deleted files: {error}") from error

    # --- durability ---

    def flush_sealed(self) -> None:
        """Flush the logs that have sealed segments or many unflushed bytes.

        Store the recovery points and high watermarks.

        A background thread calls this method periodically, which limits the number of batches that recovery must check.
        A log with a file system error goes offline, and the other logs are flushed.

        :raises StorageError: the recovery points could not be stored.
        """
        flushed = False
        self._rolled = 0
        for log in self.all().values():
            if log.is_flush_due and not log.is_offline:
                flushed |= _succeeds(log.flush)
        if flushed:
            self.checkpoint_recovery_points()
        self.checkpoint_high_watermarks()

    def _note_roll(self) -> None:
        self._rolled += 1
        if self._rolled >= SEALED_UNFLUSHED_MAX:
            self._on_flush_due()

    def checkpoint_recovery_points(self) -> None:
        """Store the recovery point of each log.

        :raises StorageError: the write failed.
        """
        self._store(RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point)

    def checkpoint_log_starts(self) -> None:
        """Store the log start offset of each log.

        :raises StorageError: the write failed.
        """
        self._store(LOG_START_CHECKPOINT, lambda log: log.log_start_offset_to_store)

    def checkpoint_high_watermarks(self) -> None:
        """Store the high watermark of each log.

        :raises StorageError: the write failed.
        """
        self._store(HIGH_WATERMARK_CHECKPOINT, lambda log: log.high_watermark_to_store)

    def checkpoint_first_dirty_offsets(self) -> None:
        """Store the first dirty offset of each log. The log is compacted up to this offset.

        :raises StorageError: the write failed.
        """
        self._store(CLEANER_CHECKPOINT, lambda log: log.first_dirty_offset)

    def _checkpoint(self) -> None:
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        self.checkpoint_high_watermarks()
        self.checkpoint_first_dirty_offsets()

    def _store(self, name: str, offset_of: Callable[[Log], int]) -> None:
        if self.failure is not None:
            raise StorageError(f"{self.data_dir} is offline: {self.failure}")
        self._checkpoints.store(name, lambda: {partition: offset_of(log) for partition, log in self.all().items()})

    def close(self) -> None:
        """Close all logs durably, and write the clean-shutdown marker. A second call does nothing.

        The next start recovers the logs that are offline or had an error during this call.

        :raises StorageError: the shutdown is not clean. The message names the logs with errors.
        """
        if self._closed:
            return
        if self.failure is not None:
            self.abandon()
            raise StorageError(f"{self.data_dir}: not closed cleanly: {self.failure}")
        try:
            failed = self._close_logs()
            self._sync_folder()
            self._checkpoint()
            if failed:
                raise StorageError(f"{self.data_dir}: not closed cleanly: {', '.join(failed)}")
            if not self.lost_memory and all(each.lost_from is None for each in self._logs.values()):
                self._write_clean_marker()
        finally:
            self.abandon()

    def _close_logs(self) -> list[str]:
        """Close all logs, on several threads if there are many; return the names of the logs with errors."""
        logs = list(self._logs.values())
        if len(logs) <= _SERIAL_MAX:
            closed = [_succeeds(log.close) for log in logs]
        else:
            with self._new_threads(_CLOSING_THREADS, "close") as threads:
                closed = map_in_chunks(threads, lambda log: _succeeds(log.close), logs, _AT_ONCE)
        return [str(log.partition) for log, is_closed in zip(logs, closed, strict=True) if not is_closed]

    def _sync_folder(self) -> None:
        """Make the names of all partition directories durable with one fsync."""
        try:
            self._filesystem.fsync_folder(self.data_dir)
        except OSError as error:
            raise StorageError(f"{self.data_dir}: not closed cleanly: {error}") from error

    def abandon(self) -> None:
        """Close all files without a flush, as in a crash."""
        self._closed = True
        for log in self._logs.values():
            log.abandon()
        self._lock_file.close()

    def _write_clean_marker(self) -> None:
        try:
            path = self.data_dir / CLEAN_SHUTDOWN
            replace_file(self._filesystem, path, encode_clean_shutdown(), durable=True)
        except OSError as error:
            raise StorageError(f"{self.data_dir}: cannot write the clean-shutdown marker: {error}") from error

    # --- opening ---

    def _load_logs(
        self, topic_configs: Callable[[], Mapping[str, LogConfig]], contested: Collection[TopicPartition]
    ) -> None:
        """Load every log; set `was_clean` and `lost_memory` according to the last shutdown."""
        try:
            names = self._filesystem.list_folder(self.data_dir)
            clean = CLEAN_SHUTDOWN in names
            if clean:
                self._filesystem.unlink(self.data_dir / CLEAN_SHUTDOWN)
                self._filesystem.fsync_folder(self.data_dir)
            found = [partition for name in sorted(names) if (partition := partition_of(name)) is not None]
            partitions = [partition for partition in found if partition not in contested] if contested else found
            self._checkpoints.read(found)
        except OSError as error:
            raise DataFolderError(f"{self.data_dir}: cannot load the logs: {error}") from error
        self._folders.find_deleted(names)
        last_boot_id = self.meta.boot_id if self.meta else ""
        self.was_clean = clean
        self.lost_memory = not clean and last_boot_id not in {"", self._boot_id}
        configs = {} if clean else topic_configs()
        for loaded in self._loader.load_all(partitions, clean=clean, lost_memory=self.lost_memory, configs=configs):
            if loaded is not None:
                self._keep(*loaded)

    def load_one(self, partition: TopicPartition, config: LogConfig | None = None) -> None:
        """Load a log that several data directories contain, with recovery.

        :raises DataFolderError: file descriptors or memory are short.
        """
        loaded = self._loader.load(partition, clean=False, lost_memory=self.lost_memory, config=config)
        if loaded is not None:
            self._keep(*loaded)

    @lines_about_partition
    def put_offline(self, partition: TopicPartition, reason: str) -> Log:
        """Install an offline log for a partition. Its partition directory, if it exists, is not changed."""
        if (log := self._logs.get(partition)) is not None:
            log.abandon()
        self.topic_ids.pop(partition, None)
        return self._keep(self._loader.make_offline(partition, reason), None)

    def make_offline(self, partition: TopicPartition, reason: str) -> Log:
        """Return an offline log without installing it. The caller must have logged the reason."""
        return self._loader.make_offline(partition, reason, is_logged=True)


def _succeeds(action: Callable[[], None]) -> bool:
    """Run an action on one log; return whether it succeeded.

    An error is logged, so the caller can continue with the other logs.
    """
    try:
        action()
    except BarnabasError as error:
        logger.warning("%s", error)
        return False
    return True
