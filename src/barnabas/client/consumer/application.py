"""The application's side of a consumer: all that its calls do, written once for both kinds of consumer.

`Consumer` calls it on threads that block, `AsyncConsumer` on an event loop; what differs between them is in the
`Shell`. The other side, which goes on between the calls, is the engine. What is handed out is in `reading`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping

from barnabas.client.cluster import Cluster
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.cursor import Cursor
from barnabas.client.consumer.engine import ConsumerEngine
from barnabas.client.consumer.reading import Reading
from barnabas.client.consumer.rebalancing import Rebalancing
from barnabas.client.consumer.shells import Listener, Shell
from barnabas.client.consumer.subscription import PartitionState
from barnabas.client.dialing import dial_with
from barnabas.client.offset_queries import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, committed_offsets, list_offsets
from barnabas.client.streams import StreamPlan
from barnabas.clock import Clock
from barnabas.errors import ClosedError, ConfigurationError, TimedOutError
from barnabas.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

Committable = OffsetAndMetadata | int


class ApplicationSide:
    """What the application asks for. Arguments and errors are those of the methods of `Consumer`."""

    def __init__(self, config: ConsumerConfig, shell: Shell, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.cluster = Cluster(config, dial=dial_with(config), clock=clock, random=random.random)
        self._shell = shell
        self._guard = shell.guard
        self._cursor = Cursor()
        self._cursors = [self._cursor]
        self._has_streams = False
        self._closed = False
        self.engine = ConsumerEngine(
            config,
            self.cluster,
            self._guard,
            alive=self._alive,
            done_offsets=self._done_offsets,
        )
        self._subscription = self.engine.subscription
        self._rebalancing = Rebalancing(
            self.engine,
            shell,
            self._cursors,
            view=lambda: self.cluster.view,
            commits=config.enable_auto_commit,
            check=self._check_while_joining,
        )
        self.reading = Reading(config, self.cluster, self.engine, self._rebalancing, shell, self._cursors)

    async def start(self) -> None:
        """Begin; on the event loop."""
        self.engine.start()
        if self._subscription.by_topics or self._subscription.partitions:
            self.engine.want_topics()

    def _alive(self) -> bool:
        return self.reading.alive()

    def _check_while_joining(self) -> None:
        self.reading.check_while_joining()

    @property
    def cursor(self) -> Cursor:
        """The reader of a consumer that was not divided into message streams."""
        return self._cursor

    def stop_with(self, error: ClosedError) -> None:
        """Answer every call with `error` from now on."""
        self.reading.stopped = error

    def check_usable(self) -> None:
        """:raises ClosedError: the consumer was closed, or copied by a fork."""
        if self.reading.stopped is not None:
            raise self.reading.stopped

    # --- what to read -----------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str],
        pattern: str | re.Pattern[str] | None,
        *,
        on_assign: Listener | None,
        on_revoke: Listener | None,
        on_lost: Listener | None,
    ) -> None:
        """Read these topics from now on."""
        self.check_usable()
        names = [topics] if isinstance(topics, str) else list(topics)
        with self._guard:
            self._subscription.subscribe(names, pattern)
            self._rebalancing.on_assign, self._rebalancing.on_revoke = on_assign, on_revoke
            self._rebalancing.on_lost = on_lost
            self.engine.view_changed = True
            if self.engine.membership is not None:
                self.engine.membership.rejoin("the subscription has changed")
        self.reading.polled()
        self._shell.soon(self.engine.want_topics)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions."""
        self.check_usable()
        with self._guard:
            self._subscription.assign_by_hand(TopicPartition(*each) for each in partitions)
            self._rebalancing.drop_what_is_gone()
        self._shell.soon(self.engine.want_topics)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are read now."""
        with self._guard:
            return set(self._subscription.partitions)

    async def unsubscribe(self) -> None:
        """Read nothing any more; leave the group."""
        self.check_usable()
        await self._rebalancing.leave("unsubscribed")
        with self._guard:
            self._subscription.unsubscribe()
            self._rebalancing.drop_what_is_gone()

    def divide(self, counts: Mapping[str, int]) -> list[tuple[str, int, Cursor]]:
        """Divide what is read into streams: returns topic, number and reader of each."""
        self.check_usable()
        plan = StreamPlan(counts)
        self._rebalancing.streams = plan
        self._has_streams = True
        streams = [
            (topic, number, Cursor(plan.accepts(topic, number)))
            for topic, count in counts.items()
            for number in range(count)
        ]
        self._cursors += [cursor for _, _, cursor in streams]
        return streams

    def check_undivided(self) -> None:
        """:raises ConfigurationError: there are message streams."""
        if self._has_streams:
            raise ConfigurationError("this consumer was divided into message streams; iterate over those")

    # --- positions --------------------------------------------------------------------------------------

    async def position(self, tp: tuple[str, int], timeout_s: float | None) -> int:
        """Return the offset of the next record of a partition, looking it up if need be."""
        tp = TopicPartition(*tp)
        timeout_s = self.config.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        deadline_s = self.clock.monotonic() + timeout_s
        with self._guard:
            while True:
                self.check_usable()
                state = self._subscription.state(tp)
                position = self._cursor_of(state).position(state)
                if position is not None:
                    return position
                self.reading.raise_what_must_be_told()
                remaining_s = deadline_s - self.clock.monotonic()
                if remaining_s <= 0:
                    raise TimedOutError(f"the position in {tp} is not known after {timeout_s:g} s")
                await self._shell.wait_for_news(remaining_s)

    def _cursor_of(self, state: PartitionState) -> Cursor:
        for cursor in self._cursors:
            if cursor.reads(state):
                return cursor
        return self._cursor

    def seek(self, tp: tuple[str, int], offset: int) -> None:
        """Go on reading a partition at `offset`."""
        if offset < 0:
            raise ConfigurationError(f"offset {offset} is negative; see seek_to_beginning and seek_to_end")
        self._move(lambda state: state.move_to(offset), [tp])

    def seek_by_policy(self, tps: Iterable[tuple[str, int]], policy: str) -> None:
        """Go to the first or the last offset of partitions, of all assigned ones if none is named."""
        self._move(lambda state: state.forget_position(policy), tps)

    def _move(self, move: Callable[[PartitionState], None], tps: Iterable[tuple[str, int]]) -> None:
        self.check_usable()
        with self._guard:
            subscription = self._subscription
            states = [subscription.state(TopicPartition(*tp)) for tp in tps] or list(subscription.partitions.values())
            for cursor in self._cursors:
                cursor.drop(lambda state: state in states)
            for state in states:
                move(state)
            self.engine.fetcher.drop_stale()
        self._shell.soon(self.engine.kick)

    def set_paused(self, tps: Iterable[tuple[str, int]], paused: bool) -> None:
        """Hand out nothing of these partitions, or go on with them."""
        self.check_usable()
        with self._guard:
            for tp in tps:
                self._subscription.state(TopicPartition(*tp)).paused = paused
            self._guard.notify_all()
        self._shell.soon(self.engine.kick)

    # --- offsets ----------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, Committable] | None, timeout_s: float | None) -> None:
        """Commit offsets for the group; None commits everything that was handed out."""
        self.check_usable()
        self._need_group()
        if offsets is None:
            with self._guard:
                states = list(self._subscription.partitions.values())
                positions = {state.tp: self._cursor_of(state).position(state) for state in states}
            to_commit = {tp: OffsetAndMetadata(offset) for tp, offset in positions.items() if offset is not None}
        else:
            to_commit = {
                TopicPartition(*tp): OffsetAndMetadata(each) if isinstance(each, int) else OffsetAndMetadata(*each)
                for tp, each in offsets.items()
            }
        await self._shell.run(self.engine.commit(to_commit, timeout_s))

    async def committed(self, tp: tuple[str, int], timeout_s: float | None) -> OffsetAndMetadata | None:
        """Return what the group has committed for a partition, or None."""
        self.check_usable()
        wanted = TopicPartition(*tp)
        asked = committed_offsets(self.cluster, self._need_group(), [wanted], timeout_s=timeout_s)
        return (await self._shell.run(asked)).get(wanted)

    def _need_group(self) -> str:
        if self.config.group is None:
            raise ConfigurationError("this consumer has no group to commit for; give it one: Consumer(..., group=...)")
        return self.config.group

    def _done_offsets(self) -> dict[PartitionState, int]:
        """Under the guard: what auto-commit should commit."""
        done = {state: self._cursor_of(state).done(state) for state in self._subscription.partitions.values()}
        return {state: offset for state, offset in done.items() if offset is not None}

    async def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return await self._ends(tps, EARLIEST_TIMESTAMP)

    async def end_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return await self._ends(tps, LATEST_TIMESTAMP)

    async def _ends(self, tps: Iterable[tuple[str, int]], which: int) -> dict[TopicPartition, int]:
        found = await self.offsets_for_times(dict.fromkeys(tps, which))
        return {tp: at.offset for tp, at in found.items() if at is not None}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition the first offset with a timestamp of at least the one given, or None."""
        self.check_usable()
        wanted = {TopicPartition(*tp): at_ms for tp, at_ms in timestamps_ms.items()}
        return await self._shell.run(list_offsets(self.cluster, wanted)) if wanted else {}

    # --- finishing --------------------------------------------------------------------------------------

    async def close(self, *, all_done: bool) -> None:
        """Commit what is dealt with, leave the group, end everything.

        :param all_done: what is in hand counts as dealt with.
        """
        if self.reading.stopped is not None:
            return
        with self._guard:
            self._closed = True
            self.stop_with(ClosedError("this consumer is closed; make a new one"))
            if all_done:
                for cursor in self._cursors:
                    cursor.finish()
            self._guard.notify_all()
        try:
            await self._rebalancing.finish("the consumer was closed")
        finally:
            # Also if this was cancelled or interrupted: heartbeats that go on would keep the partitions from others.
            await self._shell.run(self.engine.close())
            await self._shell.stop()

    @property
    def closed(self) -> bool:
        """Whether the application has closed the consumer."""
        return self._closed

    def __str__(self) -> str:
        group = f" in group {self.config.group!r}" if self.config.group else ""
        return f"{group}{', closed' if self._closed else ''}"
