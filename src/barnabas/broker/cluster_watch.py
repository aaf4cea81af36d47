"""Follows the tree: which brokers live, and what they say that they changed.

Three watches, however many partitions there are: on the brokers, and on the changes that they tell
(`barnabas.coordination.change_notifications`). Reading runs on the tree's thread. Who follows says when to read: not while it
changes something itself, since what was read before its own change would undo that.

A new session begins by reading everything; so does a broker that finds that it has missed a change.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from barnabas.broker.tree_thread import InTreeThread
from barnabas.coordination import change_notifications, paths, topic_metadata_store
from barnabas.coordination.change_notifications import Change
from barnabas.coordination.metadata_store import MetadataStore, NodeError, NoNodeError, Watch, WatchEvent
from barnabas.coordination.topic_metadata_store import TopicInfo
from barnabas.coordination.values import LiveBroker
from barnabas.errors import BarnabasError

AGAIN_S = 0.5
"""The pause after which the tree is read again, when it could not be read."""
PURGE_INTERVAL_S = 60.0
"""How often old changes are cleared away, if there are new ones."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class News:
    """What was read, in the order in which it is to be taken over: brokers first."""

    brokers: Mapping[int, LiveBroker] | None = None
    is_everything: bool = False
    """Whether a topic that is not named here is gone."""
    is_new_session: bool = False
    """Whether this broker registered anew before it was read: where the tree says that it leads, that was earlier."""
    topics: dict[str, TopicInfo | NodeError | None] = field(default_factory=dict)
    """None: it is gone. An error: its nodes cannot be understood."""
    changes: list[Change] = field(default_factory=list)
    """Of which the states and settings are news; the topics that they name stand in `topics`."""


Read = Callable[[], Awaitable[News]]
"""Reads what is due. It may be called once."""

TakeOver = Callable[[Read], Awaitable[News]]


class ClusterWatch:
    """Used from the event loop's thread only.

    :param take_over: called when something is to be read, returns what that was; the next is read when it has returned.
    """

    def __init__(self, tree: MetadataStore, in_tree_thread: InTreeThread, take_over: TakeOver) -> None:
        self._tree = tree
        self._in_tree_thread = in_tree_thread
        self._take_over = take_over
        self._loop = asyncio.get_running_loop()
        self._is_due = asyncio.Event()
        self._due = {paths.BROKER_IDS, paths.CHANGES}
        self._seen: frozenset[int] | None = None
        """The numbers of the changes that were read; None: everything has to be read."""
        self._folder = 0
        """When the node was created whose children the changes are: another one has other changes under old names."""
        self._session = self._known_session = 0
        """Counts the sessions; and the latest of them of which everything was taken over."""
        self._told = ""
        self._brokers: Mapping[int, LiveBroker] = {}
        self._unpurged = 0

    def read_everything(self) -> News:
        """Read all there is; may be called from the tree's thread.

        Changes that are made meanwhile are read again afterwards.
        """
        topic_metadata_store.ensure_roots(self._tree)
        folder, seen = (
            self._created_at(),
            frozenset(change_notifications.numbers_of(self._tree.children(paths.CHANGES))),
        )
        brokers = self._read_brokers()
        topics: dict[str, TopicInfo | NodeError | None] = dict(topic_metadata_store.each_topic(self._tree))
        is_new_session = self._session != self._known_session
        news = News(brokers, is_everything=True, is_new_session=is_new_session, topics=topics)
        self._seen, self._folder = seen, folder
        return news

    def begin_anew(self) -> None:
        """Read everything again: the session is another one."""
        self._session += 1
        self._note_due(paths.BROKER_IDS)
        self._note_due(paths.CHANGES)

    async def run(self) -> None:
        """Follow the tree until cancelled."""
        self._is_due.set()
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            (due, self._due), session = (self._due, set()), self._session
            try:
                news = await self._take_over(functools.partial(self._in_tree_thread, self._read, due))
                self._told = ""
            except BarnabasError as error:
                self._try_again(error)
                await asyncio.sleep(AGAIN_S)
            except Exception as error:
                log.exception("what the tree says could not be taken over")
                self._try_again(error)
                await asyncio.sleep(AGAIN_S)
            else:
                if news.is_new_session:
                    self._known_session = session

    def _try_again(self, error: Exception) -> None:
        """Read everything: perhaps it was taken over in part, and of what is known already nothing more would come."""
        if str(error) != self._told:
            log.warning("the cluster's state cannot be read; tried again: %s", error)
            self._told = str(error)
        self._seen = None
        self._note_due(paths.BROKER_IDS)
        self._note_due(paths.CHANGES)

    # -- on the tree's thread -------------------------------------------------------------------------------

    def _read(self, due: set[str]) -> News:
        news = self._read_changes() if paths.CHANGES in due else News()
        # After the changes, so that no broker is known to be less than what a change says of it.
        if paths.BROKER_IDS in due:
            news.brokers = self._read_brokers(self._on_event)
        elif news.brokers is None and any(change.brokers for change in news.changes):
            news.brokers = self._read_brokers()
        return news

    def _read_brokers(self, watch: Watch | None = None) -> Mapping[int, LiveBroker]:
        try:
            self._brokers = topic_metadata_store.read_brokers(self._tree, watch, self._brokers)
        except NoNodeError:
            topic_metadata_store.ensure_roots(self._tree)  # somebody deleted it; each broker will register again
            self._brokers = topic_metadata_store.read_brokers(self._tree, watch, self._brokers)
        return self._brokers

    def _read_changes(self) -> News:
        try:
            numbers = change_notifications.numbers_of(self._tree.children(paths.CHANGES, self._on_event))
        except NoNodeError:
            topic_metadata_store.ensure_roots(self._tree)
            numbers, self._seen = (
                change_notifications.numbers_of(self._tree.children(paths.CHANGES, self._on_event)),
                None,
            )
        unseen = None if self._seen is None else change_notifications.unseen_of(numbers, self._seen)
        # A new session may have begun while something else was read.
        if unseen is None or self._session != self._known_session or self._created_at() != self._folder:
            return self.read_everything()
        news = self._read_unseen(unseen)
        if unseen and not news.is_everything:
            # Without a new one, those before stay known: the newest of them may be purged before the next one comes.
            self._seen = frozenset(numbers)
        return news

    def _created_at(self) -> int:
        stat = self._tree.exists(paths.CHANGES)
        return 0 if stat is None else stat.created_at

    def _read_unseen(self, numbers: list[int]) -> News:
        news = News()
        for number in numbers:
            path = change_notifications.path_of(number)
            try:
                news.changes.append(change_notifications.decode_change(path, self._tree.get(path).data))
            except NoNodeError:
                return self.read_everything()
            except NodeError as error:
                log.warning("%s; everything is read again", error)
                return self.read_everything()
        for name in dict.fromkeys(name for change in news.changes for name in change.topics):
            try:
                news.topics[name] = topic_metadata_store.read_topic(self._tree, name)
            except NodeError as error:
                news.topics[name] = error
        self._unpurged += len(numbers)
        return news

    def _on_event(self, event: WatchEvent) -> None:
        """Called on a thread of the tree's."""
        self._loop.call_soon_threadsafe(self._note_due, event.path)

    def _note_due(self, path: str) -> None:
        self._due.add(path)
        self._is_due.set()

    # -- clearing away --------------------------------------------------------------------------------------

    async def purge(self) -> None:
        """Clear away old changes, if there were new ones since."""
        if not self._unpurged:
            return
        self._unpurged = 0
        await self._in_tree_thread(change_notifications.purge_changes, self._tree)
