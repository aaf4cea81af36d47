"""What a producer of few records at a time sends and gets again and again, as patterns of bytes. No I/O.

A request with one small batch is packed, and the answer that says where it went read, in a step each; all others are
encoded and decoded as any message is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from barnabas.client.producer.sender import SinglePartitionProduce
from barnabas.protocol.codec import Buffer
from barnabas.protocol.frames import EncodedRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.patterns import NumbersReader, records_packer

PACKED_BYTES_MAX = 4096
"""Larger batches are not copied into a request, which would cost more than it saves."""

STEADY_SINCE = 5
"""The version of Produce that has all the numbers that are looked for."""

PATTERNS_MAX = 64
"""Topics that have patterns: to make one takes as long as some ten requests."""


class ProduceTemplates:
    """The patterns of all requests of one version.

    :param acks: of all requests; likewise `timeout_ms`.
    """

    def __init__(self, version: int, *, acks: int, timeout_ms: int) -> None:
        self._version = version
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._topics: dict[str, _Topic] = {}

    def request(self, topic: str, partition: int, records: Buffer) -> EncodedRequest | None:
        """Return a request with one batch; None if it is too large, or there are too many patterns already."""
        if len(records) > PACKED_BYTES_MAX or self._version < STEADY_SINCE:
            return None
        known = self._topics.get(topic)
        if known is None:
            if len(self._topics) == PATTERNS_MAX:
                return None
            known = self._topics[topic] = _Topic(topic, self._packer(topic))
        return EncodedRequest(ProduceRequest, known.pack(records, partition), known.read)

    def _packer(self, topic: str) -> Callable[..., bytes]:
        def request_with(records: bytes, partition: int) -> ProduceRequest:
            data = [PartitionProduceData(index=partition, records=records)]
            topics = [TopicProduceData(name=topic, partition_data=data)]
            return ProduceRequest(acks=self._acks, timeout_ms=self._timeout_ms, topic_data=topics)

        return records_packer(request_with, 1, self._version)

    def learn(self, response: ProduceResponse) -> None:
        """Make a pattern of an answer that was decoded, if it is a usual one of a topic that has none yet."""
        if len(response.responses) != 1 or response.throttle_time_ms:
            return
        (topic,) = response.responses
        known = self._topics.get(topic.name)
        if known is None or known.reader is not None or len(topic.partition_responses) != 1:
            return
        (result,) = topic.partition_responses
        if not result.error_code:
            known.reader = _reader(response, self._version)


class _Topic:
    """The patterns of one topic."""

    __slots__ = ("name", "pack", "reader")

    def __init__(self, name: str, pack: Callable[..., bytes]) -> None:
        self.name = name
        self.pack = pack
        self.reader: NumbersReader | None = None
        """None before the first answer that was decoded."""

    def read(self, frame: Buffer) -> SinglePartitionProduce | None:
        """Return the answer in a frame; None if it has to be decoded."""
        found = None if self.reader is None else self.reader.read(frame)
        if found is None:
            return None
        partition, base_offset, log_append_time_ms, _ = found
        return SinglePartitionProduce(self.name, partition, base_offset, log_append_time_ms)


def _reader(response: ProduceResponse, version: int) -> NumbersReader:
    (topic,) = response.responses
    (result,) = topic.partition_responses

    def answer_with(index: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> ProduceResponse:
        other: PartitionProduceResponse = replace(
            result,
            index=index,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
        )
        return replace(response, responses=[replace(topic, partition_responses=[other])])

    return NumbersReader(answer_with, 4, version)
