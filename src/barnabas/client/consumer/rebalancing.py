"""Giving partitions up and taking new ones, when the application polls: then its listeners may run. No I/O.

An eager member commits, tells the application, gives all partitions up, joins, takes what falls to it, and tells
the application. A cooperative one (KIP-429) commits, joins, and reads on meanwhile; then it gives up what it shall
not have any longer, takes what is new, and, if it has given up something, joins again, so that another member can
take that. Who has been left behind by its group has lost its partitions: others read them already.

Each such change is a procedure: a generator that yields what it waits for, which is a listener (`ListenerCall`) or the
background (`BackgroundTask`). Any poll takes it further as soon as that is done, whoever began it: a poll whose time is over
leaves it where it is. There is one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable

from barnabas.client.consumer.call_steps import (
    FOREVER_S,
    AssignmentChange,
    BackgroundTask,
    CallSteps,
    Join,
    Leave,
    ListenerCall,
    Wait,
)
from barnabas.client.consumer.group_membership import GroupMembership
from barnabas.client.consumer.state import ConsumerState
from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)

COMMIT_ON_THE_WAY_OUT_S = 5.0
"""How long a rebalance, a close or the end of the program waits for the last auto-commit."""

Procedure = Generator[BackgroundTask | ListenerCall, None, None]


class Rebalancing:
    """Keeps a consumer's assignment up to date. Safe to use from the threads of several streams.

    Invariant: nobody hands out records while the application is being told, or its last commit is under way: they
    would be read, and not committed, by who must give them up. While a join is under way, what is left is read on.
    """

    def __init__(self, state: ConsumerState) -> None:
        self.listening: frozenset[AssignmentChange] = frozenset()
        """Of what the application wants to be told."""
        self._state = state
        self._guard = state.guard
        self._procedure: Procedure | None = None
        self._awaited: BackgroundTask | ListenerCall | None = None
        self._interrupted_call: ListenerCall | None = None
        """What is awaited, if who was to tell it was interrupted before the listener had its say."""

    @property
    def due(self) -> bool:
        """Whether the next poll has something to do here."""
        if not self._state.subscription.by_topics:
            return False
        if self._awaited is not None:
            return self._awaited.done or not isinstance(self._awaited, Join)
        membership = self._state.membership
        if membership is None:
            return self._state.view_changed
        return membership.rejoin_needed or self._state.now_s() >= membership.until_s

    # --- going on ---------------------------------------------------------------------------------------

    def rebalance_if_due(self, deadline_s: float, *, nested: bool) -> CallSteps[bool]:
        """Join the group (again) if need be, or take over new partitions.

        :param nested: whether this is called by a listener, for which everything here waits.
        :return: whether records may be handed out now; False at the deadline.
        """
        while self._state.subscription.by_topics:
            wake_count = self._guard.wake_count
            with self._guard.lock:
                self._state.check_usable()  # whoever was closed meanwhile must not join again
                call = self._advance(self._begin)
                if call is None and (self._awaited is None or nested or self._reads_on()):
                    break
                if call is None:
                    self._state.check_usable()
                    self._state.raise_pending_error()
                    if self._state.now_s() >= deadline_s:
                        return False
            yield from self._call_listener_or_wait(call, self._state.wait(deadline_s, wake_count))
        return True

    def _call_listener_or_wait(self, call: ListenerCall | None, wait: Wait) -> CallSteps[None]:
        """Have `call` told; if there is nothing to tell, wait."""
        if call is None:
            yield wait
            return
        try:
            yield call
        finally:
            with self._guard.lock:
                if self._awaited is call and not (call.done or call.goes_on):
                    self._interrupted_call = call

    def _reads_on(self) -> bool:
        return isinstance(self._awaited, Join) and bool(self._state.subscription.partitions)

    def _begin(self) -> Procedure | None:
        membership = self._state.membership
        if membership is None:
            return self._take_all() if self._state.view_changed else None
        if self._state.now_s() >= membership.until_s:
            membership.on_silence()
        return self._rebalance(membership) if membership.rejoin_needed else None

    def _advance(self, begin: Callable[[], Procedure | None]) -> ListenerCall | None:
        """Under the guard: go as far as it goes without waiting; returns what the application must be told now."""
        if self._interrupted_call is not None:
            call, self._interrupted_call = self._interrupted_call, None
            return call
        while self._awaited is None or self._awaited.done:
            if self._procedure is None:
                self._procedure = begin()
                if self._procedure is None:
                    return None
            try:
                self._awaited = next(self._procedure)
            except StopIteration:
                self._procedure = self._awaited = None
            except BaseException:
                self._procedure = self._awaited = None
                raise
            else:
                if isinstance(self._awaited, ListenerCall):
                    return self._awaited
        return None

    # --- taking -----------------------------------------------------------------------------------------

    def _take_all(self) -> Procedure:
        """Without a group, all partitions of the topics are this consumer's."""
        state = self._state
        state.view_changed = False
        before = set(state.subscription.partitions)
        partitions = state.view.partitions_of(sorted(state.subscription.topics))
        state.replace_partitions(partitions)
        self._guard.wake_background()
        new = [tp for tp in partitions if tp not in before]
        if new:
            yield from self._call_listener("assigned", new)

    def _rebalance(self, membership: GroupMembership) -> Procedure:
        yield from self._prepare(membership)
        join = Join()
        self._state.add_task(join)
        try:
            yield join
        finally:
            if not join.done:
                self._state.abandon(join)
        if join.error is not None:
            raise join.error
        if join.partitions is not None:  # else they are lost, which the next round sees to
            yield from self._take(membership, join.partitions)

    def _prepare(self, membership: GroupMembership) -> Procedure:
        """Give up what a member must not have while it joins.

        :raises FencedError: it must not join at all.
        """
        subscription = self._state.subscription
        if membership.lost:
            yield from self._lose(membership)
        elif membership.is_cooperative:
            yield from self._commit_done()
            yield from self._give_up([tp for tp in subscription.partitions if tp.topic not in subscription.topics])
        else:
            yield from self._give_up_all()
        if membership.fenced is not None:
            raise membership.fenced.error()

    def _take(self, membership: GroupMembership, partitions: list[TopicPartition]) -> Procedure:
        """Take over what the leader has assigned, and give up what it has not."""
        before = set(self._state.subscription.partitions)
        revoked = before.difference(partitions)
        if revoked:
            # Others get them when this member joins again.
            membership.rejoin("partitions were given up that others shall have")
            yield from self._commit_done()
        try:
            yield from self._give_up(revoked)
        finally:
            self._state.replace_partitions(partitions)
        log.info("group %s: assigned %s", membership.group, ", ".join(map(str, partitions)) or "no partitions")
        self._guard.wake_background()
        new = [tp for tp in partitions if tp not in before]
        if new or not membership.is_cooperative:
            yield from self._call_listener("assigned", new)

    # --- giving up --------------------------------------------------------------------------------------

    def _give_up_all(self) -> Procedure:
        """Commit what is dealt with and tell the application, before others take over."""
        given_up = list(self._state.subscription.partitions)
        if given_up:
            yield from self._commit_done()
            yield from self._give_up(given_up)

    def _lose(self, membership: GroupMembership) -> Procedure:
        """Tell the application that others read its partitions already; what it has read of them is not committed."""
        lost = list(self._state.subscription.partitions)
        if lost:
            log.warning("group %s: lost %s: %s", membership.group, ", ".join(map(str, lost)), membership.reason)
        yield from self._give_up(lost, "lost" if "lost" in self.listening else "revoked")
        membership.on_given_up()

    def _give_up(self, partitions: Iterable[TopicPartition], change: AssignmentChange = "revoked") -> Procedure:
        """Tell the application, and then hand out nothing of these partitions any more."""
        given_up = sorted(partitions)
        if given_up:
            yield from self._call_listener(change, given_up)
            self._state.replace_partitions([tp for tp in self._state.subscription.partitions if tp not in given_up])

    def _call_listener(self, change: AssignmentChange, partitions: list[TopicPartition]) -> Procedure:
        if change in self.listening:
            call = ListenerCall(change, partitions)
            yield call
            if call.error is not None:
                raise call.error

    def _commit_done(self) -> Generator[BackgroundTask, None, None]:
        commit = (
            self._state.commit_of_processed(COMMIT_ON_THE_WAY_OUT_S) if self._state.config.enable_auto_commit else None
        )
        if commit is None:
            return
        self._state.add_task(commit)
        yield commit
        if isinstance(commit.error, BarnabasError):
            log.warning("auto-commit: %s", commit.error)
        elif commit.error is not None:
            raise commit.error

    # --- leaving ----------------------------------------------------------------------------------------

    def leave(self, reason: str, *, nested: bool) -> CallSteps[None]:
        """Give up what topics were subscribed to, and the membership; the application is told.

        :raises ConfigurationError: a listener has asked for it, while everything waits for the listener.
        """
        membership = self._state.membership
        if membership is None or not self._state.subscription.by_topics:
            return
        if nested:
            raise ConfigurationError("a listener must not unsubscribe: unsubscribe after the poll that has called it")
        procedures = iter([self._leave(membership, reason)])
        while True:
            wake_count = self._guard.wake_count
            with self._guard.lock:
                self._state.check_usable()
                if isinstance(self._awaited, Join):
                    self.abandon()
                call = self._advance(lambda: next(procedures, None))
                if self._procedure is None:
                    return
            yield from self._call_listener_or_wait(call, Wait(FOREVER_S, wake_count))

    def _leave(self, membership: GroupMembership, reason: str) -> Procedure:
        if membership.lost:
            yield from self._lose(membership)
        yield from self._give_up_all()
        leave = Leave(reason)
        self._state.add_task(leave)
        yield leave

    def finish(self, reason: str) -> Generator[BackgroundTask, None, None]:
        """Commit and leave because the consumer is closed; listeners are not told.

        Advanced under the guard, by who closes: it yields what is to be done before it goes on.
        """
        membership = self._state.membership
        if membership is None:
            return
        if not (membership.lost and self._state.subscription.by_topics):
            yield from self._commit_done()
        leave = Leave(reason)
        self._state.add_task(leave)
        yield leave

    def abandon(self) -> None:
        """Under the guard: break off what is under way."""
        procedure, self._procedure, self._awaited, self._interrupted_call = self._procedure, None, None, None
        if procedure is not None:
            procedure.close()
