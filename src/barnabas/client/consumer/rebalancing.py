"""Giving partitions up and taking new ones, by the thread that polls: there the application's listeners may run.

Eager rebalancing, as in Kafka's classic protocol: commit, tell the application, give all partitions up, join,
take what falls to this member, tell the application. The join itself runs on the event loop and goes on there
when a poll's time is over before the other members have come.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable, Sequence

from barnabas.client.consumer.cursor import Cursor
from barnabas.client.consumer.engine import ConsumerEngine
from barnabas.client.loop_thread import LoopThread
from barnabas.client.metadata import ClusterView
from barnabas.client.streams import StreamPlan
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)

Partitions = list[TopicPartition]
Listener = Callable[[Partitions], object]

COMMIT_ON_THE_WAY_OUT_S = 5.0
"""How long a rebalance, a close or the end of the program waits for the last auto-commit."""

JOIN_LOOK_S = 1.0
"""How often a wait for the other members looks whether there is a reason to end it."""


class Rebalancing:
    """Keeps a consumer's assignment up to date. Safe to use from the threads of several streams.

    :param condition: guards what is shared with the event loop.
    :param cursors: the readers; they stop handing out what is given up.
    :param commits: whether to commit what the application has dealt with before giving partitions up.
    :param check: called now and then while waiting for the group; raises what ends the wait.
    """

    def __init__(
        self,
        engine: ConsumerEngine,
        thread: LoopThread,
        condition: threading.Condition,
        cursors: Sequence[Cursor],
        *,
        view: Callable[[], ClusterView],
        commits: bool,
        check: Callable[[], None],
    ) -> None:
        self.on_assign: Listener | None = None
        self.on_revoke: Listener | None = None
        self.streams: StreamPlan | None = None
        self._engine = engine
        self._thread = thread
        self._condition = condition
        self._cursors = cursors
        self._view = view
        self._commits = commits
        self._check = check
        self._lock = threading.RLock()
        self._join: concurrent.futures.Future[Partitions] | None = None

    @property
    def due(self) -> bool:
        """Whether the next poll has something to do here."""
        if not self._engine.subscription.by_topics:
            return False
        membership = self._engine.membership
        return self._engine.view_changed if membership is None else membership.rejoin_needed

    def look_after(self, deadline_s: float) -> None:
        """Join the group (again) if need be, or take over new partitions; by the thread that polls."""
        if not self._engine.subscription.by_topics:
            return
        membership = self._engine.membership
        if membership is None:
            if self._engine.view_changed:
                self._take_all()
        elif membership.rejoin_needed or self._join is not None:
            with self._lock:
                self._rebalance(deadline_s)

    def _take_all(self) -> None:
        """Without a group, all partitions of the topics are this consumer's."""
        with self._condition:
            self._engine.view_changed = False
            subscription = self._engine.subscription
            before = set(subscription.partitions)
            subscription.replace(self._view().partitions_of(sorted(subscription.topics)))
            self.drop_what_is_gone()
            self._deal(list(subscription.partitions))
            new = [tp for tp in subscription.partitions if tp not in before]
        if new and self.on_assign is not None:
            self.on_assign(new)
        self._thread.soon(self._engine.kick)

    def _rebalance(self, deadline_s: float) -> None:
        membership = self._engine.membership
        assert membership is not None
        if self._join is None:
            if not membership.rejoin_needed:
                return  # another stream has done it meanwhile
            self._give_up()
            self._join = self._thread.start(self._engine.join())
        if not self._wait_for(self._join, deadline_s):
            return
        join, self._join = self._join, None
        partitions = join.result()
        with self._condition:
            self._engine.subscription.replace(partitions)
            self._deal(partitions)
        log.info("group %s: assigned %s", membership.group, ", ".join(map(str, partitions)) or "no partitions")
        if self.on_assign is not None:
            self.on_assign(partitions)
        self._thread.soon(self._engine.kick)

    def _wait_for(self, join: concurrent.futures.Future[Partitions], deadline_s: float) -> bool:
        """Wait for the other members; returns False at the deadline."""
        while True:
            remaining_s = deadline_s - self._engine.now_s()
            concurrent.futures.wait([join], max(min(remaining_s, JOIN_LOOK_S), 0.0))
            if join.done() and not join.cancelled():
                return True
            self._check()
            if remaining_s <= 0:
                return False

    def _deal(self, partitions: Partitions) -> None:
        if self.streams is not None:
            self.streams.deal(partitions)

    def _give_up(self) -> None:
        """Commit what is dealt with and tell the application, before others take over."""
        with self._condition:
            given_up = sorted(self._engine.subscription.partitions)
        if not given_up:
            return
        self._commit_done()
        if self.on_revoke is not None:
            self.on_revoke(given_up)
        with self._condition:
            self._engine.subscription.clear_partitions()
            self.drop_what_is_gone()

    def _commit_done(self) -> None:
        membership = self._engine.membership
        assert membership is not None
        lost = membership.lost and self._engine.subscription.by_topics
        if not self._commits or lost:
            return
        try:
            self._thread.call(self._engine.commit_done(COMMIT_ON_THE_WAY_OUT_S))
        except BarnabasError as error:
            log.warning("auto-commit: %s", error)

    def drop_what_is_gone(self) -> None:
        """Under the condition's lock: hand out nothing of partitions that are not this consumer's any more."""
        subscription = self._engine.subscription
        self._engine.fetcher.drop_stale()
        for cursor in self._cursors:
            cursor.drop(lambda state: not subscription.owns(state))

    def leave(self, reason: str) -> None:
        """Give up what topics were subscribed to, and the membership; listeners are told."""
        with self._lock:
            if self._engine.membership is not None and self._engine.subscription.by_topics:
                self._give_up()
                self._abandon_join()
                self._thread.call(self._engine.leave(reason))

    def finish(self, reason: str) -> None:
        """Commit and leave because the consumer is closed; listeners are not told."""
        self._abandon_join()
        if self._engine.membership is not None:
            self._commit_done()
            self._thread.call(self._engine.leave(reason))

    def _abandon_join(self) -> None:
        if self._join is not None:
            self._join.cancel()
            self._join = None
