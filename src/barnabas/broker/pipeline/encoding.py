"""From responses to frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.broker.pipeline.call import Call
from barnabas.broker.pipeline.reply import Steps
from barnabas.net.server_connection import Answer
from barnabas.protocol.codec import response_frame, response_frame_in_slices

ANSWER_BYTES_MAX = 100_000_000
"""The largest answer, besides record data: what librdkafka takes, by default (`receive.message.max.bytes`)."""


def encode(call: Call, response: Any) -> Answer:
    """Return the frame of a response."""
    return response_frame(response, call.version, call.correlation_id)


def encode_in_slices(call: Call, response: Any) -> Steps[Answer]:
    """Do the same with pauses; a call that wants no answer has the response None.

    :raises MalformedMessageError: the answer is too large.
    """
    if response is None:
        return []
    if type(response) is bytes:
        return [response]
    answer: Answer = yield from response_frame_in_slices(response, call.version, call.correlation_id, ANSWER_BYTES_MAX)
    return answer


def encode_run(version: int, responses: Sequence[Any], correlation_ids: Sequence[int]) -> Answer:
    """Return the frames of the responses to some requests of a run, as one piece of memory.

    The fewer pieces, the less it costs to send them.
    """
    answer: Answer = []
    for response, correlation_id in zip(responses, correlation_ids, strict=False):
        if type(response) is bytes:
            answer.append(response)
        elif response is not None:
            answer += response_frame(response, version, correlation_id)
    return [b"".join(answer)] if len(answer) > 1 else answer  # type: ignore[arg-type]  # it has no file regions
