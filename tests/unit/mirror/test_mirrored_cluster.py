"""Reading the end of a target's log while its leader changes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.mirror.mirrored_cluster import MirroredCluster
from barnabas.model import TopicPartition
from barnabas.protocol.messages.fetch import FetchResponse

WHERE = TopicPartition("clicks", 0)


class Answering:
    """A cluster whose leader shows a log up to a high watermark."""

    view = SimpleNamespace(leader=lambda _where: 1)

    def __init__(self, high_watermark: int, records: bytes) -> None:
        self._part = SimpleNamespace(error_code=0, high_watermark=high_watermark, records=records)

    async def send(self, *_: Any, **_more: Any) -> FetchResponse:
        response: Any = SimpleNamespace(responses=[SimpleNamespace(partitions=[self._part])])
        return response  # type: ignore[no-any-return]


def fetch(high_watermark: int, records: bytes, end: int) -> bytes:
    side = MirroredCluster.__new__(MirroredCluster)
    cluster: Any = Answering(high_watermark, records)
    side.cluster = cluster
    return bytes(asyncio.run(side.fetch(WHERE, 90, 1_000, end)))


def test_log_that_a_new_leader_does_not_show_yet_is_not_taken_for_one_that_is_gone() -> None:
    with pytest.raises(ApiError, match="high watermark 90, below its earlier end offset 100") as raised:
        fetch(90, b"", 100)
    assert raised.value.code is ErrorCode.OFFSET_NOT_AVAILABLE


def test_log_that_has_grown_since_is_read() -> None:
    assert fetch(120, b"batches", 100) == b"batches"
