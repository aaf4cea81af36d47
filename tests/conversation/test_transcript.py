"""What the comparison shows, what a recording keeps, and what is counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.codec import request_frame, response_frame
from barnabas.protocol.declare import message_of
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from barnabas.protocol.messages.produce import ProduceRequest
from tests.conversation.transcript import (
    CountKey,
    Exchange,
    LineRecord,
    compare,
    error_code_of,
    expected_counts,
    load,
    save,
    uncertain_client_ids,
)

NOT_COORDINATOR, UNSUPPORTED_VERSION, ILLEGAL_GENERATION = 16, 35, 22


def whole(chunks: list[Any]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)


def exchange(request: Any, version: int, correlation_id: int, *, closes: bool = False) -> Exchange:
    key = message_of(type(request)).api_key
    wants_answer = not isinstance(request, ProduceRequest) or request.acks != 0
    frame = whole(request_frame(request, version, correlation_id, "client"))
    return Exchange(key, version, correlation_id, "client", frame, wants_answer, closes)


def beat(correlation_id: int, *, closes: bool = False) -> Exchange:
    request = HeartbeatRequest(group_id="group", generation_id=1, member_id="member")
    return exchange(request, 4, correlation_id, closes=closes)


def beaten(correlation_id: int, error_code: int = 0) -> bytes:
    return whole(response_frame(HeartbeatResponse(error_code=error_code), 4, correlation_id))


def line(exchanges: list[Exchange], answers: list[bytes], *, closed_ms: int | None = None) -> LineRecord:
    record = LineRecord("line", "clients", exchanges, closed_ms=closed_ms)
    for number, answer in enumerate(answers):
        record.on_answer(answer, 10 * number)
    return record


def heartbeat_key(error_code: int | None) -> CountKey:
    return CountKey(12, 4, "clients", "client", error_code)


# --- counts -----------------------------------------------------------------------------------------------


def test_each_answered_request_counts_with_its_error_code() -> None:
    record = line([beat(1), beat(2), beat(3)], [beaten(1), beaten(2), beaten(3, ILLEGAL_GENERATION)])
    assert expected_counts([record]) == Counter({heartbeat_key(0): 2, heartbeat_key(ILLEGAL_GENERATION): 1})


def test_counts_of_several_connections_add_up() -> None:
    records = [line([beat(1)], [beaten(1)]), line([beat(2)], [beaten(2)])]
    records[1].listener = "brokers"
    assert expected_counts(records) == Counter(
        {heartbeat_key(0): 1, CountKey(12, 4, "brokers", "client", 0): 1},
    )


def test_request_without_acknowledgement_counts_without_error() -> None:
    request = exchange(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 9, 1)
    assert expected_counts([line([request, beat(2)], [beaten(2)])]) == Counter(
        {CountKey(0, 9, "clients", "client", 0): 1, heartbeat_key(0): 1}
    )


def test_request_that_ends_the_connection_counts_as_the_last_one() -> None:
    record = line([beat(1), beat(2, closes=True), beat(3)], [beaten(1)], closed_ms=20)
    assert expected_counts([record]) == Counter({heartbeat_key(0): 1, heartbeat_key(None): 1})


def test_request_behind_one_that_the_broker_never_answered_does_not_count() -> None:
    record = line([beat(1), beat(2), beat(3)], [beaten(1)], closed_ms=20)
    assert expected_counts([record]) == Counter({heartbeat_key(0): 1, heartbeat_key(None): 1})


def test_connection_that_was_silent_until_it_ended_counts_its_answers() -> None:
    assert expected_counts([line([beat(1)], [beaten(1)], closed_ms=20)]) == Counter({heartbeat_key(0): 1})


def test_request_that_was_not_sent_whole_does_not_count() -> None:
    record = line([beat(1), beat(2)], [beaten(1)], closed_ms=20)
    record.exchanges[1].missing_bytes = 5
    assert expected_counts([record]) == Counter({heartbeat_key(0): 1})


def test_nothing_is_certain_of_a_client_that_leaves_before_its_answers() -> None:
    record = line([beat(1), beat(2)], [beaten(1)], closed_ms=20)
    record.is_left = True
    assert not expected_counts([record])
    assert uncertain_client_ids([record]) == {"client"}


def test_client_that_leaves_after_its_answers_counts() -> None:
    record = line([beat(1)], [beaten(1)], closed_ms=20)
    record.is_left = True
    assert expected_counts([record]) == Counter({heartbeat_key(0): 1})
    assert uncertain_client_ids([record]) == set()


def test_nothing_is_certain_where_bytes_are_sent_that_may_be_a_request() -> None:
    nothing = Exchange(None, 0, 0, None, b"GET / HTTP/1.1", wants_answer=False, closes=False)
    records = [line([beat(1), nothing], [beaten(1)], closed_ms=5)]
    assert not expected_counts(records)
    assert uncertain_client_ids(records) == {"client"}


def test_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    request = exchange(ApiVersionsRequest(), 4, 1)
    request.version = 99
    answer = ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[])
    record = line([request], [whole(response_frame(answer, 0, 1))])
    assert expected_counts([record]) == Counter({CountKey(18, 99, "clients", "client", UNSUPPORTED_VERSION): 1})


def test_error_of_the_whole_answer_precedes_those_within() -> None:
    member = MemberResponse(member_id="m", error_code=25)
    assert error_code_of(LeaveGroupResponse(error_code=0, members=[member]), 4) == 0
    topic = MetadataResponseTopic(error_code=3, name="t", partitions=[])
    answer = MetadataResponse(brokers=[], topics=[topic], error_code=58)
    assert error_code_of(answer, 13) == 58
    assert error_code_of(answer, 12) == 3  # version 12 has no error of the whole answer


@pytest.mark.parametrize(("codes", "expected"), [([0, NOT_COORDINATOR], 0), ([NOT_COORDINATOR, 0], NOT_COORDINATOR)])
def test_first_error_within_counts_where_the_answer_has_none_of_its_own(codes: list[int], expected: int) -> None:
    answer = FindCoordinatorResponse(coordinators=[Coordinator(error_code=code) for code in codes])
    assert error_code_of(answer, 4) == expected
    assert error_code_of(FindCoordinatorResponse(error_code=NOT_COORDINATOR), 3) == NOT_COORDINATOR
    assert error_code_of(FindCoordinatorResponse(coordinators=[]), 4) == 0


# --- comparison -------------------------------------------------------------------------------------------


def test_equal_recordings_do_not_differ(tmp_path: Path) -> None:
    now = line([beat(1), beat(2)], [beaten(1), beaten(2)], closed_ms=70)
    save(tmp_path / "scene.xz", [now], "a commit")
    commit, recorded = load(tmp_path / "scene.xz")
    assert commit == "a commit"
    assert compare(recorded, [now]) == ""


def test_difference_shows_request_and_both_answers() -> None:
    recorded = [line([], [beaten(1), beaten(2)])]
    now = [line([beat(1), beat(2)], [beaten(1), beaten(2, ILLEGAL_GENERATION)])]
    text = compare(recorded, now)
    assert "line (clients), answer 1 at 10 ms" in text
    assert "Heartbeat version 4, correlation id 2" in text
    assert "'group_id': 'group'" in text
    assert "-{'HeartbeatResponse': {'throttle_time_ms': 0, 'error_code': 0}}" in text
    assert "+{'HeartbeatResponse': {'throttle_time_ms': 0, 'error_code': 22}}" in text


def test_answers_that_decode_alike_still_differ() -> None:
    padded = beaten(1)[:-1] + b"\x01\x09\x00"  # a tagged field that the schema does not know
    padded = (len(padded) - 4).to_bytes(4, "big") + padded[4:]
    text = compare([line([], [beaten(1)])], [line([beat(1)], [padded])])
    assert "decode alike" in text


def test_missing_answers_and_other_moments_differ() -> None:
    requests = [beat(1), beat(2)]
    both = line(requests, [beaten(1), beaten(2)])
    assert "this answer is missing" in compare([both], [line(requests, [beaten(1)])])
    assert "was not recorded" in compare([line(requests, [beaten(1)])], [both])
    assert "ended at 30 ms, recorded never" in compare([both], [line(requests, both.answers, closed_ms=30)])
    later = line(requests, both.answers)
    later.times_ms[1] = 500
    assert "came at 500 ms, not at 10 ms" in compare([both], [later])


def test_other_requests_with_equal_answers_ask_for_a_new_recording() -> None:
    recorded = line([beat(1)], [beaten(1)])
    request = FindCoordinatorRequest(key="x")
    now = line([beat(1), exchange(request, 0, 5)], [beaten(1)])
    assert "record again" in compare([recorded], [now])


def test_earliest_difference_is_shown() -> None:
    recorded = [line([], [beaten(1), beaten(2)]), line([], [beaten(3)])]
    now = [line([beat(1), beat(2)], [beaten(1), beaten(2, 3)]), line([beat(3)], [beaten(3, 5)])]
    text = compare(recorded, now)
    assert "correlation id 3" in text
    assert "1 other connections differ, later" in text
