"""Calls pass the stages in their order, and none passes its handler where a stage has ended it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from barnabas.broker.pipeline.call import CLIENTS, Call, Reply, RunCall, ServedApi, Steps, serves
from barnabas.broker.pipeline.chain import Chain, Stage
from barnabas.broker.pipeline.scheduler import CooperativeScheduler, RequestPipeline
from barnabas.errors import ApiError, ErrorCode
from barnabas.net.server_connection import Answer
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

    def enter(self, call: Call, request: Any) -> Any:
        self._told.append((self._name, f"enter {type(request).__name__}"))
        return self._reply or request

    def leave(self, call: Call, response: Any, size: int) -> None:
        self._told.append((self._name, f"leave {response.error_code}"))

    def fail(self, call: Call, error: BaseException) -> None:
        self._told.append((self._name, f"fail {error}"))


class Entering(Stage):
    """Looks at requests only."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def enter(self, call: Call, request: Any) -> Any:
        self._told.append(("entering", call.client_id or ""))
        return request


class Renaming(Stage):
    """Replaces the group of each request and the error of each response, with or without pauses."""

    def __init__(self, *, pauses: bool) -> None:
        self._pauses = pauses

    def enter(self, call: Call, request: Any) -> Any:
        return self._steps(HeartbeatRequest(group_id="renamed", generation_id=1, member_id="m"))

    def settle(self, call: Call, response: Any) -> Any:
        return self._steps(HeartbeatResponse(error_code=response.error_code + 1))

    def _steps(self, result: Any) -> Steps[Any]:
        if self._pauses:
            yield
            yield
        return result


def served_by(told: Told) -> ServedApi:
    @serves(HeartbeatRequest)
    def heartbeat(request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
        told.append(("handler", request.group_id))
        if request.group_id == "broken":
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "it broke")
        return HeartbeatResponse(error_code=22)

    return heartbeat


async def completed(later: Awaitable[Answer]) -> Answer:
    return await later


def new_call(told: Told) -> RunCall:
    pipeline = RequestPipeline({}, CooperativeScheduler(lambda: 0.0), CLIENTS)
    return RunCall(served_by(told), VERSION, 1, "me", pipeline.new_handler(FakeLink()).state)


def send(stages: Sequence[Stage], told: Told, group_id: str = "group") -> HeartbeatResponse:
    """Let a heartbeat pass stages; return the response."""
    served = served_by(told)
    scheduler = CooperativeScheduler(lambda: 0.0, lambda call: None)
    pipeline = RequestPipeline({served.key: served}, scheduler, CLIENTS)
    pipeline.chain = Chain(stages)
    request = HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m")
    frame = b"".join(request_frame(request, VERSION, 1, "me"))[4:]  # type: ignore[arg-type]
    reply = pipeline.new_handler(FakeLink()).carry_out([bytearray(frame)])
    answer = reply.answer if reply.later is None else asyncio.run(completed(reply.later))
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


@pytest.mark.parametrize("pauses", [False, True], ids=["at-once", "in-steps"])
def test_stages_change_requests_and_responses(pauses: bool) -> None:
    told: Told = []
    response = send([Renaming(pauses=pauses), Noting("last", told)], told)
    assert response.error_code == 23
    assert told == [("last", "enter HeartbeatRequest"), ("handler", "renamed"), ("last", "leave 23")]


def test_reply_of_a_stage_after_a_pause_ends_the_call() -> None:
    told: Told = []

    class Refusing(Stage):
        def enter(self, call: Call, request: Any) -> Steps[Reply]:
            yield
            return Reply(HeartbeatResponse(error_code=30))

    assert send([Refusing(), Noting("last", told)], told).error_code == 30
    assert told == [("last", "leave 30")]


def test_request_passes_if_all_stages_let_it_pass() -> None:
    class Picky(Stage):
        def passes(self, call: Call, request: Any) -> bool:
            return bool(request == "known")

    call = new_call([])
    assert Chain([Picky(), Stage()]).passes(call, "known")
    assert not Chain([Stage(), Picky()]).passes(call, "other")
    assert Chain([Stage()]).passes(call, "other")


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
    call = new_call(told)
    Chain([Noting("only", told)]).leave_run(call, [HeartbeatResponse(error_code=code) for code in (0, 25)], 20)
    assert told == [("only", "leave 0"), ("only", "leave 25")]
