"""What a consumer that waits for new records sends and gets again and again, as patterns of bytes. No I/O.

In a fetch session (KIP-227) nearly all its requests say one thing, the next offset of the partition that has just
brought something, and nearly all answers bring something of one partition. Such a request is packed, and such an answer
read, in a step each; all others are encoded and decoded as any message is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

from barnabas.client.consumer.fetcher import SinglePartitionFetch
from barnabas.errors import MalformedMessageError
from barnabas.protocol.codec import Buffer
from barnabas.protocol.declare import message_of
from barnabas.protocol.frames import EncodedRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.patterns import AnswerReader, message_packer
from barnabas.protocol.varint import read_uvarint

PATTERNS_MAX = 64
"""Patterns that are made for one connection: one takes as long as some ten requests."""

_NAME_AT = 4 + 4 + 2 + 4 + 4
_NAME_AT_FLEXIBLE = 4 + 1 + 4 + 2 + 4 + 1
"""Where a topic's name begins, with its length, in an answer about one: behind the correlation id, the header's tags
in flexible versions, the throttle time, the error, the session and how many topics there are."""

_INT16 = struct.Struct(">h")


class FetchTemplates:
    """The patterns of one connection.

    :param version: of all its fetches.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self._flexible = message_of(FetchResponse).flexible(version)
        self._packers: dict[str, Callable[..., bytes]] = {}
        self._readers: dict[bytes, _TopicReader] = {}
        """By the topic's name as it is encoded."""
        self._last: _TopicReader | None = None
        """Of the answer that was read last; most consumers read one topic."""

    def request(
        self, whole: FetchRequest, session_id: int, session_epoch: int, topic: str, part: FetchPartition
    ) -> EncodedRequest | None:
        """Return the next request of a session, which says one partition anew.

        :param whole: what it asks for in all; of it the minimum of bytes and the rack are always the same.
        :returns: None if there are too many patterns already.
        """
        pack = self._packers.get(topic)
        if pack is None:
            if len(self._packers) == PATTERNS_MAX:
                return None
            pack = self._packers[topic] = _packer(whole, topic, self.version)
        body = pack(
            whole.max_wait_ms,
            whole.max_bytes,
            session_id,
            session_epoch,
            part.partition,
            part.fetch_offset,
            part.partition_max_bytes,
        )
        return EncodedRequest(FetchRequest, body, self.read, whole.max_bytes)

    def learn(self, response: FetchResponse) -> None:
        """Make a pattern of an answer that was decoded, if it is a usual one of a topic that has none yet."""
        if response.error_code or response.throttle_time_ms or len(response.responses) != 1:
            return
        (topic,) = response.responses
        name = topic.topic.encode()
        if name in self._readers or len(self._readers) == PATTERNS_MAX or len(topic.partitions) != 1:
            return
        (part,) = topic.partitions
        # Aborted transactions are others each time, and may be many.
        if part.error_code or part.preferred_read_replica >= 0 or part.aborted_transactions or not part.records:
            return
        self._last = self._readers[name] = _TopicReader(topic.topic, _reader(response, self.version))

    def read(self, frame: Buffer) -> SinglePartitionFetch | None:
        """Return the answer in a frame; None if it has to be decoded."""
        last = self._last
        if last is None:
            return None
        answer = last.read(frame)
        if answer is None:
            other = self._readers.get(self._name(frame))
            if other is not None and other is not last and (answer := other.read(frame)) is not None:
                self._last = other
        return answer

    def _name(self, frame: Buffer) -> bytes:
        """Return the topic's name in an answer about one topic; of any other frame, some bytes or none."""
        try:
            if self._flexible:
                size, begin = read_uvarint(frame, _NAME_AT_FLEXIBLE)
                return bytes(frame[begin : begin + size - 1])
            (size,) = _INT16.unpack_from(frame, _NAME_AT)
        except (IndexError, struct.error, MalformedMessageError):  # it is shorter, or an error
            return b""
        begin = _NAME_AT + _INT16.size
        return bytes(frame[begin : begin + size])


class _TopicReader:
    """Reads the answers about one topic."""

    __slots__ = ("_reader", "_topic")

    def __init__(self, topic: str, reader: AnswerReader) -> None:
        self._topic = topic
        self._reader = reader

    def read(self, frame: Buffer) -> SinglePartitionFetch | None:
        """Return the answer in a frame; None if it is of another pattern."""
        found = self._reader.read(frame)
        if found is None:
            return None
        (session_id, partition, high_watermark, *_), records = found
        return SinglePartitionFetch(session_id, self._topic, partition, high_watermark, records)


def _packer(whole: FetchRequest, topic: str, version: int) -> Callable[..., bytes]:
    def request_with(
        max_wait_ms: int, max_bytes: int, session_id: int, epoch: int, partition: int, offset: int, part_bytes: int
    ) -> FetchRequest:
        part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=part_bytes)
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=whole.min_bytes,
            max_bytes=max_bytes,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic=topic, partitions=[part])],
            rack_id=whole.rack_id,
        )

    return message_packer(request_with, 7, version)


def _reader(response: FetchResponse, version: int) -> AnswerReader:
    (topic,) = response.responses
    (part,) = topic.partitions

    def answer_with(
        records: bytes, session_id: int, partition: int, high_watermark: int, last_stable_offset: int, log_start: int
    ) -> FetchResponse:
        other = replace(
            part,
            partition_index=partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start,
            records=records,
        )
        return replace(response, session_id=session_id, responses=[replace(topic, partitions=[other])])

    return AnswerReader(answer_with, 5, version)
