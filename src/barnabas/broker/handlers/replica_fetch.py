"""Fetch of a follower, versions 15 to 18: on the listener that brokers have for each other, and nowhere else
(CVE-2018-1288).

It reads up to the end of the log, and says with it how far the follower has come: that moves the high watermark
(`barnabas.broker.leader_replica`). Every request belongs to a session (`barnabas.broker.follower_sessions`). If nothing
is new, the answer waits until something is, or until the follower sends another request. A high watermark that has
moved does not end the wait, but is told with the next answer; who waits for that waits at the leader.

The follower's broker must be the one that is registered now, by its id and its broker epoch (KIP-903).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.follower_sessions import FollowerRead, FollowerSession, FollowerSessions
from barnabas.broker.pipeline.call import Call
from barnabas.broker.pipeline.reply import LaterReply, Reply, Steps
from barnabas.broker.pipeline.served_api import serves
from barnabas.broker.topics import Topics
from barnabas.clock import Clock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import FINAL_EPOCH, INITIAL_EPOCH, FetchRequest, FetchResponse, ReplicaState

if TYPE_CHECKING:
    from barnabas.broker.pipeline.connection_state import ConnectionState

log = logging.getLogger(__name__)

FIRST_VERSION = 15
"""The first in which a follower tells its broker epoch."""

RESPONSE_BYTES_MAX = 57_671_680
"""The most that one answer brings, whatever was asked for: Kafka's `fetch.max.bytes`."""

CheckBroker = Callable[[int, int], None]
"""Raises a KafkaError, STALE_BROKER_EPOCH, if no broker with this id and broker epoch is registered."""


@serves(FetchRequest, ends_with_client=True)
def replica_fetch(
    topics: Topics,
    follower_sessions: FollowerSessions,
    check_broker: CheckBroker,
    clock: Clock,
    request: FetchRequest,
    call: Call,
) -> Steps[FetchResponse | Reply]:
    """Read at once; if there is too little and nothing else to tell, wait and read again."""
    try:
        session = _session_of(follower_sessions, check_broker, request, call)
        yield from session.update(request, clock.monotonic())
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    poll = _Poll(session, topics, request, call.connection)
    read = poll.read()
    yield from read.all()
    missing = request.min_bytes - read.size
    is_urgent = session.is_urgent and read.size > 0
    if missing <= 0 or is_urgent or read.must_answer or request.max_wait_ms <= 0 or not len(session):
        return (yield from _respond(session, read))
    poll.begin(missing)
    return LaterReply(poll.end(follower_sessions))


def _session_of(
    sessions: FollowerSessions, check_broker: CheckBroker, request: FetchRequest, call: Call
) -> FollowerSession:
    """Return the session that a request belongs to, or begins.

    :raises KafkaError: there is none, or who asks is not who is registered.
    """
    if call.version < FIRST_VERSION or request.replica_state.replica_id < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "only followers fetch here, and tell their broker epoch")
    _check_broker(check_broker, request.replica_state, call.connection)
    if request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
        return sessions.open(call.connection, request.replica_state.replica_id)
    return sessions.go_on(call.connection, request)


def _check_broker(check_broker: CheckBroker, claimed: ReplicaState, connection: ConnectionState) -> None:
    """Refuse a fetch of a client that does not know the epoch of the broker that it claims to be.

    :raises KafkaError: STALE_BROKER_EPOCH.
    """
    try:
        check_broker(claimed.replica_id, claimed.replica_epoch)
    except KafkaError as error:
        if not connection.has_refused_follower:
            connection.has_refused_follower = True
            log.warning(
                "refused a replica fetch of %s as broker %d: %s; this connection's later refusals are not logged",
                connection.address,
                claimed.replica_id,
                error,
            )
        raise


def _respond(session: FollowerSession, read: FollowerRead) -> Steps[FetchResponse]:
    responses = yield from read.answer()
    return FetchResponse(session_id=session.id, responses=responses)


class _Poll:
    """Waits until enough is appended to what a session follows, or something else ends the wait.

    Nothing has to be done for it partition by partition: these tell the session anyway.
    """

    __slots__ = ("_change_count", "_connection", "_missing", "_over", "_request", "_session", "_topics")

    def __init__(
        self, session: FollowerSession, topics: Topics, request: FetchRequest, connection: ConnectionState
    ) -> None:
        self._session = session
        self._topics = topics
        self._request = request
        self._connection = connection
        self._missing = 0
        self._change_count = session.change_count
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def read(self) -> FollowerRead:
        """Return a pass over what may be new."""
        return FollowerRead(self._session, self._topics, min(max(0, self._request.max_bytes), RESPONSE_BYTES_MAX))

    def begin(self, missing: int) -> None:
        """Wait from now on for so many bytes. `end` must follow."""
        self._missing = missing
        self._session.on_ready = self._on_ready
        self._connection.on_request_behind = self._finish
        if self._session.change_count != self._change_count:
            self._finish()  # other requests had their turn since the read, and appended

    async def end(self, sessions: FollowerSessions) -> Steps[FetchResponse]:
        """Wait; return the steps of reading again."""
        timer = asyncio.get_running_loop().call_later(self._request.max_wait_ms / 1000, self._finish)
        try:
            await self._over
        except asyncio.CancelledError:
            sessions.drop(self._connection)
            raise
        finally:
            timer.cancel()
            self._session.wait_no_more()
            self._connection.on_request_behind = None
        return self._read_at_last()

    def _read_at_last(self) -> Steps[FetchResponse]:
        read = self.read()
        yield from read.all()
        return (yield from _respond(self._session, read))

    def _on_ready(self, size: int) -> None:
        self._missing -= size
        if self._missing <= 0:
            self._finish()

    def _finish(self) -> None:
        if not self._over.done():
            self._over.set_result(None)
