"""Fetches from one leader over one connection, and passes the batches to the replicas that follow the leader.

`barnabas.replication.fetch_state` decides what to fetch, and `barnabas.replication.truncation` finds where two logs
diverge. The fetcher handles a response in one call. The followers append, and the next request with their new fetch
offsets is sent in the same iteration of the event loop. If a log needs longer, for a segment roll or a truncation, its
partition is omitted from requests until the work is done. Other partitions continue. If a partition has an error, its
replication pauses, and one log line contains the error. If a leader responds immediately without records, closes
connections or sends invalid responses, the fetcher doubles its pauses (`barnabas.net.client_connection`) until a fetch
returns records again. A damaged partition does not affect other partitions.

A throttled partition (`barnabas.broker.throttles`) is omitted from requests while its quota is exceeded. Other
partitions do not wait.

`LogStarts` stores log start offsets durably before the fetcher reports them to the leader (KIP-107). The leader
responds to DeleteRecords when all in-sync replicas have deleted the records, and a crash must not restore these
records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.log_aggregator import LogAggregator
from barnabas.broker.throttles import NO_FOLLOWER_THROTTLE, FollowerThrottle
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.log_lines import LogEvent, event
from barnabas.net.client_connection import ClientConnection, RequestBackoff
from barnabas.protocol.messages.fetch import FetchResponse, PartitionData
from barnabas.replication.fetch_state import CUTS_FREE, FetchState, Followed, Limits
from barnabas.replication.truncation import last_epoch, truncation_point
from barnabas.storage.checkpoints import EpochStart

log = logging.getLogger(__name__)

StoreLogStarts = Callable[[], Awaitable[None]]
"""Stores the log start offsets of all logs durably."""

OnStored = Callable[[Followed[FollowerReplica], int], None]
"""Called with a replica and its log start offset when this offset is durable."""


class LogStarts:
    """Stores the log start offsets of followers durably. Used from the event loop's thread only.

    :param pause_s: the pause after a failed write, in seconds.
    """

    def __init__(self, store: StoreLogStarts, on_stored: OnStored, pause_s: float) -> None:
        self._store = store
        self._on_stored = on_stored
        self._pause_s = pause_s
        self._wanted: dict[Followed[FollowerReplica], None] = {}
        self._storing: asyncio.Task[None] | None = None
        self._is_error_logged = False

    def store(self, followed: Followed[FollowerReplica]) -> None:
        """Store the log start offset of a replica, together with the log start offsets of other waiting replicas."""
        self._wanted[followed] = None
        if self._storing is None:
            self._storing = asyncio.get_running_loop().create_task(self._store_all())

    def close(self) -> None:
        """Stop storing offsets. `on_stored` is not called any more."""
        self._wanted.clear()
        if self._storing is not None:
            self._storing.cancel()

    async def _store_all(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                starts = {followed: followed.replica.log.log_start_offset for followed in wanted}
                try:
                    await self._store()
                except BarnabasError as error:
                    self._log_once(error)
                    await asyncio.sleep(self._pause_s)
                    self._wanted |= wanted
                else:
                    self._is_error_logged = False
                    for followed, start in starts.items():
                        self._on_stored(followed, start)
        finally:
            self._storing = None

    def _log_once(self, error: BarnabasError) -> None:
        """Log an error, unless an error has been logged since the last success."""
        if not self._is_error_logged:
            self._is_error_logged = True
            log.warning(
                "cannot store the log start offsets of followers: %s; retrying every %g s", error, self._pause_s
            )


DialLeader = Callable[[], Awaitable[ClientConnection]]

SESSION_LOST = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
SOON_OVER = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH,
     ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)  # fmt: skip
"""Leader errors that are usually temporary: one of the two brokers has not yet read the latest metadata."""


HELD_BACK_S_MIN = 0.05
HELD_BACK_S_MAX = 1.0
"""The minimum and maximum pause in seconds before throttled partitions are checked again.

The throttle settings may change in between.
"""


class ReplicaFetcher:
    """Fetches from one leader over one connection. Used from the event loop's thread only.

    :param leader: the name of the leader's broker in log lines.
    :param dial: connects to the leader's broker.
    :param own: returns the id and the broker epoch of this broker.
    :param store_log_starts: stores the log start offsets of all logs durably.
    :param timeout_s: the response timeout in seconds, in addition to the leader's maximum wait.
    :param throttle: the replication throttle.
    """

    def __init__(
        self,
        leader: str,
        dial: DialLeader,
        limits: Limits,
        own: Callable[[], tuple[int, int]],
        store_log_starts: StoreLogStarts,
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
        self._has_news = False
        """True if the current response contained records, or moved a log start offset or a high watermark."""
        self._has_trouble = False
        """True if the current response caused an error or a truncation of a partition."""
        self._log_starts = LogStarts(store_log_starts, self._start_stored, self._pause_s)
        self._followed: dict[FollowerReplica, Followed[FollowerReplica]] = {}
        self._throttle = throttle
        self._held_back: dict[FollowerReplica, Followed[FollowerReplica]] = {}
        self._release_timer: asyncio.TimerHandle | None = None
        self._overdrafts = throttle.quota.overdraft_count
        self._swept_s = now_s() - HELD_BACK_S_MIN
        self._connection: ClientConnection | None = None
        self._session = object()
        """Identifies the current fetch session. Responses to requests of an earlier session are ignored."""
        self._is_error_logged = False
        self._troubles: dict[FollowerReplica, str] = {}
        self._log_lines = LogAggregator(log)
        self._connecting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, follower: FollowerReplica) -> None:
        """Start fetching for a replica."""
        followed = Followed(follower, follower.topic_id, follower.topic_partition.partition, follower.leader_epoch, 0)
        followed.furthest_offset = follower.log.log_end_offset
        self._followed[follower] = followed
        self._state.follow(followed)
        if follower.log.lost_from is None:
            self._resume(followed)
        else:
            self._do_beside(followed, follower.truncate_lost_records())

    def unfollow(self, follower: FollowerReplica) -> None:
        """Stop fetching for a replica."""
        self._troubles.pop(follower, None)
        self._held_back.pop(follower, None)
        followed = self._followed.pop(follower, None)
        if followed is not None:
            self._state.unfollow(followed)

    def close(self) -> None:
        """Stop fetching, and close the connection."""
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
        """Send a request in the next iteration of the event loop, so that it includes all changes of the current
        iteration.
        """
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send_next)

    def _send_next(self) -> None:
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
            # An empty response before half of the maximum wait is too early, except at the beginning of a session.
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
                    self._log_once(f"cannot fetch from {self._leader}: {error}; retrying every {self._pause_s:g} s")
                    await asyncio.sleep(self._pause_s)
        finally:
            self._connecting = None
            self._go_on_soon()

    def _lose_connection(self, error: BarnabasError) -> None:
        self._log_once(f"lost the connection to {self._leader}: {error}; reconnecting")
        connection, self._connection = self._connection, None
        self._pacing.note_futile(self._now_s())
        self._begin_anew()
        if connection is not None:
            connection.close()
        self._go_on_soon()

    def _begin_anew(self) -> None:
        self._session = object()
        self._state.reset_session()

    def _log_once(self, message: str) -> None:
        """Log an error of the leader's broker, unless an error has been logged since its last successful response."""
        if not self._is_error_logged:
            self._is_error_logged = True
            log.warning("%s", message)

    # --- responses ---

    def _answered(
        self, session: object, empty_from_s: float | None, response: FetchResponse, error: BarnabasError | None
    ) -> None:
        """Handle a response.

        :param empty_from_s: the monotonic time in seconds before which an empty response is too early (futile). None
            means that no empty response is too early.
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
        # Let the partitions not schedule requests: `_send_next` below sends one request with all changes of this
        # response.
        self._is_due = True
        self._has_news = self._has_trouble = False
        for followed, data in news:
            self._take(followed, data)
        self._pace(empty_from_s)
        self._send_next()

    def _pace(self, empty_from_s: float | None) -> None:
        """Delay the next request after a futile response, which is an early response without records.

        Reset the pause after progress.
        """
        now_s = 0.0 if self._has_news or empty_from_s is None else self._now_s()
        if self._has_news or (empty_from_s is not None and now_s >= empty_from_s):
            self._is_error_logged = False
            self._pacing.note_progress()
        # An empty response is normal if another request is in flight, because the leader then responds to the earlier
        # request.
        elif empty_from_s is not None and not self._has_trouble and not self._state.in_flight:
            self._pacing.note_futile(now_s)
            if self._pacing.is_slow:
                self._log_once(
                    f"{self._leader} answers fetches at once with empty responses;"
                    f" fetching less often, at least every {self._pause_s:g} s"
                )

    def _refused(self, error: ApiError) -> None:
        """Handle an error response to a whole request."""
        self._begin_anew()
        self._pacing.note_futile(self._now_s())
        if error.code in SESSION_LOST:
            self._go_on_soon()
            return
        self._log_once(f"{self._leader} rejects fetches: {error}; retrying every {self._pause_s:g} s")
        now_s = self._now_s()
        for followed in self._state.all():
            self._state.pause_after_error(followed, now_s)
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
        except Exception as error:  # noqa: BLE001 - an error of one partition must not stop other partitions
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
                self._state.note_log_end(followed, replica_log.log_end_offset)
                self._resume(followed)
            elif replica_log.log_start_offset > followed.log_start_offset:
                # The follower's own retention has reached the leader's log start offset. Report the new log start
                # offset in a request.
                self._log_starts.store(followed)

    def _take_error(self, followed: Followed[FollowerReplica], data: PartitionData) -> None:
        self._has_trouble = True
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset >= 0:
            # The fetch offset is below the leader's log start offset. Above the leader's log end, the leader would
            # return a diverging epoch.
            self._do_beside(followed, followed.replica.truncate_fully_and_start_at(data.log_start_offset), is_cut=True)
            return
        self._trouble(followed, ApiError(data.error_code, f"{self._leader}, the leader, returned an error"))

    async def _truncate(self, follower: FollowerReplica, leader: EpochStart) -> None:
        point = truncation_point(follower.log.leader_epochs, follower.log.log_end_offset, leader)
        alone = f" to offset {point.offset}"
        self._log_lines.note(logging.INFO, "truncated to match the leader's epochs", follower.topic_partition, alone)
        await follower.truncate_to(point.offset)

    # --- partitions ---

    def _resume(self, followed: Followed[FollowerReplica]) -> None:
        """Resume fetching a partition at its log end offset."""
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
        self._state.continue_at(followed, end, last_epoch(replica_log.leader_epochs, end))
        self._go_on_soon()

    def _hold_back(self, followed: Followed[FollowerReplica]) -> None:
        """Omit a throttled partition from requests while the quota is exceeded."""
        self._state.pause(followed)
        self._held_back[followed.replica] = followed
        if self._release_timer is None and not self._is_closed:
            delay_s = min(max(self._throttle.quota.wait_s, HELD_BACK_S_MIN), HELD_BACK_S_MAX)
            self._release_timer = asyncio.get_running_loop().call_later(delay_s, self._release)

    def _hold_back_all(self) -> None:
        """Remove throttled partitions from the fetch session when the quota is exceeded.

        The leader returns records for every partition in the session. A request in flight may also return records, so
        do nothing before its response.
        """
        count = self._throttle.quota.overdraft_count
        if self._state.in_flight or count == self._overdrafts or self._now_s() - self._swept_s < HELD_BACK_S_MIN:
            return
        self._overdrafts, self._swept_s = count, self._now_s()
        for followed in self._followed.values():
            if not followed.is_paused and self._throttle.holds_back(followed.replica):
                self._hold_back(followed)

    def _release(self) -> None:
        """Fetch throttled partitions again, beginning with the partition that has waited longest for records."""
        self._release_timer = None
        for followed in sorted(self._held_back.values(), key=lambda each: each.brought_s):
            self._resume(followed)
        self._go_on_soon()

    def _start_stored(self, followed: Followed[FollowerReplica], log_start_offset: int) -> None:
        """Report a log start offset to the leader after it was stored durably."""
        followed.log_start_offset = log_start_offset
        if self._state.is_followed(followed) and not followed.is_paused:
            self._resume(followed)

    def _do_beside(
        self, followed: Followed[FollowerReplica], work: Coroutine[Any, Any, None], *, is_cut: bool = False
    ) -> None:
        """Omit a partition from requests until an operation on its log is done.

        :param is_cut: True if the operation is a truncation that the leader's response requires.
        """
        self._state.pause(followed)
        task = asyncio.get_running_loop().create_task(self._finish(followed, work, is_cut))
        self._tasks.add(task)  # Keep a reference, because the event loop keeps only a weak reference to the task.
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, followed: Followed[FollowerReplica], work: Coroutine[Any, Any, None], is_cut: bool) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - an error of one partition must not stop other partitions
            self._trouble(followed, error)
        else:
            if is_cut and self._state.note_truncation(followed):
                self._trouble(followed, BarnabasError(f"{self._leader} causes repeated truncations of this log"))
                return
            if not is_cut:
                self._state.note_log_end(followed, followed.replica.log.log_end_offset)
            self._is_well(followed)
            self._resume(followed)

    def _is_well(self, followed: Followed[FollowerReplica]) -> None:
        if followed.cuts <= CUTS_FREE:
            followed.pause_s = 0.0
        if self._troubles and self._troubles.pop(followed.replica, ""):
            self._log_lines.note(logging.INFO, f"following {self._leader} again", followed.replica.topic_partition)

    def _trouble(self, followed: Followed[FollowerReplica], error: Exception) -> None:
        """Pause the replication of a partition after an error."""
        self._state.pause_after_error(followed, self._now_s())
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
            what, where = f"replication paused ({message})", follower.topic_partition
            self._log_lines.note(logging.ERROR, what, where, event=LogEvent.REPLICA_NOT_FOLLOWING)
        else:
            extra = event(LogEvent.REPLICA_NOT_FOLLOWING)
            where = follower.topic_partition
            log.error("%s: replication paused: %s; retrying", where, message, exc_info=error, extra=extra)


async def _result_of(waiting: asyncio.Future[None]) -> None:
    await waiting
