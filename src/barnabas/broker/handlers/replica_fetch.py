"""Fetch of a follower, versions 15 to 18: on the listener that brokers have for each other, and nowhere else
(CVE-2018-1288).

It reads up to the end of the log, and says with it how far the follower has come: that moves the high watermark
(`barnabas.broker.partition`). Every request belongs to a session (`barnabas.broker.follower_sessions`). If nothing is
new, the answer waits until something is, or until the follower sends another request. A high watermark that has moved
does not end the wait, but is told with the next answer; who waits for that waits at the leader.

The follower's broker must be the one that is registered now, by its id and its broker epoch (KIP-903).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.broker.api import Context, Steps, serves
from barnabas.broker.follower_sessions import FollowerRead, FollowerSession, FollowerSessions
from barnabas.broker.topics import Topics
from barnabas.clock import Clock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import FINAL_EPOCH, INITIAL_EPOCH, FetchRequest, FetchResponse, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from barnabas.net.server_connection import Peer

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
    context: Context,
) -> Steps[FetchResponse | Coroutine[Any, Any, Steps[FetchResponse]]]:
    """Read at once; if there is too little and nothing else to tell, wait and read again."""
    try:
        session = _session_of(follower_sessions, check_broker, request, context)
        yield from session.update(request, clock.monotonic())
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    poll = _Poll(session, topics, request, context.peer)
    read = poll.read()
    yield from read.all()
    missing = request.min_bytes - read.size
    is_urgent = session.is_urgent and read.size > 0
    if missing <= 0 or is_urgent or read.must_answer or request.max_wait_ms <= 0 or not len(session):
        return (yield from _respond(session, read))
    poll.begin(missing)
    return poll.end(follower_sessions)


def _session_of(
    sessions: FollowerSessions, check_broker: CheckBroker, request: FetchRequest, context: Context
) -> FollowerSession:
    """Return the session that a request belongs to, or begins.

    :raises KafkaError: there is none, or who asks is not who is registered.
    """
    if context.version < FIRST_VERSION or request.replica_state.replica_id < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "only followers fetch here, and tell their broker epoch")
    _check_broker(check_broker, request.replica_state, context.peer)
    if request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
        return sessions.open(context.peer, request.replica_state.replica_id)
    return sessions.go_on(context.peer, request)


def _check_broker(check_broker: CheckBroker, claimed: ReplicaState, peer: Peer) -> None:
    """Refuse a fetch of a client that does not know the epoch of the broker that it claims to be.

    :raises KafkaError: STALE_BROKER_EPOCH.
    """
    try:
        check_broker(claimed.replica_id, claimed.replica_epoch)
    except KafkaError as error:
        if peer.refused is None:
            peer.refused = error
            log.warning(
                "refused a replica fetch of %s as broker %d: %s; this connection's later refusals are not logged",
                peer.address,
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

    __slots__ = ("_change_count", "_missing", "_over", "_peer", "_request", "_session", "_topics")

    def __init__(self, session: FollowerSession, topics: Topics, request: FetchRequest, peer: Peer) -> None:
        self._session = session
        self._topics = topics
        self._request = request
        self._peer = peer
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
        self._peer.on_request_behind = self._finish
        if self._session.change_count != self._change_count:
            self._finish()  # other requests had their turn since the read, and appended

    async def end(self, sessions: FollowerSessions) -> Steps[FetchResponse]:
        """Wait; return the steps of reading again."""
        timer = asyncio.get_running_loop().call_later(self._request.max_wait_ms / 1000, self._finish)
        try:
            await self._over
        except asyncio.CancelledError:
            sessions.drop(self._peer)
            raise
        finally:
            timer.cancel()
            self._session.wait_no_more()
            self._peer.on_request_behind = None
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
