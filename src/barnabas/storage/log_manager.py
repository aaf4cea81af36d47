"""All logs of one data folder, which one process uses at a time.

Layout: `<topic>-<partition>/` per log, `meta.properties` (cluster and broker id), `.lock`, three checkpoints with an
offset of each log (`barnabas.storage.checkpoints`), and `.kafka_cleanshutdown` while no broker runs and the last
one stopped cleanly. Other folders and files are left alone.

Invariants. A log that cannot be loaded is offline: its files are not touched, and the other logs can be used. The
marker of a clean shutdown is written after every log was fsynced, and only if every fsync succeeded. It is removed,
durably, before anything else is written.

Threads. One thread, except for `create` and `restore` with different partitions, `flush_sealed`,
`remove_deleted_records`, `checkpoint_...` and `purge_deleted`, which any thread may call.

Errors. DataFolderError if the folder cannot be used, StorageError if a log or a checkpoint cannot.
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
"""Up to so many logs are closed one after the other; more are closed on threads, which wait for the disk side by
side."""

_CLOSING_THREADS = 16
_AT_ONCE = 16
"""Many logs are closed on a thread in groups of this size."""

SEALED_UNFLUSHED_MAX = 16
"""After this many sealed segments, over all logs, a flush is due: each unflushed segment holds a file open."""


class LogManager:
    """The logs in a data folder. Opening one locks the folder and loads, and recovers, every log in it.

    :param config: of logs whose topic has no settings of its own.
    :param topic_configs: returns the settings of the other logs, by topic. Called after an unclean stop, since a log's
        settings decide what counts as damage.
    :param file_delete_delay_ms: the time from the deletion of a file to its removal.
    :param segments_open_max: the number of sealed segments, of all logs, that keep their files open after a read.
    :param open_segments: shared with the logs in other folders, in place of `segments_open_max`.
    :param cluster_id: of the broker's cluster; stored in a new folder, and compared with that of an old one. None:
        the folder decides.
    :param boot_id: of the present boot of the machine. After another boot and an unclean stop, `lost_memory` is set
        until `note_boot`: what was not fsynced is lost.
    :param on_flush_due: called on the thread that rolls a segment, when `flush_sealed` should run soon.
    :param loads: whether to load the logs; if not, the caller calls `load` first.
    :param process_id: the owner in the folder's lock; None: this process.
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
        """The topic ids in `partition.metadata`, where the file exists."""
        self.missing: set[TopicPartition] = set()
        """The logs that were not there, which `restore` made."""
        self.gone: set[TopicPartition] = set()
        """Those of `missing` that may have existed with records; an administrator can put them back."""
        self._on_flush_due = on_flush_due
        self._rolled = 0
        self._boot_id = boot_id
        self._filesystem = filesystem
        self._new_threads = new_threads
        self._logs: dict[TopicPartition, Log] = {}
        self._foreign: set[TopicPartition] = set()
        """Partitions whose folders belong to other topics."""
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
        """The logs that move from other folders or to them."""
        self._closed = False
        self.failure: str | None = None
        """The reason that the whole folder is offline; None: it is not."""
        self._lock_file = self._lock(process_id)
        try:
            self.meta = identify(filesystem, data_dir, broker_id, cluster_id, new_id)
            self.life = LifeCounter(filesystem, data_dir)
            self.was_clean = self.lost_memory = False
            # A new folder may be in the place of an older one that is not mounted.
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
            raise DataFolderError(f"{self.data_dir}: cannot be used as a data folder: {error}") from error

    def load(
        self,
        topic_configs: Callable[[], Mapping[str, LogConfig]] = dict,
        contested: Collection[TopicPartition] = (),
    ) -> None:
        """Load, and recover, every log.

        :param contested: logs that other folders of the broker have too; they are not loaded.
        :raises DataFolderError: the folder cannot be read or written.
        """
        self._load_logs(topic_configs, contested)

    def note_boot(self, folder_ids: Collection[str] = ()) -> None:
        """Store the boot of the machine: no memory is lost any more, and the folder is not new.

        Without this call, each start sets `lost_memory` again, or finds a new folder.

        :param folder_ids: of all folders of the broker, if there are several.
        :raises DataFolderError: the folder cannot be written.
        """
        if self.meta is not None:
            self.meta = note_boot(self._filesystem, self.data_dir, self.meta, self._boot_id, folder_ids)
        self.lost_memory = False

    def increment_life_counter(self, now_ms: int) -> LifeMark:
        """Raise the life counter on the disk, durably; see `LifeCounter.increment`.

        :raises StorageError: the disk refuses.
        """
        return self.life.increment(now_ms, self._record_count())

    def confirm_life_counter(self) -> None:
        """Store durably that the metadata tree has the life counter; see `LifeCounter.confirm`.

        :raises StorageError: the disk refuses.
        """
        self.life.confirm()

    @property
    def must_stay_ahead(self) -> bool:
        """Return whether the life counter must not rise: it shows that the metadata tree is older than some log."""
        return any(log.is_newer_than_tree for log in self.all().values())

    def report_age(self) -> None:
        """Log whether this directory is an older copy of itself."""
        self.life.report(self._record_count())

    def _record_count(self) -> int:
        return sum(log.log_end_offset for log in self.all().values())

    @property
    def folder_id(self) -> str:
        """The id of the folder, or an empty string."""
        return self.meta.directory_id if self.meta else ""

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that the folder belongs to, or None."""
        return self.meta.cluster_id if self.meta else None

    def fail(self, reason: str) -> None:
        """Take the folder offline with all its logs; nothing is written there any more. Any thread may call it."""
        self.failure = reason
        for log in self.all().values():
            log.put_offline(reason)

    # --- logs ---

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, if it is here."""
        return self._logs.get(partition)

    def count(self) -> int:
        """Return the number of logs."""
        return len(self._logs)

    def all(self) -> dict[TopicPartition, Log]:
        """Return all logs."""
        return dict(self._logs)

    @lines_about_partition
    def create(
        self, partition: TopicPartition, config: LogConfig | None = None, topic_id: uuid.UUID | None = None
    ) -> Log:
        """Create a log, or return the one that exists. Several threads may call this, each with partitions of its own.

        :raises StorageError: the disk refuses, or a folder with files has the name.
        """
        log = self._logs.get(partition)
        if log is not None:
            return log
        if any(self._checkpoints.of(partition)) or self._checkpoints.first_dirty_offset(partition):
            # These are the offsets of a deleted log; the new log must not get them.
            self._checkpoint()
        folders, folder = self._folders, self._folders.path_of(partition)
        if partition in folders.half_deleted:
            folders.rename_deleted(partition)
        if self._filesystem.exists(folder):
            if not folders.has_no_records(partition):
                raise StorageError(f"{folder} is there already, and nobody knows whose it is; move it away")
            logger.warning("%s is of a log that could not be made, with nothing in it; it is used now", folder)
        try:
            folders.make(partition, topic_id)
            log = self._loader.open(partition, config or self.config)
        except (OSError, StorageError) as error:
            folders.remove_unfinished(partition)
            raise StorageError(f"{folder}: cannot be made: {error}") from error
        return self._keep(log, topic_id)

    def is_half_deleted(self, partition: TopicPartition) -> bool:
        """Whether the log of a partition was deleted, and its folder still has its name."""
        return partition in self._folders.half_deleted

    def is_checkpointed(self, partition: TopicPartition) -> bool:
        """Whether the checkpoints have offsets of this partition, so that its log had records."""
        return any(self._checkpoints.of(partition))

    def topic_id_of(self, partition: TopicPartition) -> uuid.UUID | None:
        """Return the topic id in the folder of a partition, or None.

        :raises OSError: the disk refuses.
        """
        return self._folders.topic_id_of(partition)

    def has_no_records(self, partition: TopicPartition) -> bool:
        """Whether the log of a partition never had a record, by its folder and the checkpoints."""
        return not any(self._checkpoints.of(partition)) and self._folders.has_no_records(partition)

    @lines_about_partition
    def restore(
        self, partition: TopicPartition, config: LogConfig | None, topic_id: uuid.UUID, *, in_doubt: bool = False
    ) -> Log:
        """Return the log of a partition that should exist; create a missing one at the offsets of the checkpoints.

        If that fails, or another topic's folder has the name, the returned log is offline. A folder of another topic
        is renamed if it holds nothing. Several threads may call this, each with partitions of its own.

        :param in_doubt: whether a folder without a topic id may belong to an earlier topic of this name.
        """
        if self.is_known(partition, topic_id):
            return self._logs[partition]
        if (reason := self._what_is_in_the_way(partition, topic_id, in_doubt)) is not None:
            self._foreign.add(partition)
            return self.put_offline(partition, reason)
        return self._begin_again(partition, config or self.config, topic_id)

    def is_in_old_copy(self, _partition: TopicPartition) -> bool:
        """Return whether this directory is an older copy of itself; see `DataFolders.is_in_old_copy`."""
        return self.life.old_copy is not None

    def is_in_newer_folder(self, _partition: TopicPartition) -> bool:
        """Return whether the metadata tree is older than this directory."""
        return self.life.is_ahead

    def may_have_more(self, _topic: str) -> bool:
        """Whether a topic may have logs that are not visible now; see `DataFolders.may_have_more`."""
        return False

    def is_known(self, partition: TopicPartition, topic_id: uuid.UUID) -> bool:
        """Whether the log of this topic exists, so that `restore` returns it unchanged."""
        log, known_id = self._logs.get(partition), self.topic_ids.get(partition)
        return log is not None and (known_id == topic_id or (log.is_offline and known_id is None))

    def _what_is_in_the_way(self, partition: TopicPartition, topic_id: uuid.UUID, in_doubt: bool) -> str | None:
        """Return the reason that a log cannot have its folder, or None; rename a folder that holds nothing."""
        known_id = self.topic_ids.get(partition)
        is_other = known_id not in {None, topic_id}
        if is_other or (in_doubt and known_id is None and partition in self._logs):
            if self.has_no_records(partition):
                _succeeds(functools.partial(self.delete, partition))
            elif is_other:
                return (
                    f"it belongs to another topic of this name, with the id {known_id}; move it away, and start again"
                )
            else:
                return (
                    f"a topic of this name was deleted, and there is no {PARTITION_METADATA} that says whether it is"
                    " that one's; move it away, and start again"
                )
        if partition in self._folders.half_deleted:
            return "the folder of a deleted topic is in its way; mend this, and start again"
        return None

    def _begin_again(self, partition: TopicPartition, config: LogConfig, topic_id: uuid.UUID) -> Log:
        """Give a log its topic id; create the log if it is missing."""
        folder, log = self._folders.path_of(partition), self._logs.get(partition)
        if log is None:
            self._forget_checkpoints_of_deleted(partition)
            self.missing.add(partition)
            # The first flush of a log makes the name of its folder durable. So a missing log was never flushed.
            if not self.is_old or any(self._checkpoints.of(partition)):
                self.gone.add(partition)
        try:
            if log is None and any(self._checkpoints.of(partition)):
                message = "%s is missing; what was in it is lost, unless you put it back and start again"
                logger.error(message, folder, extra=event(LogEvent.LOG_MISSING, partition))
            self._folders.make(partition, topic_id)
            log = log or self._loader.open(partition, config, self._checkpoints.of(partition))
        except (OSError, StorageError) as error:
            if log is not None:
                logger.warning("%s: its %s cannot be written: %s", folder, PARTITION_METADATA, error)
                return self._keep(log, topic_id)
            return self.put_offline(partition, f"cannot be created: {error}; fix this, and start again")
        return self._keep(log, topic_id)

    def _forget_checkpoints_of_deleted(self, partition: TopicPartition) -> None:
        """Remove the offsets of deleted logs from the checkpoints: they belong to an earlier topic of this name.

        The offsets of other missing logs stay. They may be the only sign of a loss.
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
        """Delete a log: its folder is renamed now, and `purge_deleted` removes it.

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
        self._folders.rename_deleted(partition)

    def remove_deleted_records(self) -> None:
        """Store the log start offsets durably, and rename the files of segments whose records are all deleted.

        A thread calls this after `Log.delete_records_before`; from then on no crash brings the records back. A log
        whose disk refuses goes offline.

        :raises StorageError: the log start offsets could not be stored; no file was changed.
        """
        logs = [log for log in self.all().values() if not log.is_offline]
        for log in logs:
            # Otherwise a loss of power could leave a log that ends before it begins.
            if log.recovery_point < log.log_start_offset:
                _succeeds(log.flush)
        self.checkpoint_log_starts()
        for log in logs:
            _succeeds(functools.partial(self._set_aside, log))

    def _set_aside(self, log: Log) -> None:
        self._deleted.add(log.rename_deleted_files())

    def set_file_delete_delay(self, delay_ms: int) -> None:
        """Use another `file_delete_delay_ms` for files that are deleted from now on."""
        self._deleted.set_delay(delay_ms / 1000)

    def delete_later(self, paths: list[Path]) -> None:
        """Remove files that a log has renamed, after the delay."""
        self._deleted.add(paths)

    def purge_deleted(self) -> None:
        """Remove the files that were deleted `file_delete_delay_ms` ago. Regions in use stay readable.

        :raises StorageError: the disk refuses.
        """
        if self._deleted.has_due_folders:
            # As long as the folders exist, a start knows that offsets in the checkpoints may be theirs.
            self._checkpoint()
        try:
            self._deleted.purge()
        except OSError as error:
            raise StorageError(f"{self.data_dir}: deleted files cannot be removed: {error}") from error

    # --- durability ---

    def flush_sealed(self) -> None:
        """Flush the logs with sealed or many unflushed batches; store the recovery points and high watermarks.

        A thread calls this periodically. It bounds the batches that a recovery checks. A log whose disk refuses goes
        offline, and the others are flushed.

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

        :raises StorageError: the disk refuses.
        """
        self._store(RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point)

    def checkpoint_log_starts(self) -> None:
        """Store the log start offset of each log.

        :raises StorageError: the disk refuses.
        """
        self._store(LOG_START_CHECKPOINT, lambda log: log.log_start_offset_to_store)

    def checkpoint_high_watermarks(self) -> None:
        """Store the high watermark of each log.

        :raises StorageError: the disk refuses.
        """
        self._store(HIGH_WATERMARK_CHECKPOINT, lambda log: log.high_watermark_to_store)

    def checkpoint_first_dirty_offsets(self) -> None:
        """Store the offset up to which each log is compacted.

        :raises StorageError: the disk refuses.
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
        """Make all logs durable, and mark the stop as clean. Does nothing the second time.

        The next start recovers a log that is offline, or whose disk refuses now.

        :raises StorageError: the stop is not clean; the message names the logs.
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
        """Close all logs, on threads if they are many; return the names of those that were not closed cleanly."""
        logs = list(self._logs.values())
        if len(logs) <= _SERIAL_MAX:
            closed = [_succeeds(log.close) for log in logs]
        else:
            with self._new_threads(_CLOSING_THREADS, "close") as threads:
                closed = map_in_chunks(threads, lambda log: _succeeds(log.close), logs, _AT_ONCE)
        return [str(log.partition) for log, is_closed in zip(logs, closed, strict=True) if not is_closed]

    def _sync_folder(self) -> None:
        """Make the names of all log folders durable with one fsync."""
        try:
            self._filesystem.fsync_folder(self.data_dir)
        except OSError as error:
            raise StorageError(f"{self.data_dir}: not closed cleanly: {error}") from error

    def abandon(self) -> None:
        """Close all files without flushing, as a crash would."""
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

    def _load_logs(
        self, topic_configs: Callable[[], Mapping[str, LogConfig]], contested: Collection[TopicPartition]
    ) -> None:
        """Load every log; set `was_clean` and `lost_memory` by the last stop."""
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
            raise DataFolderError(f"{self.data_dir}: cannot be loaded: {error}") from error
        self._folders.find_deleted(names)
        last_boot_id = self.meta.boot_id if self.meta else ""
        self.was_clean = clean
        self.lost_memory = not clean and last_boot_id not in {"", self._boot_id}
        configs = {} if clean else topic_configs()
        for loaded in self._loader.load_all(partitions, clean=clean, lost_memory=self.lost_memory, configs=configs):
            if loaded is not None:
                self._keep(*loaded)

    def load_one(self, partition: TopicPartition, config: LogConfig | None = None) -> None:
        """Load a contested log, as one that was not closed cleanly.

        :raises DataFolderError: files or memory are short.
        """
        loaded = self._loader.load(partition, clean=False, lost_memory=self.lost_memory, config=config)
        if loaded is not None:
            self._keep(*loaded)

    @lines_about_partition
    def put_offline(self, partition: TopicPartition, reason: str) -> Log:
        """Give a partition an offline log; its folder, if there is one, is not touched."""
        if (log := self._logs.get(partition)) is not None:
            log.abandon()
        self.topic_ids.pop(partition, None)
        return self._keep(self._loader.make_offline(partition, reason), None)

    def make_offline(self, partition: TopicPartition, reason: str) -> Log:
        """Return an offline log that this folder does not own; its reason was logged before."""
        return self._loader.make_offline(partition, reason, is_logged=True)


def _succeeds(action: Callable[[], None]) -> bool:
    """Run an action of one log; log its error, so that the other logs have their turn."""
    try:
        action()
    except BarnabasError as error:
        logger.warning("%s", error)
        return False
    return True
