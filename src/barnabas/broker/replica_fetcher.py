"""Fetches from one leader's broker, over one connection, and gives what comes to the replicas that follow it.

What to ask for is decided by `barnabas.replication.fetch_state`; where logs part, `barnabas.replication.truncation`
finds. An answer is dealt with in the call that brings it: what came is appended, and the next request, which says so,
leaves in the same turn of the event loop. A log that needs longer, for a new segment or a truncation, is left out
meanwhile, and the others go on. So it is with a partition that has trouble of its own: one line says what it is, and it
is tried again after a pause.

A leader that answers at once with nothing, closes connections, or sends what is no answer is asked more and more rarely
(`barnabas.net.client_connection`), until a fetch brings something again. Damage of one partition makes pauses for that
one.

A partition that is to be fetched slowly (`barnabas.broker.throttles`) is left out while its quota is exceeded, and the
others of this loop wait for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.log_aggregator import ToldTogether
from barnabas.broker.log_starts import LogStarts, Store
from barnabas.broker.throttles import NO_FOLLOWER_THROTTLE, FollowerThrottle
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.net.client_connection import ClientConnection, RequestBackoff
from barnabas.protocol.messages.fetch import FetchResponse, PartitionData
from barnabas.replication.fetch_state import CUTS_FREE, FetchState, Followed, Limits
from barnabas.replication.truncation import last_epoch, truncation_point
from barnabas.storage.checkpoints import EpochStart

log = logging.getLogger(__name__)

DialLeader = Callable[[], Awaitable[ClientConnection]]

SESSION_LOST = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
SOON_OVER = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH,
     ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)  # fmt: skip
"""What a leader says that knows of another epoch than this broker: usually one of the two is only late."""


HELD_BACK_S_MIN = 0.05
HELD_BACK_S_MAX = 1.0
"""After this time it is looked again at what is held back: it may be in sync by now, or the settings others."""


class FetchLoop:
    """The fetches over one connection. Used from the event loop's thread only.

    :param leader: whose replicas are fetched, as a name for the log.
    :param dial: connects to it.
    :param own: returns the id of this broker, and the epoch of its registration.
    :param store_log_starts: stores durably where all logs begin.
    :param timeout_s: how long an answer may take beyond what the leader may wait.
    :param throttle: what is not to be asked for now.
    """

    def __init__(
        self,
        leader: str,
        dial: DialLeader,
        limits: Limits,
        own: Callable[[], tuple[int, int]],
        store_log_starts: Store,
        now_s: Callable[[], float],
        timeout_s: float,
        throttle: FollowerThrottle = NO_FOLLOWER_THROTTLE,
    ) -> None:
        self._leader = leader
        self._dial = dial
        self._own = own
        self._now_s = now_s
        self._timeout_s = timeout_s + limits.max_wait_ms / 1000
        self._pause_s = limits.pause_s_max
        self._state: FetchState[FollowerReplica] = FetchState(limits)
        self._pacing = RequestBackoff(self._pause_s)
        self._has_news = self._has_trouble = False
        """Whether the answer at hand brought records or moved a log start or high watermark, and whether it made a
        partition pause."""
        self._log_starts = LogStarts(store_log_starts, self._start_stored, self._pause_s)
        self._followed: dict[FollowerReplica, Followed[FollowerReplica]] = {}
        self._throttle = throttle
        self._held_back: dict[FollowerReplica, Followed[FollowerReplica]] = {}
        self._release_timer: asyncio.TimerHandle | None = None
        self._overdrafts = throttle.quota.overdraft_count
        self._swept_s = now_s() - HELD_BACK_S_MIN
        self._connection: ClientConnection | None = None
        self._session = object()
        """Another one after each failure: answers to requests from before count no more."""
        self._is_told = False
        self._troubles: dict[FollowerReplica, str] = {}
        self._together = ToldTogether(log)
        self._connecting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, follower: FollowerReplica) -> None:
        """Fetch for this replica from now on."""
        followed = Followed(follower, follower.topic_id, follower.topic_partition.partition, follower.leader_epoch, 0)
        followed.furthest_offset = follower.log.log_end_offset
        self._followed[follower] = followed
        self._state.follow(followed)
        if follower.log.lost_from is None:
            self._resume(followed)
        else:
            self._do_beside(followed, follower.truncate_lost_records())

    def unfollow(self, follower: FollowerReplica) -> None:
        """Fetch for this replica no longer."""
        self._troubles.pop(follower, None)
        self._held_back.pop(follower, None)
        followed = self._followed.pop(follower, None)
        if followed is not None:
            self._state.unfollow(followed)

    def close(self) -> None:
        """End."""
        self._is_closed = True
        self._log_starts.close()
        for timer in (self._timer, self._release_timer):
            if timer is not None:
                timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()

    # --- requests ---

    def _go_on_soon(self) -> None:
        """Send a request in the next turn of the event loop, with all that this one brings."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        for followed in self._state.resume_due(self._now_s()):
            self._resume(followed)
        self._set_timer()
        if self._is_closed or not self._followed or self._pacing.wait_s(self._now_s()):
            return
        if self._connection is None:
            if self._connecting is None:
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
        elif not self._state.in_flight or self._state.must_interrupt:
            self._hold_back_all()
            self._send(self._connection)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_s = self._state.next_due_s()
        wait_s = self._pacing.wait_s(self._now_s()) if self._followed else 0.0
        if (due_s is not None or wait_s) and not self._is_closed:
            delay_s = wait_s if wait_s or due_s is None else max(due_s - self._now_s(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._go_on_soon)

    def _send(self, connection: ClientConnection) -> None:
        request = self._state.next_request(*self._own())
        if request is None:
            return
        try:
            # The leader may answer sooner where there is more to say, and where a session begins.
            wait_s = request.max_wait_ms / 1000
            answered = partial(self._answered, self._session, self._now_s() + wait_s / 2 if wait_s else None)
            connection.submit(request, answered, timeout_s=self._timeout_s)
            connection.flush()
        except BarnabasError as error:
            self._lose_connection(error)

    async def _connect(self) -> None:
        try:
            while self._connection is None and self._followed:
                try:
                    self._connection = await self._dial()
                except BarnabasError as error:
                    self._tell(f"cannot fetch from {self._leader}: {error}; tried again every {self._pause_s:g} s")
                    await asyncio.sleep(self._pause_s)
        finally:
            self._connecting = None
            self._go_on_soon()

    def _lose_connection(self, error: BarnabasError) -> None:
        self._tell(f"the fetches from {self._leader} were interrupted: {error}")
        connection, self._connection = self._connection, None
        self._pacing.note_futile(self._now_s())
        self._begin_anew()
        if connection is not None:
            connection.close()
        self._go_on_soon()

    def _begin_anew(self) -> None:
        self._session = object()
        self._state.begin_anew()

    def _tell(self, message: str) -> None:
        """Say what is wrong with the leader's broker; once, until it answers again."""
        if not self._is_told:
            self._is_told = True
            log.warning("%s", message)

    # --- answers ---

    def _answered(
        self, session: object, empty_from_s: float | None, response: FetchResponse, error: BarnabasError | None
    ) -> None:
        """Deal with an answer.

        :param empty_from_s: before this time an answer without news is futile; None: it may come at any time.
        """
        if session is not self._session or self._is_closed:
            return
        if error is not None:
            self._lose_connection(error)
            return
        try:
            news = self._state.on_response(response)
        except ApiError as refusal:
            self._refused(refusal)
            return
        self._is_due = True  # what is sent in the end holds all that this answer brings
        self._has_news = self._has_trouble = False
        for followed, data in news:
            self._take(followed, data)
        self._pace(empty_from_s)
        self._go_on()

    def _pace(self, empty_from_s: float | None) -> None:
        """Ask more rarely after an answer that brought nothing and came at once, and at once after any other."""
        now_s = 0.0 if self._has_news or empty_from_s is None else self._now_s()
        if self._has_news or (empty_from_s is not None and now_s >= empty_from_s):
            self._is_told = False
            self._pacing.note_progress()
        # With another request on its way, the leader need not wait with its answer.
        elif empty_from_s is not None and not self._has_trouble and not self._state.in_flight:
            self._pacing.note_futile(now_s)
            if self._pacing.is_slow:
                self._tell(
                    f"{self._leader} answers fetches at once and without news;"
                    f" asking more and more rarely, at least every {self._pause_s:g} s"
                )

    def _refused(self, error: ApiError) -> None:
        """The leader's broker answers no partition."""
        self._begin_anew()
        self._pacing.note_futile(self._now_s())
        if error.code in SESSION_LOST:
            self._go_on_soon()
            return
        self._tell(f"{self._leader} lets nothing be fetched: {error}; tried again every {self._pause_s:g} s")
        now_s = self._now_s()
        for followed in self._state.all():
            self._state.troubled(followed, now_s)
        self._set_timer()

    def _take(self, followed: Followed[FollowerReplica], data: PartitionData) -> None:
        try:
            if data.error_code:
                self._take_error(followed, data)
            elif data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
                epoch = EpochStart(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                self._has_trouble = True
                self._do_beside(followed, self._truncate(followed.replica, epoch), is_cut=True)
            else:
                self._append(followed, data)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other partitions go on
            self._has_trouble = True
            self._trouble(followed, error)

    def _append(self, followed: Followed[FollowerReplica], data: PartitionData) -> None:
        records = memoryview(data.records or b"")
        if records and self._throttle.note(followed.replica, len(records)):
            followed.brought_s = self._now_s()
        replica_log = followed.replica.log
        high_watermark = replica_log.high_watermark
        moves_start = min(data.log_start_offset, high_watermark) > replica_log.log_start_offset
        waiting = followed.replica.append(records, data.high_watermark, data.log_start_offset)
        if records or moves_start or replica_log.high_watermark > high_watermark:
            self._has_news = True
        if waiting is not None:
            self._do_beside(followed, _result_of(waiting))
        else:
            self._is_well(followed)
            if records:
                self._state.grown(followed, replica_log.log_end_offset)
                self._resume(followed)
            elif replica_log.log_start_offset > followed.log_start_offset:
                # Its own retention was where the leader is now: who waits for that has to be told.
                self._log_starts.store(followed)

    def _take_error(self, followed: Followed[FollowerReplica], data: PartitionData) -> None:
        self._has_trouble = True
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset >= 0:
            # Were the logs the same up to here, the leader would have told where they part.
            self._do_beside(followed, followed.replica.truncate_fully_and_start_at(data.log_start_offset), is_cut=True)
            return
        self._trouble(followed, ApiError(data.error_code, f"its leader, {self._leader}, refuses"))

    async def _truncate(self, follower: FollowerReplica, leader: EpochStart) -> None:
        point = truncation_point(follower.log.leader_epochs, follower.log.log_end_offset, leader)
        alone = f" to offset {point.offset}"
        self._together.tell(logging.INFO, "truncated by the leader's epochs", follower.topic_partition, alone)
        await follower.truncate_to(point.offset)

    # --- partitions ---

    def _resume(self, followed: Followed[FollowerReplica]) -> None:
        """Ask for what comes after the end of the log."""
        self._held_back.pop(followed.replica, None)
        if self._throttle.holds_back(followed.replica):
            self._hold_back(followed)
            return
        replica_log = followed.replica.log
        end = replica_log.log_end_offset
        if replica_log.log_start_offset > followed.log_start_offset:
            self._log_starts.store(followed)
        else:
            followed.log_start_offset = replica_log.log_start_offset
        self._state.moved(followed, end, last_epoch(replica_log.leader_epochs, end))
        self._go_on_soon()

    def _hold_back(self, followed: Followed[FollowerReplica]) -> None:
        """Leave a partition out until its quota is exceeded no longer."""
        self._state.pause(followed)
        self._held_back[followed.replica] = followed
        if self._release_timer is None and not self._is_closed:
            delay_s = min(max(self._throttle.quota.wait_s, HELD_BACK_S_MIN), HELD_BACK_S_MAX)
            self._release_timer = asyncio.get_running_loop().call_later(delay_s, self._release)

    def _hold_back_all(self) -> None:
        """Leave out what the leader would give unasked, since it is in the session, where the quota was exceeded.

        Not while a request is on its way, which may bring some of it.
        """
        count = self._throttle.quota.overdraft_count
        if self._state.in_flight or count == self._overdrafts or self._now_s() - self._swept_s < HELD_BACK_S_MIN:
            return
        self._overdrafts, self._swept_s = count, self._now_s()
        for followed in self._followed.values():
            if not followed.is_paused and self._throttle.holds_back(followed.replica):
                self._hold_back(followed)

    def _release(self) -> None:
        """Ask again for what was held back, first for what has waited longest."""
        self._release_timer = None
        for followed in sorted(self._held_back.values(), key=lambda each: each.brought_s):
            self._resume(followed)
        self._go_on_soon()

    def _start_stored(self, followed: Followed[FollowerReplica], log_start_offset: int) -> None:
        """Tell the leader where a log begins: no crash brings back what it has deleted."""
        followed.log_start_offset = log_start_offset
        if self._state.is_followed(followed) and not followed.is_paused:
            self._resume(followed)

    def _do_beside(
        self, followed: Followed[FollowerReplica], work: Coroutine[Any, Any, None], *, is_cut: bool = False
    ) -> None:
        """Leave a partition out until work on its log is done.

        :param is_cut: whether the leader has the log end at another offset.
        """
        self._state.pause(followed)
        task = asyncio.get_running_loop().create_task(self._finish(followed, work, is_cut))
        self._tasks.add(task)  # else nothing would refer to it
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, followed: Followed[FollowerReplica], work: Coroutine[Any, Any, None], is_cut: bool) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever it is, the other partitions go on
            self._trouble(followed, error)
        else:
            if is_cut and self._state.cut(followed):
                self._trouble(followed, BarnabasError(f"{self._leader} has the log cut again and again"))
                return
            if not is_cut:
                self._state.grown(followed, followed.replica.log.log_end_offset)
            self._is_well(followed)
            self._resume(followed)

    def _is_well(self, followed: Followed[FollowerReplica]) -> None:
        if followed.cuts <= CUTS_FREE:
            followed.pause_s = 0.0
        if self._troubles and self._troubles.pop(followed.replica, ""):
            self._together.tell(logging.INFO, f"{self._leader} is followed again", followed.replica.topic_partition)

    def _trouble(self, followed: Followed[FollowerReplica], error: Exception) -> None:
        """Leave a partition out for a while."""
        self._state.troubled(followed, self._now_s())
        self._go_on_soon()
        follower = followed.replica
        if follower.has_ended or follower not in self._followed:
            return
        is_late = isinstance(error, ApiError) and error.code in SOON_OVER and followed.pause_s < self._pause_s
        message = str(error) if isinstance(error, BarnabasError) else repr(error)
        if is_late or self._troubles.get(follower) == message:
            return
        self._troubles[follower] = message
        if isinstance(error, BarnabasError | OSError):
            self._together.tell(logging.ERROR, f"not followed for now ({message})", follower.topic_partition)
        else:
            log.error("%s does not follow for now: %s", follower.topic_partition, message, exc_info=error)


async def _result_of(waiting: asyncio.Future[None]) -> None:
    await waiting
