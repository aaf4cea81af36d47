"""How large an answer may be, by what was asked.

A broker that lies announces frames of any size, and sends them. The answer to a fetch has the bytes asked for at most,
or one batch that is larger; all other answers are small.
"""

from __future__ import annotations

from typing import Any

from barnabas.protocol.declare import message_of
from barnabas.protocol.frames import API_VERSIONS_KEY, EncodedRequest

FETCH_KEY = 1
"""The number of the API; clients that never fetch do not import its messages."""

MIB = 1024 * 1024

ANSWER_BYTES_MAX = 100 * MIB
"""The answer to a request for metadata of 200,000 partitions has a fifth of these."""

VERSIONS_BYTES_MAX = MIB
"""The first answer of a connection; a server of another protocol is found out by it."""

BATCH_BYTES_MAX = 100 * MIB
"""A batch larger than all bytes asked for comes whole (KIP-74). No request that brings a larger one passes brokers with
Kafka's default of `socket.request.max.bytes`; larger batches can be fetched with a larger `fetch.max.bytes`."""

PARTITIONS_BYTES_MAX = 16 * MIB
"""What a fetch says of partitions besides records; enough for 100,000 of them."""

FETCH_BYTES_MAX = 512 * MIB


def fetch_bytes(request: Any) -> int:
    """Return how many bytes of records a request asks for; 0: it is for none."""
    if type(request) is EncodedRequest:
        return request.fetch_bytes
    return max(0, request.max_bytes) if message_of(type(request)).api_key == FETCH_KEY else 0


def response_bytes_max(request: type[Any], asked: int) -> int:
    """Return how large the answer to a request may be.

    :param asked: what `fetch_bytes` says of the request.
    """
    api_key = message_of(request).api_key
    if api_key == FETCH_KEY:
        return min(asked + BATCH_BYTES_MAX + PARTITIONS_BYTES_MAX, FETCH_BYTES_MAX)
    return VERSIONS_BYTES_MAX if api_key == API_VERSIONS_KEY else ANSWER_BYTES_MAX
