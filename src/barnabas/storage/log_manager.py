"""All logs of a broker: one data folder, used by one process at a time.

Layout: `<topic>-<partition>/` per log, `meta.properties` (whose folder it is), `.lock`,
`recovery-point-offset-checkpoint` (per log, the offset up to which it was flushed), and `.kafka_cleanshutdown`
while no broker runs and the last one stopped cleanly. Other folders and files are left alone.

The marker of a clean shutdown is written after every log was fsynced, and only if every one was; it is removed,
durably, before anything is written.

Not safe to use from several threads, except `flush_sealed`, `checkpoint_recovery_points` and `purge_deleted`.
"""

from __future__ import annotations

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
    decode_partition_metadata,
    decode_recovery_points,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_partition_metadata,
    encode_recovery_points,
)
from barnabas.storage.config import LogConfig
from barnabas.storage.file_names import (
    CLEAN_SHUTDOWN,
    DELETED_FOLDER_SUFFIX,
    LOCK,
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


class LogManager:
    """The logs in a data folder. Opening one locks the folder and loads, and recovers, every log in it.

    :param config: of logs whose topic has no settings of its own.
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
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self.data_dir = data_dir
        self.config = config
        self.topic_ids: dict[TopicPartition, uuid.UUID] = {}
        """What `partition.metadata` says, where there is one."""
        self._clock = clock
        self._filesystem = filesystem
        self._new_id = new_id
        self._logs: dict[TopicPartition, Log] = {}
        self._checkpoint_lock = threading.Lock()
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
        folder = self.data_dir / str(partition)
        try:
            self._filesystem.make_folder(folder)
            if topic_id is not None:
                content = encode_partition_metadata(topic_id)
                replace_file(self._filesystem, folder / PARTITION_METADATA, content, durable=False)
                self.topic_ids[partition] = topic_id
        except OSError as error:
            raise StorageError(f"{folder}: cannot be made: {error}") from error
        return self._open(partition, config or self.config, clean=False, recovery_point=0)

    def delete(self, partition: TopicPartition) -> None:
        """Take a log out of use; its folder is renamed now and removed by `purge_deleted`.

        :raises StorageError: the disk refuses.
        """
        log = self._logs.pop(partition, None)
        if log is None:
            return
        self.topic_ids.pop(partition, None)
        log.abandon()
        target = self.data_dir / deleted_folder_name(partition, self._new_id().hex)
        try:
            self._filesystem.replace(log.folder, target)
            self._filesystem.fsync_folder(self.data_dir)
        except OSError as error:
            raise StorageError(f"{log.folder}: cannot be renamed to {target.name}: {error}") from error

    def purge_deleted(self) -> None:
        """Remove the folders of deleted logs. Regions that were handed out stay readable.

        :raises StorageError: the disk refuses.
        """
        try:
            for name in self._filesystem.list_folder(self.data_dir):
                if name.endswith(DELETED_FOLDER_SUFFIX):
                    self._filesystem.remove_folder(self.data_dir / name)
        except OSError as error:
            raise StorageError(f"{self.data_dir}: deleted logs cannot be removed: {error}") from error

    # --- durability ---

    def flush_sealed(self) -> None:
        """Flush the logs that began a new segment since they were flushed, and store the recovery points.

        To be called now and then, off the event loop. It bounds what a recovery has to check. A log whose disk
        refuses goes offline, and the others are flushed.

        :raises StorageError: the recovery points could not be stored.
        """
        flushed = False
        for log in self.all().values():
            if log.has_unflushed_segments and not log.is_offline:
                flushed |= _succeeds(log.flush)
        if flushed:
            self.checkpoint_recovery_points()

    def checkpoint_recovery_points(self) -> None:
        """Store up to which offset each log is durable.

        :raises StorageError: the disk refuses.
        """
        try:
            with self._checkpoint_lock:
                points = {partition: log.recovery_point for partition, log in self.all().items()}
                path = self.data_dir / RECOVERY_POINT_CHECKPOINT
                replace_file(self._filesystem, path, encode_recovery_points(points), durable=True)
        except OSError as error:
            raise StorageError(f"{self.data_dir}: recovery points cannot be stored: {error}") from error

    def close(self) -> None:
        """Make all logs durable, and say so for the next start. Does nothing the second time.

        A log that is offline, or whose disk refuses now, is left for the next start to recover.

        :raises StorageError: this stop was not a clean one; says which logs are the reason.
        """
        if self._closed:
            return
        try:
            failed = [str(partition) for partition, log in self._logs.items() if not _succeeds(log.close)]
            self.checkpoint_recovery_points()
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
            points = self._read_recovery_points()
        except OSError as error:
            raise DataFolderError(f"{self.data_dir}: cannot be loaded: {error}") from error
        for name in sorted(names):
            partition = partition_of(name)
            if partition is None or not (self.data_dir / name).is_dir():
                continue
            if not name.endswith(TEMPORARY_SUFFIX):
                self._load(partition, clean=clean, recovery_point=points.get(partition, 0))
        return clean

    def _load(self, partition: TopicPartition, *, clean: bool, recovery_point: int) -> None:
        folder = self.data_dir / str(partition)
        try:
            self._open(partition, self.config, clean=clean, recovery_point=recovery_point)
            content = read_file(self._filesystem, folder / PARTITION_METADATA)
            self.topic_ids[partition] = decode_partition_metadata(content)
        except FileNotFoundError:
            return
        except (OSError, ValueError, StorageError, CorruptBatchError) as error:
            raise DataFolderError(f"{folder}: cannot be loaded: {error}") from error

    def _open(self, partition: TopicPartition, config: LogConfig, *, clean: bool, recovery_point: int) -> Log:
        log = Log.open(
            self.data_dir / str(partition),
            partition,
            config,
            self._clock,
            self._filesystem,
            clean=clean,
            recovery_point=recovery_point,
        )
        log.on_recovery_point_lowered = self.checkpoint_recovery_points
        self._logs[partition] = log
        return log

    def _read_recovery_points(self) -> dict[TopicPartition, int]:
        """Return the stored recovery points; none if they are damaged, so that everything is checked."""
        path = self.data_dir / RECOVERY_POINT_CHECKPOINT
        try:
            return decode_recovery_points(read_file(self._filesystem, path))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            logger.warning("%s is damaged; all logs are checked: %s", path, error)
            return {}


def _succeeds(action: Callable[[], None]) -> bool:
    """Do something to one log; its error is logged, so that the other logs have their turn."""
    try:
        action()
    except BarnabasError as error:
        logger.warning("%s", error)
        return False
    return True
