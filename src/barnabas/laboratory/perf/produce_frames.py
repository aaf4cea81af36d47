"""A fast encoder of produce requests with one batch each. It does no I/O.

The requests for one partition differ only in three numbers: size, correlation id and batch length. So `protocol.frames`
encodes one request, and the encoder copies it with other numbers. The parser of responses is similar: it reads only the
error code and the correlation id of a successful response.

Version 8 is the last request version with length fields of fixed size.
"""

from __future__ import annotations

import struct

from barnabas.errors import ApiError, MalformedMessageError
from barnabas.net.stream import FrameReader
from barnabas.protocol.codec import decode_response, read_correlation_id, request_frame
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

VERSION_MAX = 8
CORRELATION_ID_MAX = 0x7FFFFFFF
RESPONSE_BYTES_MAX = 1024 * 1024

_NO_ERROR = b"\0\0"
_SIZE_BYTES = 4
_ERROR_CODE_AFTER_NAME = 18
"""The number of bytes before the first error code of a response, without the topic name."""


class FramePattern:
    """Encodes the part of a produce request that precedes the batch. All requests go to one partition.

    >>> pattern = FramePattern("clicks", 3, acks=1, timeout_ms=30_000, version=8, client_id="perf")
    >>> batch = b"not really a batch"
    >>> frame = pattern.head(7, len(batch)) + batch
    >>> len(frame) == pattern.head_bytes + len(batch)
    True
    """

    def __init__(self, topic: str, partition: int, *, acks: int, timeout_ms: int, version: int, client_id: str) -> None:
        assert version <= VERSION_MAX, f"version {version} has length fields of variable size"
        part = PartitionProduceData(index=partition, records=b"")
        request = ProduceRequest(
            acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[part])]
        )
        head = b"".join(bytes(memoryview(chunk)) for chunk in request_frame(request, version, 0, client_id))  # type: ignore[arg-type]
        self.head_bytes = len(head)
        self._api = head[4:8]
        self._middle = head[12:-4]
        self._pack = struct.Struct(f">i4si{len(self._middle)}si").pack

    def head(self, correlation_id: int, batch_bytes: int) -> bytes:
        """Return the bytes of a request that precede a batch of the given size."""
        size = self.head_bytes - _SIZE_BYTES + batch_bytes
        return self._pack(size, self._api, correlation_id, self._middle, batch_bytes)


class AnswerReader:
    """Parses the responses to the requests of a `FramePattern`, in the order of the requests. Correlation ids start at
    1 and increase by 1.

    :param topic: the topic of all requests.
    """

    def __init__(self, topic: str, version: int) -> None:
        self.answered = 0
        self._version = version
        self._error_at = _ERROR_CODE_AFTER_NAME + len(topic.encode())
        self._reader = FrameReader(RESPONSE_BYTES_MAX)

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the connection, and count the responses in them.

        :raises ApiError: if the broker rejected a request.
        :raises MalformedMessageError: if the bytes are not the expected responses.
        """
        frames = self._reader.feed(data)
        if not frames:
            return
        at = self._error_at
        for frame in frames:
            if frame[at : at + 2] != _NO_ERROR:
                self._refuse(frame)
        self.answered += len(frames)
        # Responses arrive in order: if the last response has the expected id, so do all earlier responses.
        if read_correlation_id(frames[-1]) != self.answered & CORRELATION_ID_MAX:
            raise MalformedMessageError(f"unexpected response with correlation id {read_correlation_id(frames[-1])}")

    def _refuse(self, frame: bytes | bytearray) -> None:
        response = decode_response(ProduceResponse, self._version, frame)
        for topic in response.responses:
            for each in topic.partition_responses:
                if each.error_code:
                    raise ApiError(each.error_code, each.error_message or "", subject=f"{topic.name}-{each.index}")
        raise MalformedMessageError("the response does not match the request")
