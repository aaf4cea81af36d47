"""Requests are counted by what they have in common, and in bounded memory."""

from __future__ import annotations

from barnabas.broker.handlers.heartbeat import heartbeat
from barnabas.broker.handlers.produce import produce
from barnabas.broker.pipeline.call import RunCall
from barnabas.broker.pipeline.chain import (
    CLIENT_ID_CHARACTERS_MAX,
    CLIENTS_MAX,
    NO_RESPONSE,
    OTHER_CLIENTS,
    TIME_BOUNDS_S,
    RequestCounts,
    RequestKind,
)
from barnabas.clock import ManualClock
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.support.fake_link import call_of, connection_state


def produced(code: int) -> ProduceResponse:
    result = PartitionProduceResponse(index=0, error_code=code, base_offset=0)
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[result])])


def test_responses_count_with_their_error_codes() -> None:
    counts = RequestCounts(ManualClock().monotonic)
    for code in (0, 25, 25):
        counts.leave(call_of(heartbeat, 4), HeartbeatResponse(error_code=code), 10)
    counts.leave(call_of(heartbeat, 3, None), HeartbeatResponse(error_code=0), 10)
    assert counts.counts() == {
        RequestKind(12, 4, "me", 0): 1,
        RequestKind(12, 4, "me", 25): 2,
        RequestKind(12, 3, None, 0): 1,
    }


def test_each_request_of_a_run_counts_once_whatever_its_response() -> None:
    counts, call = RequestCounts(ManualClock().monotonic), RunCall(produce, 9, 1, "me", connection_state())
    call.request_count, call.left_count = 6, 0
    counts.leave_run(call, [b"frame", produced(6), None, b"frame"], 60)
    call.left_count = 4
    counts.fail(call, ConnectionError())
    assert counts.counts() == {
        RequestKind(0, 9, "me", 0): 3,
        RequestKind(0, 9, "me", 6): 1,
        RequestKind(0, 9, "me", NO_RESPONSE): 2,
    }


def test_ids_of_clients_beyond_the_limit_count_together() -> None:
    counts = RequestCounts(ManualClock().monotonic)
    ids = ["x" * (CLIENT_ID_CHARACTERS_MAX + 1), *(str(number) for number in range(CLIENTS_MAX + 5))]
    for client_id in ids * 2:
        counts.leave(call_of(heartbeat, 4, client_id), HeartbeatResponse(error_code=0), 10)
    found = counts.counts()
    assert len(found) == CLIENTS_MAX + 1
    assert found[RequestKind(12, 4, OTHER_CLIENTS, 0)] == 2 * 6
    assert found[RequestKind(12, 4, "0", 0)] == 2


def test_bytes_and_times_count_by_api_for_each_request_of_a_run() -> None:
    clock = ManualClock()
    counts, call = RequestCounts(clock.monotonic), RunCall(produce, 9, 1, "me", connection_state(), 900)
    call.request_count, call.left_count = 3, 0
    clock.advance(0.002)
    counts.leave_run(call, [b"frame"], 5)
    call.left_count = 1
    clock.advance(0.010)
    counts.leave_run(call, [b"frame", produced(6)], 40)
    (api,) = counts.apis().values()
    assert api.request_bytes == 900
    assert api.response_bytes == 45
    times = dict(zip((*TIME_BOUNDS_S, float("inf")), api.times().counts, strict=True))
    assert {bound: count for bound, count in times.items() if count} == {0.0025: 1, 0.025: 2}
