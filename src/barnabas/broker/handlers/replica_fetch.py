"""Fetch requests of followers, versions 15 to 18. Only the inter-broker listener accepts them (CVE-2018-1288).

A follower reads up to the log end offset. The follower has all records below its fetch offset, so fetches advance the
high watermark (`barnabas.broker.leader_replica`). Each request belongs to a session
(`barnabas.broker.follower_sessions`). If there is nothing to send, the response waits for new records, or for another
request of the follower (`barnabas.broker.delayed_fetch`). A new high watermark does not end the wait, but the next
response contains it. The follower's broker id and broker epoch must match a registered broker (KIP-903).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.delayed_fetch import DelayedFetch
from barnabas.broker.follower_sessions import FollowerRead, FollowerSession, FollowerSessions
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.pipeline.call import Call, LaterReply, Reply, Steps, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.topics import Topics
from barnabas.clock import Clock
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import FINAL_SESSION_EPOCH, INITIAL_SESSION_EPOCH
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState

if TYPE_CHECKING:
    from barnabas.broker.pipeline.call import ConnectionState

log = logging.getLogger(__name__)

FIRST_VERSION = 15
"""The first version that contains the follower's broker epoch."""

RESPONSE_BYTES_MAX = 57_671_680
"""The maximum size of a response in bytes, even if the request permits more.

It is the default of Kafka's `fetch.max.bytes`.
"""

CheckBroker = Callable[[int, int], None]
"""A function that raises STALE_BROKER_EPOCH unless a broker with this id and broker epoch is registered."""


@serves(FetchRequest, ends_with_client=True)
def replica_fetch(
    topics: Topics,
    replicas: ReplicaManager,
    follower_sessions: FollowerSessions,
    check_broker: CheckBroker,
    scheduler: CooperativeScheduler,
    clock: Clock,
    request: FetchRequest,
    call: Call,
) -> Steps[FetchResponse | Reply]:
    """Read records. If there are too few bytes and no reason to respond now, wait and read again."""
    try:
        session = _session_of(follower_sessions, check_broker, request, call)
        yield from session.update(request, clock.monotonic())
    except ApiError as error:
        return FetchResponse(error_code=error.code, responses=[])
    change_count = session.change_count

    def new_read() -> FollowerRead:
        return FollowerRead(session, leader_of, min(max(0, request.max_bytes), RESPONSE_BYTES_MAX))

    def leader_of(topic_id: bytes, number: int) -> LeaderReplica:
        return replicas.leader(topics.name_of(topic_id), number)

    read = new_read()
    yield from read.all()
    missing = request.min_bytes - read.size
    is_urgent = session.is_urgent and read.size > 0
    if missing <= 0 or is_urgent or read.must_answer or request.max_wait_ms <= 0 or not len(session):
        return (yield from _respond(session, read))

    def check() -> None:
        if session.change_count != change_count:
            delayed.complete()  # Other requests may have appended records since the read.

    delayed = DelayedFetch(scheduler, [session], missing, request.max_wait_ms, is_urgent=True)
    yield from delayed.begin(check)
    call.connection.delayed_fetch = delayed
    return LaterReply(_read_later(delayed, session, new_read, follower_sessions, call.connection))


async def _read_later(
    delayed: DelayedFetch,
    session: FollowerSession,
    new_read: Callable[[], FollowerRead],
    sessions: FollowerSessions,
    connection: ConnectionState,
) -> Steps[FetchResponse]:
    """Wait for records, then return the steps that read again and respond."""
    try:
        await delayed.wait()
    except asyncio.CancelledError:
        sessions.drop(connection)
        raise
    finally:
        connection.delayed_fetch = None
    return _read_at_last(session, new_read())


def _read_at_last(session: FollowerSession, read: FollowerRead) -> Steps[FetchResponse]:
    yield from read.all()
    return (yield from _respond(session, read))


def _session_of(
    sessions: FollowerSessions, check_broker: CheckBroker, request: FetchRequest, call: Call
) -> FollowerSession:
    """Return the fetch session of a request, or open a new session.

    :raises ApiError: the session does not exist, or the follower is not registered.
    """
    if call.version < FIRST_VERSION or request.replica_state.replica_id < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "this listener accepts only fetches of followers with a broker epoch")
    _check_broker(check_broker, request.replica_state, call.connection)
    if request.session_epoch in {INITIAL_SESSION_EPOCH, FINAL_SESSION_EPOCH}:
        return sessions.open(call.connection, request.replica_state.replica_id)
    return sessions.resume(call.connection, request)


def _check_broker(check_broker: CheckBroker, claimed: ReplicaState, connection: ConnectionState) -> None:
    """Check that the broker epoch in a fetch request matches the registered broker.

    :raises ApiError: STALE_BROKER_EPOCH if it does not match.
    """
    try:
        check_broker(claimed.replica_id, claimed.replica_epoch)
    except ApiError as error:
        if not connection.has_refused_follower:
            connection.has_refused_follower = True
            log.warning(
                "rejected a replica fetch of %s as broker %d: %s; not logging further rejections on this connection",
                connection.address,
                claimed.replica_id,
                error,
            )
        raise


def _respond(session: FollowerSession, read: FollowerRead) -> Steps[FetchResponse]:
    responses = yield from read.answer()
    return FetchResponse(session_id=session.id, responses=responses)
