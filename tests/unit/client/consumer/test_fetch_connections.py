"""A consumer's fetches from a broker that lies: they become rare, and are quick again when it lies no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from barnabas.client.backoff import Backoff
from barnabas.client.cluster import Cluster
from barnabas.client.consumer.fetch_connections import FetchConnections
from barnabas.errors import BarnabasError, DisconnectedError, ErrorCode
from barnabas.protocol.codec import EncodedRequest
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.simulation.loop import SimulatedLoop
from tests.support.consumer_core import NODE, TOPIC, Scene, make_batch

ANSWER_S = 0.001
LIES_S = 60.0

Answer = FetchResponse | BarnabasError


def answer(topic: str = TOPIC, partition: int = 0, error: int = 0, **fields: Any) -> FetchResponse:
    usual = {"partition_index": partition, "error_code": 0, "high_watermark": 0, "records": b""}
    part = PartitionData(**{**usual, **fields})
    return FetchResponse(
        error_code=error, session_id=7, responses=[FetchableTopicResponse(topic=topic, partitions=[part])]
    )


LIES: dict[str, list[Answer]] = {
    "nothing, at once": [FetchResponse(session_id=7, responses=[])],
    "an empty partition, at once": [answer()],
    "another topic": [answer("other", records=make_batch(0, 0, 1))],
    "another partition": [answer(partition=2**31 - 1, records=make_batch(0, 0, 1))],
    "the session is gone by turns": [answer(), answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)],
    "the session is gone": [answer(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)],
    "a closed connection by turns": [answer(), DisconnectedError("closed")],
    "an error by turns": [answer(), answer(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)],
}


class LyingCluster:
    """One broker and the connection to it."""

    def __init__(self, view: Any, answers: list[Answer]) -> None:
        self.view, self.answers = view, answers
        self.backoff = Backoff(100, 1_000, lambda: 0.5)
        self.fetches = 0
        self.is_open = True

    def open_channel(self, _node_id: int, _purpose: str = "") -> LyingCluster:
        return self

    def request_refresh(self, *, is_stale: bool = False) -> None:
        pass

    def version_for(self, _request: type) -> int:
        return 11

    def submit(
        self, _request: FetchRequest | EncodedRequest, on_answer: Callable[[Any, Any], None], **_options: Any
    ) -> None:
        self.fetches += 1
        found = self.answers[self.fetches % len(self.answers)]
        pair = (None, found) if isinstance(found, BarnabasError) else (found, None)
        asyncio.get_running_loop().call_later(ANSWER_S, on_answer, *pair)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_broker_is_asked_rarely(lie: str) -> None:
    loop = SimulatedLoop()
    scene = Scene(partitions=1)
    scene.core.assign([(TOPIC, 0)])
    scene.on_metadata()
    scene.place_all()
    scene.state.now_s = loop.time
    cluster = LyingCluster(scene.view, LIES[lie])

    def fail(error: BaseException) -> None:
        raise error

    async def test() -> None:
        fetches = FetchConnections(
            scene.state, cast(Cluster, cluster), spawn=asyncio.ensure_future, on_fault=fail, answered=lambda: None
        )
        fetches.wake(NODE)
        await asyncio.sleep(LIES_S)
        assert LIES_S / 4 < cluster.fetches < 4 * LIES_S
        cluster.answers = [answer(records=make_batch(0, 0, 3), high_watermark=3)]
        await asyncio.sleep(2.0)
        assert scene.state.fetcher.kept_count == 1, "what comes is taken"
        fetches.close()

    loop.run_until_complete(test())
    loop.close()
