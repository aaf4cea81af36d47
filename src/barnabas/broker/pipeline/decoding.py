"""From frames to requests, within a budget.

A request has a budget: entries of its arrays, and bytes besides record data. One that exceeds it ends the connection
with one line in the log. A large frame is decoded in slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.broker.pipeline.call import Received
from barnabas.broker.pipeline.reply import Steps
from barnabas.broker.pipeline.served_api import ServedApi
from barnabas.errors import MalformedMessageError
from barnabas.net.server_connection import Frame
from barnabas.protocol.codec import RecordsSpan, RequestHeader, RequestTemplates, decode_request_in_slices
from barnabas.protocol.compiler import EntryBudget

AT_ONCE_BYTES_MAX = 20_000
"""A larger frame is decoded in slices, since it may have many entries. The usual batch of a producer is smaller."""


def decode_in_slices(served: ServedApi, header: RequestHeader, frame: Frame, spans: list[RecordsSpan]) -> Steps[Any]:
    """Decode a request within its budget.

    :param spans: receives where record bytes are.
    :raises MalformedMessageError: the bytes are not such a request, or it is too large.
    """
    if served.runs is None:
        _check_size(served, len(frame))
    request = yield from decode_request_in_slices(
        served.api.request, header, frame, spans, EntryBudget(served.entries_max)
    )
    _check_size(served, len(frame) - sum(end - start for _, start, end in spans))
    return request


def _check_size(served: ServedApi, size: int) -> None:
    if size > served.bytes_max:
        name, limit = served.api.name, served.bytes_max
        raise MalformedMessageError(f"a request to {name} of {size} bytes besides record data (at most {limit})")


def received(
    served: ServedApi,
    frame: Frame,
    spans: Sequence[RecordsSpan],
    request: Any,
    correlation_id: int,
    known: RequestTemplates,
) -> Received:
    """Return a decoded request as a part of a run; learn it without its record bytes if it has one batch."""
    assert served.runs is not None
    data = served.runs.only_partition(request)
    if data is None or len(spans) != 1:
        return request, None, correlation_id
    _, start, end = spans[0]
    data.records = b""  # else the frame would last as long as what is known
    known.learn(frame, spans[0], request)
    return request, memoryview(frame)[start:end], correlation_id
