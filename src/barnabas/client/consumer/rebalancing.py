"""Giving partitions up and taking new ones, when the application polls: then its listeners may run.

An eager member commits, tells the application, gives all partitions up, joins, takes what falls to it, and tells
the application. A cooperative one (KIP-429) commits, joins, and reads on meanwhile; then it gives up what it shall
not have any longer, takes what is new, and, if it has given up something, joins again, so that another member can
take that. Who has been left behind by its group has lost its partitions: others read them already.

The join itself runs on the event loop and goes on there when a poll's time is over before the other members have
come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from barnabas.client.consumer.cursor import Cursor
from barnabas.client.consumer.engine import ConsumerEngine
from barnabas.client.consumer.membership import Membership
from barnabas.client.consumer.shells import Listener, Outcome, Partitions, Shell
from barnabas.client.metadata import ClusterView
from barnabas.client.streams import StreamPlan
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)

COMMIT_ON_THE_WAY_OUT_S = 5.0
"""How long a rebalance, a close or the end of the program waits for the last auto-commit."""

JOIN_LOOK_S = 1.0
"""How often a wait for the other members looks whether there is a reason to end it."""


class Rebalancing:
    """Keeps a consumer's assignment up to date. Safe to use from the threads of several streams.

    :param cursors: the readers; they stop handing out what is given up.
    :param commits: whether to commit what the application has dealt with before giving partitions up.
    :param check: called now and then while waiting for the group; raises what ends the wait.
    """

    def __init__(
        self,
        engine: ConsumerEngine,
        shell: Shell,
        cursors: Sequence[Cursor],
        *,
        view: Callable[[], ClusterView],
        commits: bool,
        check: Callable[[], None],
    ) -> None:
        self.on_assign: Listener | None = None
        self.on_revoke: Listener | None = None
        self.on_lost: Listener | None = None
        self.streams: StreamPlan | None = None
        self._engine = engine
        self._shell = shell
        self._guard = shell.guard
        self._cursors = cursors
        self._view = view
        self._commits = commits
        self._check = check
        self._join: Outcome | None = None

    @property
    def due(self) -> bool:
        """Whether the next poll has something to do here."""
        if not self._engine.subscription.by_topics:
            return False
        membership = self._engine.membership
        if membership is None:
            return self._engine.view_changed
        join = self._join
        return membership.rejoin_needed if join is None else join.done()

    async def look_after(self, deadline_s: float) -> None:
        """Join the group (again) if need be, or take over new partitions; by who polls."""
        if not self._engine.subscription.by_topics:
            return
        membership = self._engine.membership
        if membership is None:
            if self._engine.view_changed:
                await self._take_all()
        elif membership.rejoin_needed or self._join is not None:
            await self._shell.alone(self._rebalance(deadline_s))

    async def _take_all(self) -> None:
        """Without a group, all partitions of the topics are this consumer's."""
        with self._guard:
            self._engine.view_changed = False
            subscription = self._engine.subscription
            before = set(subscription.partitions)
            subscription.replace(self._view().partitions_of(sorted(subscription.topics)))
            self.drop_what_is_gone()
            self._deal(list(subscription.partitions))
            new = [tp for tp in subscription.partitions if tp not in before]
        if new and self.on_assign is not None:
            await self._shell.tell(self.on_assign, new)
        self._shell.soon(self._engine.kick)

    async def _rebalance(self, deadline_s: float) -> None:
        membership = self._engine.membership
        assert membership is not None
        while self._join is not None or membership.rejoin_needed:
            if self._join is None:
                await self._prepare(membership)
                self._join = self._shell.start(self._engine.join())
                self._join.add_done_callback(self._wake)
            if not await self._wait_for(self._join, deadline_s):
                return
            join, self._join = self._join, None
            partitions = join.result()
            if partitions is not None:  # else they are lost, which the next round sees to
                await self._take(membership, partitions)

    async def _prepare(self, membership: Membership) -> None:
        """Give up what a member must not have while it joins.

        :raises FencedError: it must not join at all.
        """
        if membership.lost:
            await self._lose(membership)
        elif membership.is_cooperative:
            await self._commit_done()
            with self._guard:
                subscription = self._engine.subscription
                unwanted = [tp for tp in subscription.partitions if tp.topic not in subscription.topics]
            await self._give_up(unwanted)
        else:
            await self._give_up_all()
        if membership.fenced is not None:
            raise membership.fenced

    async def _take(self, membership: Membership, partitions: Partitions) -> None:
        """Take over what the leader has assigned, and give up what it has not."""
        with self._guard:
            before = set(self._engine.subscription.partitions)
        revoked = before.difference(partitions)
        if revoked:
            # Others get them when this member joins again.
            membership.rejoin("partitions were given up that others shall have")
            await self._commit_done()
        try:
            await self._give_up(revoked)
        finally:
            with self._guard:
                self._engine.subscription.replace(partitions)
                self._deal(partitions)
                self.drop_what_is_gone()
        log.info("group %s: assigned %s", membership.group, ", ".join(map(str, partitions)) or "no partitions")
        self._shell.soon(self._engine.kick)
        new = [tp for tp in partitions if tp not in before]
        if self.on_assign is not None and (new or not membership.is_cooperative):
            await self._shell.tell(self.on_assign, new)

    async def _wait_for(self, join: Outcome, deadline_s: float) -> bool:
        """Wait for the other members, or not, if there is something to read meanwhile; returns False at the end."""
        while True:
            remaining_s = 0.0 if self._engine.subscription.partitions else deadline_s - self._engine.now_s()
            await self._shell.wait_for(join, max(min(remaining_s, JOIN_LOOK_S), 0.0))
            if join.done() and not join.cancelled():
                return True
            self._check()
            if remaining_s <= 0:
                return False

    def _wake(self, _join: object) -> None:
        with self._guard:
            self._guard.notify_all()

    def _deal(self, partitions: Partitions) -> None:
        if self.streams is not None:
            self.streams.deal(partitions)

    async def _give_up_all(self) -> None:
        """Commit what is dealt with and tell the application, before others take over."""
        with self._guard:
            given_up = list(self._engine.subscription.partitions)
        if given_up:
            await self._commit_done()
            await self._give_up(given_up)

    async def _lose(self, membership: Membership) -> None:
        """Tell the application that others read its partitions already; what it has read of them is not committed."""
        with self._guard:
            lost = list(self._engine.subscription.partitions)
        if lost:
            log.warning("group %s: lost %s: %s", membership.group, ", ".join(map(str, lost)), membership.reason)
        await self._give_up(lost, self.on_revoke if self.on_lost is None else self.on_lost)
        membership.on_given_up()

    async def _give_up(self, partitions: Iterable[TopicPartition], tell: Listener | None = None) -> None:
        """Tell the application, and then hand out nothing of these partitions any more."""
        given_up = sorted(partitions)
        if not given_up:
            return
        listener = tell or self.on_revoke
        if listener is not None:
            await self._shell.tell(listener, given_up)
        with self._guard:
            subscription = self._engine.subscription
            subscription.replace([tp for tp in subscription.partitions if tp not in given_up])
            self._deal(list(subscription.partitions))
            self.drop_what_is_gone()

    async def _commit_done(self) -> None:
        membership = self._engine.membership
        assert membership is not None
        lost = membership.lost and self._engine.subscription.by_topics
        if not self._commits or lost:
            return
        try:
            await self._shell.run(self._engine.commit_done(COMMIT_ON_THE_WAY_OUT_S))
        except BarnabasError as error:
            log.warning("auto-commit: %s", error)

    def drop_what_is_gone(self) -> None:
        """Under the guard: hand out nothing of partitions that are not this consumer's any more."""
        subscription = self._engine.subscription
        self._engine.fetcher.drop_stale()
        for cursor in self._cursors:
            cursor.drop(lambda state: not subscription.owns(state))

    async def leave(self, reason: str) -> None:
        """Give up what topics were subscribed to, and the membership; listeners are told."""
        membership = self._engine.membership
        if membership is not None and self._engine.subscription.by_topics:
            await self._shell.alone(self._leave(membership, reason))

    async def _leave(self, membership: Membership, reason: str) -> None:
        if membership.lost:
            await self._lose(membership)
        await self._give_up_all()
        self._abandon_join()
        await self._shell.run(self._engine.leave(reason))

    async def finish(self, reason: str) -> None:
        """Commit and leave because the consumer is closed; listeners are not told."""
        self._abandon_join()
        if self._engine.membership is not None:
            await self._commit_done()
            await self._shell.run(self._engine.leave(reason))

    def _abandon_join(self) -> None:
        if self._join is not None:
            self._join.cancel()
            self._join = None
