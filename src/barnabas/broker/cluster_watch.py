"""The metadata store watcher, which follows the registered brokers and the change notifications of other brokers.

Three watches suffice for any number of partitions: one on the brokers and two on the notifications
(`barnabas.coordination.change_notifications`). Reads run on the metadata store's thread. `ApplyUpdate` decides when a
read runs. No read runs while this broker writes a change, because an older read would undo the change in the metadata
image.

A new session begins with a full read. A full read also follows if the broker has missed a notification.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.coordination import change_notifications, paths, topic_metadata_store
from barnabas.coordination.change_notifications import ChangeNotification
from barnabas.coordination.metadata_store import MetadataStore, NodeError, NoNodeError, Watch, WatchEvent
from barnabas.coordination.topic_metadata_store import TopicInfo
from barnabas.coordination.values import LiveBroker
from barnabas.errors import BarnabasError
from barnabas.log_lines import LogEvent, event

AGAIN_S = 0.5
"""The pause before a failed read of the metadata store is retried, in seconds."""
PURGE_INTERVAL_S = 60.0
"""The interval between purges of old change notifications, in seconds.

A purge is skipped if no new notifications have arrived.
"""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class MetadataUpdate:
    """The result of one read of the metadata store. `ApplyUpdate` must apply the brokers before the topics."""

    brokers: Mapping[int, LiveBroker] | None = None
    is_everything: bool = False
    """True if this update contains all topics. Topics that are not in `topics` no longer exist."""
    is_new_session: bool = False
    """True if this broker has registered again.

    The leaderships of this broker in the metadata store belong to its earlier registration.
    """
    topics: dict[str, TopicInfo | NodeError | None] = field(default_factory=dict)
    """The topics by name. The value is None if the topic no longer exists, or an error if its nodes are damaged."""
    changes: list[ChangeNotification] = field(default_factory=list)
    """The new change notifications, with partition states and settings. Their topics are in `topics`."""

    @property
    def changed_settings(self) -> list[str]:
        """The paths of the nodes with changed settings, in the order of the changes."""
        return list(dict.fromkeys(path for change in self.changes for path in change.settings))


Read = Callable[[], Awaitable[MetadataUpdate]]
"""Reads the changed parts of the metadata store. `ApplyUpdate` may call this function once."""

ApplyUpdate = Callable[[Read], Awaitable[MetadataUpdate]]


class ClusterWatch:
    """Reads the metadata store when a watch fires. Used from the event loop's thread only.

    :param apply_update: awaits the given read, applies the update and returns it. `ClusterWatch` never runs two of
        these calls at the same time.
    """

    def __init__(self, tree: MetadataStore, in_metadata_thread: InMetadataThread, apply_update: ApplyUpdate) -> None:
        self._tree = tree
        self._in_metadata_thread = in_metadata_thread
        self._apply_update = apply_update
        self._loop = asyncio.get_running_loop()
        self._is_due = asyncio.Event()
        self._due = {paths.BROKER_IDS, paths.CHANGES}
        self._seen: frozenset[int] | None = None
        """The numbers of the notifications that have been read, or None if a full read is due."""
        self._folder = 0
        """The creation id of the parent node of the notifications.

        If the parent node is recreated, notification names are reused.
        """
        self._session = self._known_session = 0
        """The number of the current session, and of the last session whose full read was applied."""
        self._last_error = ""
        self._brokers: Mapping[int, LiveBroker] = {}
        self._unpurged = 0

    def read_everything(self) -> MetadataUpdate:
        """Read the brokers and all topics. This method may be called on the metadata store's thread.

        A change that another broker makes during the read causes another read.
        """
        topic_metadata_store.ensure_roots(self._tree)
        folder, seen = (
            self._created_at(),
            frozenset(change_notifications.numbers_of(self._tree.children(paths.CHANGES))),
        )
        brokers = self._read_brokers()
        topics: dict[str, TopicInfo | NodeError | None] = dict(topic_metadata_store.each_topic(self._tree))
        is_new_session = self._session != self._known_session
        update = MetadataUpdate(brokers, is_everything=True, is_new_session=is_new_session, topics=topics)
        self._seen, self._folder = seen, folder
        return update

    def restart(self) -> None:
        """Schedule a full read, because a new session has begun."""
        self._session += 1
        self._schedule_read(paths.BROKER_IDS)
        self._schedule_read(paths.CHANGES)

    async def run(self) -> None:
        """Read the metadata store after each change, until cancelled."""
        self._is_due.set()
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            (due, self._due), session = (self._due, set()), self._session
            try:
                update = await self._apply_update(functools.partial(self._in_metadata_thread, self._read, due))
                self._last_error = ""
            except BarnabasError as error:
                self._retry(error)
                await asyncio.sleep(AGAIN_S)
            except Exception as error:
                log.exception("cannot apply an update from the metadata store; reading all brokers and topics again")
                self._retry(error)
                await asyncio.sleep(AGAIN_S)
            else:
                if update.is_new_session:
                    self._known_session = session

    def _retry(self, error: Exception) -> None:
        """Schedule a full read after an error.

        The last update may have been applied partly, so reading only newer changes could miss something.
        """
        if str(error) != self._last_error:
            extra = event(LogEvent.TREE_UNREACHABLE)
            log.warning("cannot read the cluster's state from the metadata store: %s; retrying", error, extra=extra)
            self._last_error = str(error)
        self._seen = None
        self._schedule_read(paths.BROKER_IDS)
        self._schedule_read(paths.CHANGES)

    # -- on the metadata store's thread -------------------------------------------------------------------------------

    def _read(self, due: set[str]) -> MetadataUpdate:
        update = self._read_changes() if paths.CHANGES in due else MetadataUpdate()
        # Read the brokers after the notifications, so that no broker is older than a notification about it.
        if paths.BROKER_IDS in due:
            update.brokers = self._read_brokers(self._on_event)
        elif update.brokers is None and any(change.brokers for change in update.changes):
            update.brokers = self._read_brokers()
        return update

    def _read_brokers(self, watch: Watch | None = None) -> Mapping[int, LiveBroker]:
        try:
            self._brokers = topic_metadata_store.read_brokers(self._tree, watch, self._brokers)
        except NoNodeError:
            # Another process deleted the parent node of the registrations. Create it; each broker then registers again.
            topic_metadata_store.ensure_roots(self._tree)
            self._brokers = topic_metadata_store.read_brokers(self._tree, watch, self._brokers)
        return self._brokers

    def _read_changes(self) -> MetadataUpdate:
        try:
            numbers = change_notifications.numbers_of(self._tree.children(paths.CHANGES, self._on_event))
        except NoNodeError:
            topic_metadata_store.ensure_roots(self._tree)
            numbers, self._seen = (
                change_notifications.numbers_of(self._tree.children(paths.CHANGES, self._on_event)),
                None,
            )
        unseen = None if self._seen is None else change_notifications.unseen_of(numbers, self._seen)
        # The session may have changed during the read.
        if unseen is None or self._session != self._known_session or self._created_at() != self._folder:
            return self.read_everything()
        update = self._read_unseen(unseen)
        if unseen and not update.is_everything:
            # Without new notifications, keep the known numbers, because a purge may delete even the newest
            # notification.
            self._seen = frozenset(numbers)
        return update

    def _created_at(self) -> int:
        stat = self._tree.exists(paths.CHANGES)
        return 0 if stat is None else stat.created_at

    def _read_unseen(self, numbers: list[int]) -> MetadataUpdate:
        update = MetadataUpdate()
        for number in numbers:
            path = change_notifications.path_of(number)
            try:
                update.changes.append(change_notifications.decode_change(path, self._tree.get(path).data))
            except NoNodeError:
                return self.read_everything()
            except NodeError as error:
                log.warning("cannot decode a change notification: %s; reading all brokers and topics again", error)
                return self.read_everything()
        for name in dict.fromkeys(name for change in update.changes for name in change.topics):
            try:
                update.topics[name] = topic_metadata_store.read_topic(self._tree, name)
            except NodeError as error:
                update.topics[name] = error
        self._unpurged += len(numbers)
        return update

    def _on_event(self, event: WatchEvent) -> None:
        """Schedule a read of the node. The metadata store calls this method on its own thread."""
        self._loop.call_soon_threadsafe(self._schedule_read, event.path)

    def _schedule_read(self, path: str) -> None:
        self._due.add(path)
        self._is_due.set()

    # -- purge --------------------------------------------------------------------------------------

    async def purge(self) -> None:
        """Purge old notifications if new ones have arrived since the last purge."""
        if not self._unpurged:
            return
        self._unpurged = 0
        await self._in_metadata_thread(change_notifications.purge_changes, self._tree)
