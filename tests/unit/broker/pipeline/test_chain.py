"""Calls pass the stages in their order, and none passes its handler where a stage has ended it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.broker.pipeline.call import CLIENTS, Call, Reply, RunCall, ServedApi, serves
from barnabas.broker.pipeline.chain import Chain, Stage
from barnabas.broker.pipeline.scheduler import CooperativeScheduler, RequestPipeline
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.fake_link import FakeLink

VERSION = 4
Told = list[tuple[str, str]]


class Noting(Stage):
    """Notes what passes it."""

    def __init__(self, name: str, told: Told, reply: Reply | None = None) -> None:
        self._name = name
        self._told = told
        self._reply = reply

    def enter(self, call: Call, request: Any) -> Reply | None:
        self._told.append((self._name, f"enter {type(request).__name__}"))
        return self._reply

    def leave(self, call: Call, response: Any, size: int) -> None:
        self._told.append((self._name, f"leave {response.error_code}"))

    def fail(self, call: Call, error: BaseException) -> None:
        self._told.append((self._name, f"fail {error}"))


class Entering(Stage):
    """Looks at requests only."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def enter(self, call: Call, request: Any) -> None:
        self._told.append(("entering", call.client_id or ""))


def served_by(told: Told) -> ServedApi:
    @serves(HeartbeatRequest)
    def heartbeat(request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
        told.append(("handler", request.group_id))
        if request.group_id == "broken":
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "it broke")
        return HeartbeatResponse(error_code=22)

    return heartbeat


def send(stages: Sequence[Stage], told: Told, group_id: str = "group") -> HeartbeatResponse:
    """Let a heartbeat pass stages; return the response."""
    served = served_by(told)
    pipeline = RequestPipeline({served.key: served}, CooperativeScheduler(lambda: 0.0), CLIENTS)
    pipeline.chain = Chain(stages)
    request = HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m")
    frame = b"".join(request_frame(request, VERSION, 1, "me"))[4:]  # type: ignore[arg-type]
    answer = pipeline.new_handler(FakeLink()).carry_out([bytearray(frame)]).answer
    return decode_response(HeartbeatResponse, VERSION, b"".join(answer)[4:])  # type: ignore[arg-type]


def test_call_enters_the_stages_in_order_and_leaves_them_with_its_response() -> None:
    told: Told = []
    response = send([Noting("first", told), Entering(told), Noting("second", told)], told)
    assert response.error_code == 22
    assert told == [
        ("first", "enter HeartbeatRequest"),
        ("entering", "me"),
        ("second", "enter HeartbeatRequest"),
        ("handler", "group"),
        ("first", "leave 22"),
        ("second", "leave 22"),
    ]


def test_stage_that_ends_a_call_keeps_it_from_the_handler() -> None:
    told: Told = []
    refusal = Reply(HeartbeatResponse(error_code=29))
    response = send([Noting("first", told, refusal), Noting("second", told)], told)
    assert response.error_code == 29
    assert told == [("first", "enter HeartbeatRequest"), ("first", "leave 29"), ("second", "leave 29")]


def test_call_that_fails_passes_the_stages_once() -> None:
    told: Told = []
    with pytest.raises(ApiError, match="it broke"):
        send([Noting("only", told)], told, "broken")
    assert [what for who, what in told if who == "only"] == [
        "enter HeartbeatRequest",
        "fail UNKNOWN_SERVER_ERROR: it broke",
    ]


def test_run_leaves_with_each_response() -> None:
    told: Told = []
    call = RunCall(
        served_by(told),
        VERSION,
        1,
        "me",
        RequestPipeline({}, CooperativeScheduler(lambda: 0.0), CLIENTS).new_handler(FakeLink()).state,
    )
    Chain([Noting("only", told)]).leave_run(call, [HeartbeatResponse(error_code=code) for code in (0, 25)], 20)
    assert told == [("only", "leave 0"), ("only", "leave 25")]
