"""All data directories of a broker, each on its own disk (KIP-112, JBOD). Each data directory has a `LogManager`.

Invariants. A new log is created in the data directory with the fewest logs. If a data directory fails at start or
later, it goes offline with all its logs, and the broker continues with the other directories. If a log is missing while
a data directory is offline, the log may be there. So the log is treated as offline and is not created again. If two
data directories contain the same log, the broker uses the log with the requested topic id. If both logs have this id,
the notes about moves decide; without a decision, neither log is used or changed. If a broker has only one data
directory, an error does not put the directory offline, and failed calls are retried.

A partition directory may contain the note `.moved-by-broker`. It lists data directories that may contain an obsolete
log of this partition: the log moved from there, or the directory was offline when this log was created. A data
directory may contain the note `logs-moved-away`. It lists the logs that are moving or have moved to another data
directory, with their targets. This note is written before a move takes effect. So if a log is in the note and its
target directory is missing, the log may be an old copy (`SupersededLog`).

Threads. The rules are the same as for `LogManager`.

Errors. StorageError is raised if a data directory or its disk fails.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas.errors import BarnabasError, DataFolderError, StorageError
from barnabas.log_lines import LogEvent, event
from barnabas.model import LifeMark, TopicPartition
from barnabas.storage.file_names import partition_of
from barnabas.storage.filesystem import FileSystem, is_shortage, remove_if_there, write_fully
from barnabas.storage.future_logs import LogMove, PendingMoves
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

KnownLives = Callable[[Collection[str]], Mapping[str, LifeMark]]
"""A function that returns the life counters in the metadata store, by the ids of data directories."""

OpenFolder = Callable[[Path], LogManager]
"""A function that opens a data directory without loading its logs."""

_PROBE = ".probe"


class FolderState(NamedTuple):
    """The path of a data directory. `failure` is the reason if the directory is offline, otherwise None."""

    path: Path
    failure: str | None


class _LogsInCreation:
    """The logs that are being created, with their data directories.

    The choice of a data directory for the next log counts them, so concurrent creations are distributed evenly.

    Callers must hold the lock `DataFolders._choosing`.
    """

    def __init__(self) -> None:
        self._managers: dict[TopicPartition, LogManager] = {}
        self._creators: Counter[TopicPartition] = Counter()
        """The number of calls that are currently creating each log."""

    def begin(self, partition: TopicPartition, manager: LogManager) -> None:
        """Record the start of a creation. A call of `end` must follow."""
        self._creators[partition] += 1
        self._managers[partition] = manager

    def end(self, partition: TopicPartition) -> None:
        """Record the end of a creation, with or without success."""
        self._creators[partition] -= 1
        if not self._creators[partition]:
            del self._creators[partition], self._managers[partition]

    def where(self, partition: TopicPartition) -> LogManager | None:
        """Return the data directory of a log that is being created, or None."""
        return self._managers.get(partition)

    def load_of(self, manager: LogManager) -> int:
        """Return the number of logs in a data directory, including the logs that are being created there."""
        while True:
            count = manager.count()
            creating = sum(
                each is manager and manager.get(partition) is None for partition, each in self._managers.items()
            )
            if manager.count() == count:
                return count + creating


class DataFolders:
    """The logs in all data directories.

    :param paths: the data directories. If there are several, failed directories go offline.
    :param topic_configs: see `LogManager`.
    :param known_lives: returns the life counters in the metadata store. A data directory with a lower counter is an
        older copy of itself.
    :param on_all_failed: a function that is called with the reason when all data directories have failed. Any thread
        may call it.
    :raises DataFolderError: a data directory belongs to another broker, another process uses it, or all data
        directories have failed.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        filesystem: FileSystem,
        open_folder: OpenFolder,
        topic_configs: Callable[[], Mapping[str, LogConfig]] = dict,
        known_lives: KnownLives = lambda _ids: {},
        on_all_failed: Callable[[str], object] = lambda _reason: None,
    ) -> None:
        self._paths = tuple(paths)
        self._filesystem = filesystem
        self.topic_ids: dict[TopicPartition, uuid.UUID] = {}
        """The topic ids from `partition.metadata`, for partitions with this file."""
        self.missing: set[TopicPartition] = set()
        """The partitions whose log was missing at start. `restore` created an empty log for each of them."""
        self.gone: set[TopicPartition] = set()
        """The partitions in `missing` whose lost log may have contained records.

        An administrator can copy the log back.
        """
        self._on_all_failed = on_all_failed
        self._managers: dict[Path, LogManager] = {}
        self._failures: dict[Path, str] = {}
        self._elsewhere: dict[TopicPartition, Log] = {}
        """The offline logs that no `LogManager` has. They may be in an offline data directory."""
        self._contested: dict[TopicPartition, list[LogManager]] = {}
        """The logs that several data directories contain. They are not loaded."""
        self._old_copies: dict[TopicPartition, SupersededLog] = {}
        """The logs that may have a newer copy in a missing data directory. They are not loaded."""
        self._lost_ids: set[str] = set()
        """The ids of data directories that the broker had before, but no longer has."""
        self._in_creation = _LogsInCreation()
        self._choosing = threading.Lock()
        self._failing = threading.Lock()
        self._swapping = threading.Lock()
        """The lock that a thread holds while it swaps a log with its copy in another data directory, or deletes a log.
        """
        self._chosen: dict[TopicPartition, Path] = {}
        self.pending_moves = PendingMoves(
            filesystem, lambda: [manager.data_dir for manager in self._healthy()], self.topic_ids
        )
        """The requested moves, which survive restarts."""
        self.moves: dict[TopicPartition, LogMove] = {}
        """The moves in progress."""
        self._looked_at: set[TopicPartition] = set()
        self._lives_refused = False
        try:
            self._open_all(open_folder)
            self._compare_lives(known_lives)
            self._load_all(topic_configs)
            self._note_what_is_lost()
        except BaseException:
            for manager in self._managers.values():
                manager.abandon()
            raise

    # --- the start ---

    def _open_all(self, open_folder: OpenFolder) -> None:
        for path in self._paths:
            self._begin(path, lambda path=path: self._open(path, open_folder))  # type: ignore[misc]
        if not self._managers:
            raise DataFolderError(f"no data directory is usable: {'; '.join(self._failures.values())}")

    def _compare_lives(self, known_lives: KnownLives) -> None:
        managers = [manager for manager in self._managers.values() if manager.folder_id]
        known = known_lives([manager.folder_id for manager in managers])
        for manager in managers:
            manager.life.compare(known.get(manager.folder_id))

    def _open(self, path: Path, open_folder: OpenFolder) -> None:
        manager = open_folder(path)
        manager.topic_ids, manager.missing, manager.gone = self.topic_ids, self.missing, self.gone
        self._managers[path] = manager

    def _load_all(self, topic_configs: Callable[[], Mapping[str, LogConfig]]) -> None:
        self._contested = self._find_contested()
        finish_moves(self._contested)
        for path, manager in list(self._managers.items()):
            self._begin(path, functools.partial(self._look_for_old_copies, manager))
        left_alone = {*self._contested, *self._old_copies}
        configs = functools.cache(topic_configs)
        for path, manager in list(self._managers.items()):
            self._begin(path, functools.partial(manager.load, configs, left_alone))
        if not self._managers:
            raise DataFolderError(f"no data directory is usable: {'; '.join(self._failures.values())}")

    def _begin(self, path: Path, step: Callable[[], None]) -> None:
        """Run a startup step of a data directory.

        If the disk fails and there are other data directories, put this one offline.

        :raises DataFolderError: the step failed for another reason, or there are no other data directories.
        """
        try:
            step()
        except DataFolderError as error:
            cause = error.__cause__
            if not self.has_several or not isinstance(cause, OSError) or is_shortage(cause):
                raise
            extra = event(LogEvent.FOLDER_OFFLINE)
            logger.critical("%s; the data directory is offline with all its logs", error, extra=extra)
            self._failures[path] = str(error)
            if (manager := self._managers.pop(path, None)) is not None:
                manager.abandon()

    def _find_contested(self) -> dict[TopicPartition, list[LogManager]]:
        if not self.has_several:
            return {}
        holders: dict[TopicPartition, list[LogManager]] = {}
        for path, manager in list(self._managers.items()):
            self._begin(path, functools.partial(self._find_logs, manager, holders))
        return {partition: managers for partition, managers in holders.items() if len(managers) > 1}

    def _find_logs(self, manager: LogManager, holders: dict[TopicPartition, list[LogManager]]) -> None:
        try:
            names = self._filesystem.list_folder(manager.data_dir)
            manager.future_logs.discard_futures(names)
        except OSError as error:
            raise DataFolderError(f"{manager.data_dir}: cannot list the data directory: {error}") from error
        for name in names:
            if (partition := partition_of(name)) is not None:
                holders.setdefault(partition, []).append(manager)

    def _look_for_old_copies(self, manager: LogManager) -> None:
        try:
            self._old_copies |= find_superseded_logs(manager, self._managers.values(), self._contested)
        except OSError as error:
            raise DataFolderError(f"{manager.data_dir}: cannot read the notes of moved logs: {error}") from error

    def _note_what_is_lost(self) -> None:
        managers = list(self._managers.values())
        for manager in managers:
            manager.report_age()
        meta = managers[0].meta
        self.folder_id = meta.directory_id if meta else ""
        """The id of the first data directory that was online at start; empty if there is none."""
        ids = {manager.meta.directory_id for manager in managers if manager.meta}
        known = {each for manager in managers if manager.meta for each in manager.meta.folder_ids}
        lost = sorted(known - ids)
        self._lost_ids = set(lost)
        if lost and not self._failures:
            message = "data directories of this broker, with ids %s, are not configured; their logs are lost"
            logger.error(message, lost, extra=event(LogEvent.FOLDER_LOST))
        self.lost_memory = any(manager.lost_memory for manager in managers)
        is_old = not lost and any(manager.is_old for manager in managers)
        for manager in managers:
            manager.is_old = is_old
        if is_old and not self.lost_memory:
            self.note_boot()

    def note_boot(self) -> None:
        """See `LogManager.note_boot`. The stored list also contains the ids of offline data directories.

        :raises DataFolderError: a data directory cannot be written.
        """
        ids = {manager.meta.directory_id for manager in self._managers.values() if manager.meta}
        known = {each for manager in self._managers.values() if manager.meta for each in manager.meta.folder_ids}
        noted = ids | known if self._failures else ids
        for manager in self._healthy():
            manager.note_boot(noted if self.has_several else ())
        for partition in [each for each, old in self._old_copies.items() if old.manager.get(each) is not None]:
            self._old_copies.pop(partition).manager.future_logs.forget_leaving(partition)
        self.lost_memory = False

    # --- life counters ---

    @property
    def may_lack_records(self) -> bool:
        """True if logs may lack records: a crash lost unsynced data, or a data directory is an older copy of itself."""
        return self.lost_memory or any(each.life.old_copy is not None for each in self._managers.values())

    def is_in_old_copy(self, partition: TopicPartition) -> bool:
        """Return whether the log of a partition may be an older copy.

        This is the case if its data directory is an older copy of itself. It is also the case if the log was missing
        and any data directory is an older copy of itself.
        """
        if partition in self.missing or (manager := self._manager_of(partition)) is None:
            return any(each.life.old_copy is not None for each in self._managers.values())
        return manager.life.old_copy is not None

    @property
    def is_ahead_of_tree(self) -> bool:
        """True if the metadata store is older than at least one data directory."""
        return any(each.life.is_ahead for each in self._managers.values())

    def is_in_newer_folder(self, partition: TopicPartition) -> bool:
        """Return whether the metadata store is older than the data directory that contains the log of a partition."""
        manager = self._manager_of(partition)
        return manager is not None and manager.life.is_ahead

    def increment_life_counters(self, now_ms: int) -> dict[str, LifeMark]:
        """Increment the life counters on the disks durably; return the new counters by data directory id.

        If a disk has an error, the result does not contain its counter, and the caller must not raise the counter in
        the metadata store. If a log is newer than the metadata store, its data directory keeps the old counter until
        the log has been compared. Otherwise, the next start could not detect that the metadata store is older.
        """
        raised = {}
        refused = False
        for manager in self._healthy():
            if not manager.folder_id or manager.life.is_overtaken:
                continue
            try:
                if manager.must_stay_ahead:
                    manager.life.stay_ahead()
                    continue
                raised[manager.folder_id] = manager.increment_life_counter(now_ms)
            except StorageError as error:
                self._note_failure(manager, error)
                refused = True
                if not self._lives_refused:
                    message = (
                        "cannot store the life counter of %s: %s; retrying; until then an older copy of this directory"
                        " may remain undetected"
                    )
                    logger.warning(message, manager.data_dir, error)
        self._lives_refused = refused
        return raised

    def confirm_life_counters(self, folder_ids: Collection[str]) -> None:
        """Store durably that the metadata store contains the life counters of these data directories."""
        for manager in self._healthy():
            if manager.folder_id in folder_ids and not manager.must_stay_ahead:
                try:
                    manager.confirm_life_counter()
                except StorageError as error:
                    self._note_failure(manager, error)
                    logger.warning("%s; an older metadata store may remain undetected", error)

    def stop_life_counter(self, folder_id: str) -> None:
        """Stop incrementing a life counter, because another process has raised it in the metadata store.

        The next start finds that the counter is lower than in the metadata store, and treats the directory as an older
        copy.
        """
        for manager in self._managers.values():
            if manager.folder_id == folder_id and not manager.life.is_overtaken:
                manager.life.is_overtaken = True
                logger.error(
                    "another broker uses a copy of log directory %s, or its life counter was changed in the metadata"
                    " store; the next start treats this directory as an older copy of itself",
                    manager.data_dir, extra=event(LogEvent.FOLDER_COPIED),
                )  # fmt: skip

    # --- data directories ---

    @property
    def has_several(self) -> bool:
        """True if there is more than one data directory."""
        return len(self._paths) > 1

    def states(self) -> list[FolderState]:
        """Return the states of all data directories, in the order of the configuration."""
        return [FolderState(path, self._failure_of(path)) for path in self._paths]

    def folder_of(self, partition: TopicPartition) -> Path | None:
        """Return the data directory that contains the log of a partition, or None."""
        if not self.has_several:
            return self._paths[0]
        manager = self._manager_of(partition)
        return None if manager is None else manager.data_dir

    def _failure_of(self, path: Path) -> str | None:
        manager = self._managers.get(path)
        return self._failures[path] if manager is None else manager.failure

    def set_file_delete_delay(self, delay_ms: int) -> None:
        """Set `file_delete_delay_ms` for later deletions; see `LogManager`."""
        for manager in self._managers.values():
            manager.set_file_delete_delay(delay_ms)

    def _healthy(self) -> list[LogManager]:
        return [manager for manager in self._managers.values() if manager.failure is None]

    def _manager_of(self, partition: TopicPartition) -> LogManager | None:
        return next((each for each in self._managers.values() if each.get(partition) is not None), None)

    def check(self) -> None:
        """Put data directories with failed disks offline. A background thread calls this method periodically.

        If a log has gone offline, this method tests its data directory by writing a file.
        """
        if not self.has_several:
            return
        for manager in self._healthy():
            offline = {where for where, log in manager.all().items() if log.is_offline}
            if not offline <= self._looked_at:
                self._looked_at |= offline
                self._probe(manager)

    def _probe(self, manager: LogManager) -> None:
        path = manager.data_dir / _PROBE
        try:
            file = self._filesystem.open(path, create=True)
            try:
                write_fully(self._filesystem, file, [b"\n"])
                self._filesystem.fsync(file)
            finally:
                file.close()
            remove_if_there(self._filesystem, path)
        except OSError as error:
            self._note_failure(manager, error)

    def _note_failure(self, manager: LogManager, error: BaseException) -> None:
        """Put a data directory offline if its disk caused the error and there are other data directories."""
        cause = error if isinstance(error, OSError) else error.__cause__
        if not self.has_several or not isinstance(cause, OSError) or is_shortage(cause):
            return
        with self._failing:
            if manager.failure is not None:
                return
            reason = f"data directory {manager.data_dir} failed: {cause}"
            manager.fail(reason)
            extra = event(LogEvent.FOLDER_OFFLINE)
            logger.critical("%s; the directory is offline with its %d logs", reason, manager.count(), extra=extra)
            if not self._healthy():
                self._on_all_failed(reason)

    def _each(self, what: Callable[[LogManager], None]) -> None:
        """Run an action on each online data directory.

        :raises BarnabasError: the first error, after the action was run on all of them.
        """
        refused: BarnabasError | None = None
        for manager in self._healthy():
            try:
                what(manager)
            except BarnabasError as error:
                self._note_failure(manager, error)
                refused = refused or error
        if refused is not None:
            raise refused

    # --- logs ---

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, or None."""
        manager = self._manager_of(partition)
        return self._elsewhere.get(partition) if manager is None else manager.get(partition)

    def may_have_more(self, topic: str) -> bool:
        """Return whether a topic may have unavailable logs: a directory is offline, or several contain the same log."""
        is_contested = any(each.topic == topic for each in self._contested)
        return is_contested or any(state.failure is not None for state in self.states())

    def count(self) -> int:
        return sum(manager.count() for manager in self._managers.values()) + len(self._elsewhere)

    def all(self) -> dict[TopicPartition, Log]:
        """Return a copy of all logs by partition."""
        logs = dict(self._elsewhere)
        for manager in self._managers.values():
            logs.update(manager.all())
        return logs

    def create(
        self, partition: TopicPartition, config: LogConfig | None = None, topic_id: uuid.UUID | None = None
    ) -> Log:
        """Create a log in the data directory with the fewest logs, or return the existing log.

        :raises StorageError: all data directories have failed, or another directory with files has the name of the
            partition directory.
        """
        if (log := self._elsewhere.get(partition)) is not None:
            return log
        while True:
            with self._place_for(partition) as manager:
                try:
                    is_new = manager.get(partition) is None
                    log = manager.create(partition, config, topic_id)
                    if is_new and (absent := self._absent_ids()):
                        manager.future_logs.note_replaced(partition, absent)
                except StorageError as error:
                    self._note_failure(manager, error.__cause__ or error)
                    if manager.failure is None or not self._healthy():
                        raise
                else:
                    return log

    def _absent_ids(self) -> set[str]:
        """Return the ids of the offline data directories.

        If they become available again, their logs of a partition created now are obsolete.
        """
        failed = {each.folder_id for each in self._managers.values() if each.failure is not None}
        return failed | self._lost_ids if self._failures else failed

    @contextlib.contextmanager
    def _place_for(self, partition: TopicPartition) -> Iterator[LogManager]:
        """A context with the data directory for a new log.

        Threads that create the same log at the same time get the same directory.

        :raises StorageError: all data directories have failed.
        """
        with self._choosing:
            manager = self._manager_of(partition) or self._choose_manager(partition)
            self._in_creation.begin(partition, manager)
        try:
            yield manager
        finally:
            with self._choosing:
                self._in_creation.end(partition)

    def _choose_manager(self, partition: TopicPartition) -> LogManager:
        healthy = self._healthy()
        if not healthy:
            raise StorageError("all data directories are offline")
        if not self.has_several:
            return healthy[0]
        chosen = self._chosen.pop(partition, None)
        found = self._where_the_name_is(partition, healthy)
        if found is None and self._in_creation.where(partition) in healthy:
            found = self._in_creation.where(partition)
        if found is None:
            found = next((each for each in healthy if each.data_dir == chosen), None)
        return found or min(healthy, key=self._in_creation.load_of)

    def _where_the_name_is(self, partition: TopicPartition, managers: Sequence[LogManager]) -> LogManager | None:
        """Return the data directory with this partition directory, or with its offsets in the checkpoints.

        The log must not be created elsewhere.
        """
        for manager in managers:
            if manager.is_half_deleted(partition) or self._filesystem.exists(manager.data_dir / str(partition)):
                return manager
        return next((each for each in managers if each.is_checkpointed(partition)), None)

    def has_no_records(self, partition: TopicPartition) -> bool:
        """See `LogManager.has_no_records`."""
        manager = self._manager_of(partition)
        return manager is not None and manager.has_no_records(partition)

    def is_known(self, partition: TopicPartition, topic_id: uuid.UUID) -> bool:
        """See `LogManager.is_known`."""
        manager = self._manager_of(partition)
        return partition in self._elsewhere or (manager is not None and manager.is_known(partition, topic_id))

    def restore(
        self, partition: TopicPartition, config: LogConfig | None, topic_id: uuid.UUID, *, in_doubt: bool = False
    ) -> Log:
        """See `LogManager.restore`. A log that may be in an offline data directory is offline."""
        if partition in self._contested:
            self._settle(partition, config, topic_id)
        if partition in self._old_copies and (log := self._old_copy(partition, config)) is not None:
            return log
        if (log := self._elsewhere.get(partition)) is not None:
            return log
        if (manager := self._manager_of(partition)) is not None:
            return manager.restore(partition, config, topic_id, in_doubt=in_doubt)
        if offline := [str(state.path) for state in self.states() if state.failure is not None]:
            return self._put_elsewhere(partition, f"the log may be in {' or '.join(offline)}, which is offline")
        with self._place_for(partition) as manager:
            return manager.restore(partition, config, topic_id, in_doubt=in_doubt)

    def _old_copy(self, partition: TopicPartition, config: LogConfig | None) -> Log | None:
        """Load a log that may be an old copy; return None.

        If an offline data directory may contain a newer copy, return an offline log instead.
        """
        old = self._old_copies[partition]
        if partition in self._elsewhere or old.manager.get(partition) is not None:
            return None
        if self._failures:
            reason = f"the log moved to the data directory with id {old.target_id}, which is offline"
            message = "%s: %s; not using the copy in %s, which may be older"
            logger.error(message, partition, reason, old.manager.data_dir, extra=event(LogEvent.FOLDER_LOST))
            return self._put_elsewhere(partition, reason)
        old.use(partition, config)
        return None

    def _put_elsewhere(self, partition: TopicPartition, reason: str) -> Log:
        """Install and return an offline log for a partition whose log may exist elsewhere with all its records.

        The partition is added to `gone`.
        """
        self.gone.add(partition)
        log = self._elsewhere[partition] = next(iter(self._managers.values())).make_offline(partition, reason)
        return log

    def _settle(self, partition: TopicPartition, config: LogConfig | None, topic_id: uuid.UUID) -> None:
        """Load the log of a contested partition if exactly one of the data directories has a log with the topic id."""
        managers = self._contested.pop(partition)
        try:
            own = [each for each in managers if each.topic_id_of(partition) == topic_id]
        except OSError as error:
            logger.warning(
                "%s: cannot read the topic ids of its directories: %s; the partition is offline", partition, error
            )
            self._put_elsewhere(partition, f"cannot read the topic id of its directory: {error}")
            return
        names = " and ".join(str(each.data_dir / str(partition)) for each in managers)
        if len(own) != 1:
            reason = f"several data directories contain the log: {names}; move all but one away and restart the broker"
            message = "%s: %s; the partition is offline, and its files are not changed"
            logger.error(message, partition, reason, extra=event(LogEvent.LOG_UNUSABLE))
            self._put_elsewhere(partition, reason)
            return
        others = ", ".join(str(each.data_dir) for each in managers if each is not own[0])
        logger.warning(
            "using %s; the directories of this name in %s belong to other topics and are not changed", partition, others
        )
        own[0].load_one(partition, config)

    def put_offline(self, partition: TopicPartition, reason: str) -> Log:
        """Install an offline log for a partition. Its partition directory, if it exists, is not changed."""
        manager = self._manager_of(partition) or next(iter(self._managers.values()))
        return manager.put_offline(partition, reason)

    def delete(self, partition: TopicPartition) -> None:
        """Delete a log: rename its directory now; `purge_deleted` removes it later.

        :raises StorageError: the file system returned an error, or the log may be in an offline data directory.
        """
        if self._elsewhere.pop(partition, None) is not None:
            raise StorageError(
                f"{partition}: the log is unavailable; the broker deletes it after a start that finds its directory"
            )
        with self._swapping:
            for manager in self._managers.values():
                if manager.get(partition) is not None:
                    manager.delete(partition)

    # --- moves ---

    def choose(self, partition: TopicPartition, folder: Path) -> None:
        """Choose the data directory in which a log will be created."""
        if self.has_several:
            self._chosen[partition] = folder

    @property
    def chosen(self) -> Collection[TopicPartition]:
        """The partitions for which a data directory was chosen."""
        return self._chosen.keys()

    def forget_choices(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the chosen data directories of partitions."""
        for partition in partitions:
            self._chosen.pop(partition, None)

    def begin_move(self, partition: TopicPartition, target: Path) -> LogMove:
        """Start to move a log to another data directory. This call may block on the disk.

        :raises StorageError: the log or the target does not exist, the target contains a directory of this name, or the
            file system returned an error.
        """
        source, to = self._manager_of(partition), self._managers.get(target)
        current = None if source is None else source.get(partition)
        if source is None or current is None or to is None or to.failure is not None or to is source:
            raise StorageError(f"cannot move {partition} to {target}: the log or the target is unavailable")
        # Otherwise, an old note could make the target look like the source of the move.
        source.future_logs.note_replaced(partition)
        for manager in self._healthy():
            if manager is not source and manager.future_logs.is_leaving(partition):
                manager.future_logs.release(partition)  # an earlier move may have failed to release the log
        move = LogMove(
            current, to.future_logs.create_future(current, source.folder_id, self.topic_ids.get(partition)), target
        )
        self.moves[partition] = move
        return move

    def swap(self, move: LogMove) -> Log:
        """Replace a log with its copy. No append may run at the same time, and a call of `end_move` must follow.

        :returns: the new log of the partition.
        :raises StorageError: the file system returned an error, or the log was deleted during the move.
        """
        with self._swapping:
            source = self._manager_of(move.current.partition)
            is_given_up = self.moves.get(move.current.partition) is not move
            if is_given_up or source is None or source.get(move.current.partition) is not move.current:
                raise StorageError(f"the move of {move.current.partition} was canceled")
            move.complete()
            target = self._managers[move.target]
            source.future_logs.note_leaving(move.current.partition, target.folder_id)
            try:
                return target.future_logs.promote(move.future, move.current)
            except StorageError:
                if not move.current.is_offline:
                    source.future_logs.forget_leaving(move.current.partition)
                raise

    def end_move(self, move: LogMove, *, is_done: bool) -> None:
        """Remove the old log after a move, or the copy of a canceled move.

        :param is_done: True if the result of `swap` is in use; False if the move was canceled. If the broker stops
            before this call, the next start ends the move.
        :raises StorageError: the file system returned an error; the next start ends the move.
        """
        partition, target = move.current.partition, self._managers[move.target]
        with self._swapping:
            self.moves.pop(partition, None)
            if not is_done:
                move.future.abandon()
                if target.get(partition) is None:
                    target.future_logs.discard_future(move.future.folder)
                return
            for manager in self._managers.values():
                if manager is not target and manager.get(partition) is move.current:
                    manager.future_logs.release(partition)
            target.future_logs.note_replaced(partition, self._absent_ids())

    def remove_deleted_records(self) -> None:
        """See `LogManager.remove_deleted_records`."""
        self._each(lambda each: each.remove_deleted_records())

    def delete_later(self, paths: list[Path]) -> None:
        """Remove files that a log has renamed, after the delay."""
        for manager in self._managers.values():
            own = [path for path in paths if manager.data_dir in path.parents] if self.has_several else paths
            if own:
                manager.delete_later(own)

    def purge_deleted(self) -> None:
        """See `LogManager.purge_deleted`."""
        self._each(lambda each: each.purge_deleted())

    # --- durability ---

    def flush_sealed(self) -> None:
        """See `LogManager.flush_sealed`."""
        self._each(lambda each: each.flush_sealed())

    def checkpoint_recovery_points(self) -> None:
        """See `LogManager.checkpoint_recovery_points`."""
        self._each(lambda each: each.checkpoint_recovery_points())

    def checkpoint_high_watermarks(self) -> None:
        """See `LogManager.checkpoint_high_watermarks`."""
        self._each(lambda each: each.checkpoint_high_watermarks())

    def checkpoint_first_dirty_offsets(self) -> None:
        """See `LogManager.checkpoint_first_dirty_offsets`."""
        self._each(lambda each: each.checkpoint_first_dirty_offsets())

    def close(self) -> None:
        """Close all logs durably, and write the clean-shutdown markers. A second call does nothing.

        :raises StorageError: the shutdown is not clean. The message names the logs or data directories with errors; all
            others are closed cleanly.
        """
        refused: list[str] = []
        for manager in self._managers.values():
            try:
                manager.close()
            except StorageError as error:
                refused.append(str(error))
        if refused:
            raise StorageError("; ".join(refused))


AnyLogs = LogManager | DataFolders
"""The logs of one data directory, or of all data directories."""


class SupersededLog(NamedTuple):
    """A log that may have a newer copy in a missing data directory."""

    manager: LogManager
    target_id: str
    """The id of the missing data directory."""

    def use(self, partition: TopicPartition, config: LogConfig | None) -> None:
        """Load the log, and record that its end may be lost together with the data directory that had the newer copy.

        :raises DataFolderError: file descriptors or memory are short.
        """
        logger.error(
            "%s moved to the data directory with id %s, which is lost; using the copy in %s, which may be older",
            partition, self.target_id, self.manager.data_dir, extra=event(LogEvent.FOLDER_LOST),
        )  # fmt: skip
        self.manager.load_one(partition, config)
        if (log := self.manager.get(partition)) is not None and log.lost_from is None:
            log.note_loss(log.log_end_offset)


def finish_moves(contested: dict[TopicPartition, list[LogManager]]) -> None:
    """Complete interrupted moves: rename the obsolete logs.

    If it is unknown which log is obsolete, the partition remains in `contested`.
    """
    for partition, managers in list(contested.items()):
        try:
            if _end_move(partition, managers):
                del contested[partition]
        except (OSError, StorageError) as error:
            logger.warning("cannot complete the move of %s: %s; retrying at the next start", partition, error)


def _end_move(partition: TopicPartition, managers: Sequence[LogManager]) -> bool:
    replaced = {manager.folder_id: set(manager.future_logs.moved_from(partition)) for manager in managers}
    newest = [each for each in managers if replaced.keys() - {each.folder_id} <= replaced[each.folder_id]]
    if len(newest) != 1:
        return False
    (target,) = newest
    if target.life.old_copy is not None:
        # If a data directory is an older copy of itself, its note may be outdated, because other moves may have
        # followed.
        return False
    for manager in managers:
        if manager is not target:
            logger.info(
                "the log of %s in %s is older than in %s; removing it", partition, manager.data_dir, target.data_dir
            )
            manager.future_logs.release(partition)
    target.future_logs.note_replaced(partition, replaced[target.folder_id] - replaced.keys())
    return True


def find_superseded_logs(
    manager: LogManager, managers: Collection[LogManager], contested: Collection[TopicPartition]
) -> dict[TopicPartition, SupersededLog]:
    """Return the logs of a data directory that may have a newer copy in a missing data directory.

    :param managers: the managers of all data directories that are not missing.
    :raises OSError: the file system returned an error.
    """
    found = {}
    here = {each.folder_id for each in managers}
    for partition, target_id in manager.future_logs.read_leaving().items():
        if not manager.future_logs.has_folder(partition) or (target_id in here and partition not in contested):
            # The log has moved to the target, or the move was interrupted before it created a directory in the target.
            manager.future_logs.forget_leaving(partition)
        elif target_id not in here:
            found[partition] = SupersededLog(manager, target_id)
    return found
