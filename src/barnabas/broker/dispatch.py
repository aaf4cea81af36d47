"""From request frames to their handler and back to response frames.

An API or version that is not served ends the connection with one line in the log, as in Kafka: there is no
format in which both sides could agree on an answer. ApiVersions is the exception that tells clients what is
served: it is answered in version 0, with UNSUPPORTED_VERSION and the list (KIP-511).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from barnabas.broker.api import Context, Repeated, ServedApi
from barnabas.broker.handlers import SERVED
from barnabas.broker.handlers.api_versions import unsupported_version
from barnabas.errors import MalformedMessageError, UnsupportedVersionError
from barnabas.net.server_connection import Answer, Carried, Frame, Peer
from barnabas.protocol.codec import RecordsSpan
from barnabas.protocol.declare import message_of
from barnabas.protocol.frames import (
    API_VERSIONS_KEY,
    RequestHeader,
    decode_request,
    read_request_correlation_id,
    read_request_header,
    response_frame,
)
from barnabas.protocol.repeats import RepeatedRequests

PRODUCE_KEY, JOIN_GROUP_KEY, SYNC_GROUP_KEY = 0, 11, 14

REQUEST_BYTES_MAX = 1024 * 1024
"""The largest request of an API that carries no data: each byte of such a one may cost many bytes of memory."""

DATA_REQUEST_BYTES_MAX = {JOIN_GROUP_KEY: 16 * 1024 * 1024, SYNC_GROUP_KEY: 16 * 1024 * 1024}
"""APIs whose requests carry data that is not looked into. Produce has no limit but that of the listener."""

RUN_REQUESTS_MAX = 1024
RUN_BYTES_MAX = 1024 * 1024
"""A run of requests ends behind the one that exceeds this."""

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


class Dispatcher:
    """The listener's handler: carries out one request frame at a time, or a run of them."""

    def __init__(self, broker: Broker, served: Mapping[int, ServedApi] = SERVED) -> None:
        self._broker = broker
        self._served = served

    def __call__(self, frames: Sequence[Frame], peer: Peer) -> Carried:
        """Carry out the first request, and perhaps some of those behind it.

        :raises MalformedMessageError: the first frame is no request.
        :raises UnsupportedVersionError: its API or version is not served.
        :raises BarnabasError: it failed, and there is no other way to tell than to end the connection.
        """
        frame = frames[0]
        header = read_request_header(frame)
        served = self._served.get(header.api_key)
        if served is None or header.api_version not in served.versions:
            return Carried(1, self._not_served(header, served))
        _check_size(header, len(frame))
        context = Context(header.api_version, header.client_id, peer)
        if served.in_runs:
            responses = served.handle(self._broker, _run(frames, header, served), context)
        else:
            request = decode_request(served.api.request, header, frame)
            responses = [served.handle(self._broker, request, context)]
        return _carried(responses, frames, header.api_version, served.api.response)

    def _not_served(self, header: RequestHeader, served: ServedApi | None) -> Answer:
        if header.api_key == API_VERSIONS_KEY:
            return response_frame(unsupported_version(), 0, header.correlation_id)
        if served is None:
            raise UnsupportedVersionError(f"API {header.api_key} is not served")
        versions = f"{served.versions.start} to {served.versions.stop - 1}"
        name = served.api.name
        raise UnsupportedVersionError(f"{name} is served in versions {versions}, not {header.api_version}")


def _check_size(header: RequestHeader, size: int) -> None:
    limit = DATA_REQUEST_BYTES_MAX.get(header.api_key, REQUEST_BYTES_MAX)
    if size > limit and header.api_key != PRODUCE_KEY:
        raise MalformedMessageError(f"a request of {size} bytes to API {header.api_key} (at most {limit} are allowed)")


def _run(frames: Sequence[Frame], header: RequestHeader, served: ServedApi) -> Iterator[Repeated]:
    """Yield the first request and those behind it that are of its kind, up to one that is not or is damaged.

    :raises MalformedMessageError: the first one is damaged.
    """
    known = RepeatedRequests(flexible=message_of(served.api.request).flexible(header.api_version))
    repeated = _decode(frames[0], header, served, known)
    size = len(frames[0])
    for frame in islice(frames, 1, RUN_REQUESTS_MAX):
        size += len(frame)
        if size > RUN_BYTES_MAX:
            break
        if (found := known.recognise(frame)) is not None:
            request, records = found
            if request is repeated.request:
                repeated.records.append(records)
                continue
            following = Repeated(request, [records])
        else:
            try:
                next_header = read_request_header(frame)
                if next_header.api_key != header.api_key or next_header.api_version != header.api_version:
                    break
                following = _decode(frame, next_header, served, known)
            except MalformedMessageError:
                # Its own turn comes when those before it are answered.
                break
        yield repeated
        repeated = following
    yield repeated


def _decode(frame: Frame, header: RequestHeader, served: ServedApi, known: RepeatedRequests) -> Repeated:
    spans: list[RecordsSpan] = []
    request = decode_request(served.api.request, header, frame, spans)
    if len(spans) != 1:
        return Repeated(request, [])
    known.learn(frame, spans[0], request)
    _, start, end = spans[0]
    return Repeated(request, [memoryview(frame)[start:end]])


def _carried(responses: Sequence[Any], frames: Sequence[Frame], version: int, kind: type) -> Carried:
    """Encode the responses up to the first that has to wait; that one and those behind it follow together."""
    answer: Answer = []
    count = len(responses)
    for number, (response, frame) in enumerate(zip(responses, frames, strict=False)):
        if response is None:
            continue
        if not isinstance(response, kind):
            ids = [read_request_correlation_id(frame) for frame in islice(frames, number, count)]
            return Carried(count, answer, _answer_later(responses[number:], ids, version, kind))
        answer += response_frame(response, version, read_request_correlation_id(frame))
    return Carried(count, answer)


async def _answer_later(responses: Sequence[Any], correlation_ids: Sequence[int], version: int, kind: type) -> Answer:
    waiting = [response for response in responses if not isinstance(response, kind)]
    settled = iter([await waiting[0]] if len(waiting) == 1 else await asyncio.gather(*waiting))
    answer: Answer = []
    for response, correlation_id in zip(responses, correlation_ids, strict=True):
        known = response if isinstance(response, kind) else next(settled)
        answer += response_frame(known, version, correlation_id)
    return answer
