"""Wild and damaged frames for every API and version, through the broker's own pipeline.

Whatever comes, the broker answers, or refuses with one of its own errors; it keeps its memory, and serves on.
`make fuzz` runs many more of them than a usual test run.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections import Counter
from pathlib import Path

from barnabas.broker.broker import Broker
from barnabas.broker.pipeline.scheduler import RequestPipeline
from barnabas.broker.settings.static import BrokerConfig
from barnabas.errors import BarnabasError
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.fake_link import FakeLink
from tests.support.random_messages import RandomMessages

FRAMES = int(os.environ.get("FUZZ_FRAMES", "100000"))
SEED = int(os.environ.get("FUZZ_SEED", "20110612"))
TOGETHER = 4
"""So many frames are there when the broker begins with the first."""
WAIT_S = 0.001
"""How long an answer that has to wait is waited for; then its client hangs up."""
GROWTH_MIB_MAX = 150
TOPICS_MAX = 20


async def answer(requests: RequestPipeline, frames: list[bytes], outcomes: Counter[str]) -> None:
    """Let the broker carry out frames that came together; any error but its own kinds ends the test."""
    waiting = [bytearray(frame) for frame in frames]
    while waiting:
        try:
            reply = requests.new_handler(FakeLink()).carry_out(waiting)
            response = reply.answer
            if reply.later is not None:
                async with asyncio.timeout(WAIT_S):
                    response += await reply.later
        except BarnabasError as error:
            outcomes[type(error).__name__] += 1
            del waiting[0]
        except TimeoutError:
            outcomes["had to wait"] += reply.frame_count
            del waiting[: reply.frame_count]
        else:
            outcomes["answered" if response else "no answer"] += reply.frame_count
            assert reply.frame_count > 0
            del waiting[: reply.frame_count]


async def fuzz(broker: Broker, outcomes: Counter[str]) -> None:
    await broker.start()
    try:
        requests = broker.requests
        messages = RandomMessages(SEED)
        await broker.topic_admin.create("t", 2, {})
        for number in range(0, FRAMES, TOGETHER):
            await answer(requests, [messages.frame() for _ in range(TOGETHER)], outcomes)
            if number % 100 == 0:
                for topic in list(broker.topics.all())[TOPICS_MAX:]:
                    await broker.topic_admin.delete(topic.name)
        frame = b"".join(request_frame(MetadataRequest(topics=None), 9, 1, "last"))[4:]  # type: ignore[arg-type]
        reply = requests.new_handler(FakeLink()).carry_out([bytearray(frame)])
        last = reply.answer + (await reply.later if reply.later is not None else [])
        assert decode_response(MetadataResponse, 9, b"".join(last)[4:]).brokers, "the broker serves on"  # type: ignore[arg-type]
    finally:
        await broker.stop()


def test_no_frame_breaks_the_broker(tmp_path: Path) -> None:
    config = BrokerConfig(port=0, data=str(tmp_path / "data"), group_min_session_timeout_ms=1)
    outcomes: Counter[str] = Counter()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asyncio.run(fuzz(Broker(config), outcomes))
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
    assert outcomes.total() == FRAMES
    assert outcomes["answered"] > FRAMES / 4, outcomes
    assert grown_mib < GROWTH_MIB_MAX, f"memory grew by {grown_mib:.0f} MiB"
