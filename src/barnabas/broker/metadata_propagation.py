"""The propagation of new topics and partitions.

The broker that creates them responds after all live brokers have read them.

Brokers read each other's changes from the metadata store after some milliseconds. Without this wait, another broker
could report to a client that the topic does not exist. Clients may cache this error for a long time: librdkafka's
consumers refresh their metadata after `topic.metadata.refresh.interval.ms`, which is five minutes.

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
"""The first and the maximum pause between two requests to a broker, in seconds. The pause doubles after each request.
"""
KNOWN_S = 2.0
"""The maximum wait in seconds. The wait for a hanging broker also ends when its session expires."""

log = logging.getLogger(__name__)


class MetadataPropagation:
    """Waits until other brokers have read the topics and partitions that this broker created."""

    def __init__(self, topics: Topics, broker_id: int, connect: Connect) -> None:
        self._topics = topics
        self._broker_id = broker_id
        self._connect = connect

    async def until_known(self, counts: Mapping[bytes, int], timeout_s: float) -> None:
        """Wait up to `KNOWN_S` until each live broker has these topics with all their partitions.

        An unreachable broker is skipped, because it reads all metadata when it returns.

        :param counts: the number of partitions, by topic id.
        :param timeout_s: a shorter limit of the wait, in seconds.
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
            log.info(
                "cannot check whether broker %d has read new topics: %s; not waiting for this broker", broker_id, error
            )
        except TimeoutError:
            log.warning(
                "broker %d has not read new topics within %g s; not waiting for this broker", broker_id, timeout_s
            )

    async def _unknown(self, connection: ClientConnection, counts: Mapping[bytes, int]) -> dict[bytes, int]:
        """Return the topics that a broker does not have yet, except topics that have been deleted since their
        creation.
        """
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
