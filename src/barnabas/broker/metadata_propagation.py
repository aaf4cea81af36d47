"""Waits until all live brokers know a new topic or partition, before its creator gets the response.

Brokers learn of each other's changes from the metadata tree, some milliseconds later. A client that asks another broker
meanwhile learns that the topic does not exist, and may keep that for long: librdkafka's consumers refresh their
metadata after `topic.metadata.refresh.interval.ms`, which is five minutes.

Used from the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import closing

from barnabas.broker.requested_elections import Connect
from barnabas.broker.topics import Topics
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.net.client_connection import ClientConnection
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

LOOK_S, LOOK_MAX_S = 0.005, 0.2
"""The first and the longest pause between two requests to a broker; each pause is twice the last one."""
KNOWN_S = 2.0
"""The limit of the wait. A broker that hangs is not asked after its session has ended."""

log = logging.getLogger(__name__)


class MetadataPropagation:
    """The new topics and partitions of this broker, on their way to the other brokers."""

    def __init__(self, topics: Topics, broker_id: int, connect: Connect) -> None:
        self._topics = topics
        self._broker_id = broker_id
        self._connect = connect

    async def until_known(self, counts: Mapping[bytes, int], timeout_s: float) -> None:
        """Wait until each live broker knows these topics with all their partitions.

        One that cannot be asked is not waited for: it reads everything when it is there again. After `timeout_s`, or
        `KNOWN_S` if that is shorter, none is.

        :param counts: the partition counts, by topic id.
        """
        others = [each for each in self._topics.image.brokers if each != self._broker_id]
        if counts and timeout_s > 0:
            await asyncio.gather(*(self._until_known_to(each, counts, min(timeout_s, KNOWN_S)) for each in others))

    async def _until_known_to(self, broker_id: int, counts: Mapping[bytes, int], timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                pause_s = LOOK_S
                with closing(await self._connect(broker_id)) as connection:
                    while counts := await self._unknown(connection, counts):
                        await asyncio.sleep(pause_s)
                        pause_s = min(2 * pause_s, LOOK_MAX_S)
        except BarnabasError as error:
            log.info("broker %d cannot be asked what it has heard of: %s", broker_id, error)
        except TimeoutError:
            log.warning("broker %d has not told within %g s that it has heard of what was made", broker_id, timeout_s)

    async def _unknown(self, connection: ClientConnection, counts: Mapping[bytes, int]) -> dict[bytes, int]:
        """Return the topics that the other broker does not know, unless they were deleted here meanwhile."""
        asked = [MetadataRequestTopic(topic_id=each, name=None) for each in counts]
        response: MetadataResponse = await connection.send(
            MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        )
        known = {each.topic_id: len(each.partitions) for each in response.topics if each.error_code == ErrorCode.NONE}
        return {
            topic_id: count
            for topic_id, count in counts.items()
            if known.get(topic_id, 0) < count and self._topics.by_id(topic_id) is not None
        }
