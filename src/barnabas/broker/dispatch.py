"""From request frames to their handler and back to response frames.

An API or version that is not served ends the connection with one line in the log, as in Kafka: there is no
format in which both sides could agree on an answer. ApiVersions is the exception that tells clients what is
served: it is answered in version 0, with UNSUPPORTED_VERSION and the list (KIP-511).

Every request has a budget: entries, bytes besides record data, size of the answer. One that exceeds it ends the
connection with one line in the log. One that may take long is decoded, carried out and encoded in slices
(`barnabas.broker.turns`); small ones, which are nearly all, are done at once.

A request that waits gives back the memory of its frame, and counts with what it keeps (`Peer.keep`). No task that waits
refers to the frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from itertools import islice
from types import GeneratorType
from typing import Any, NamedTuple, TypeAlias

from barnabas.broker.api import (
    WAITING_BYTES,
    WAITING_ENTRY_BYTES,
    AnsweredTogether,
    Context,
    Received,
    ServedApi,
    ServedApis,
    Steps,
    Waiting,
)
from barnabas.broker.handlers.api_versions import unsupported_version
from barnabas.broker.produce_answers import InLine
from barnabas.broker.produce_pieces import entry_count, join, join_later, must_be_in_pieces, only_partition, pieces
from barnabas.broker.turns import Turns, Unfinished
from barnabas.errors import BarnabasError, MalformedMessageError, UnsupportedVersionError
from barnabas.model import Acks
from barnabas.net.server_connection import Answer, Carried, Frame, Peer
from barnabas.protocol.codec import RecordsSpan
from barnabas.protocol.compiler import EntryBudget
from barnabas.protocol.declare import message_of
from barnabas.protocol.frames import (
    API_VERSIONS_KEY,
    RequestHeader,
    decode_request,
    decode_request_in_slices,
    read_request_correlation_id,
    read_request_header,
    response_frame,
    response_frame_in_slices,
)
from barnabas.protocol.repeats import RepeatedRequests

AT_ONCE_BYTES_MAX = 20_000
"""A larger frame is decoded in slices, since it may have many entries. The usual batch of a producer is smaller."""

ANSWER_BYTES_MAX = 100_000_000
"""The largest answer, besides record data: what librdkafka takes, by default (`receive.message.max.bytes`)."""

DECODING_STEPS_AT_ONCE = 16
"""Decoding a large batch for a few partitions takes this many steps at most; such a request is always carried out at
once."""

RUN_REQUESTS_MAX = 1024
RUN_BYTES_MAX = 1024 * 1024
RUN_ENTRIES_MAX = 2048
"""A run ends with the request that exceeds one of these limits."""

KEPT_BYTES_IN_RUN = 1_024
"""What a request of a run keeps while its acknowledgement waits: its answer."""

REPEATED_ENTRIES = 2
"""The entries of a request that is recognised: a topic and a partition."""

Result: TypeAlias = "Answer | Awaitable[Any] | Waiting"
"""The chunks of the response frame, or what the response has to wait for."""


class Dispatcher:
    """The listener's handler: carries out one request frame at a time, or a run of them.

    :param served: with handlers that have their parts (`Parts.bind_all`).
    """

    def __init__(self, served: ServedApis, turns: Turns) -> None:
        self._served = served
        self._turns = turns

    def __call__(self, frames: Sequence[Frame], peer: Peer) -> Carried:
        """Carry out the first request, and perhaps some of those behind it.

        :raises MalformedMessageError: the first frame is no request, or one that asks for too much.
        :raises UnsupportedVersionError: its API or version is not served.
        :raises BarnabasError: it failed, and there is no other way to tell than to end the connection.
        """
        if peer.shortcut is not None and (answer := peer.shortcut(frames[0])) is not None:
            return Carried(1, answer)
        return self._carry_out_first(frames, peer)

    def _carry_out_first(self, frames: Sequence[Frame], peer: Peer) -> Carried:
        frame = frames[0]
        header = read_request_header(frame)
        served = self._served.get(header.api_key)
        if served is None or header.api_version not in served.versions:
            return Carried(1, self._not_served(header, served))
        if served.ends_with_client and peer.is_gone:
            return Carried(1, [])
        context = Context(header.api_version, header.client_id, peer)
        if served.in_runs or len(frame) > AT_ONCE_BYTES_MAX:
            call = _Call(served, header, context, len(frame))
            if served.in_runs:
                return self._carry_out_run(call, frames)
            return self._in_slices(call, call.carry_out(_decode_in_slices(served, header, frame, [])))
        if served.comes_in_crowds and self._turns.is_over():
            later = self._in_turn(_Call(served, header, context, len(frame)), bytes(frame))
            return Carried(1, [], later, served.ends_with_client)
        request = decode_request(served.api.request, header, frame)
        return self._carry_out(served, header, context, request, len(frame))

    def _carry_out(
        self, served: ServedApi, header: RequestHeader, context: Context, request: Any, size: int
    ) -> Carried:
        response = _without_pause(served.handle(request, context))
        if isinstance(response, GeneratorType):
            call = _Call(served, header, context, size)
            return self._in_slices(call, call.encode(response))
        if isinstance(response, served.api.response):
            return Carried(1, response_frame(response, header.api_version, header.correlation_id))
        call = _Call(served, header, context, size)
        return Carried(1, [], self._answer_later(call, response), served.ends_with_client)

    def _not_served(self, header: RequestHeader, served: ServedApi | None) -> Answer:
        if header.api_key == API_VERSIONS_KEY:
            return response_frame(unsupported_version(self._served), 0, header.correlation_id)
        if served is None:
            raise UnsupportedVersionError(f"API {header.api_key} is not served")
        versions = f"{served.versions.start} to {served.versions.stop - 1}"
        name = served.api.name
        raise UnsupportedVersionError(f"{name} is served in versions {versions}, not {header.api_version}")

    def _in_slices(self, call: _Call, steps: Steps[Result]) -> Carried:
        """Do what there is time for now, and the rest later."""
        result = self._turns.go_on(steps)
        if isinstance(result, list):
            return Carried(1, result)
        later = self._finish(call, steps) if isinstance(result, Unfinished) else self._answer_later(call, result)
        return Carried(1, [], later, call.served.ends_with_client)

    async def _finish(self, call: _Call, steps: Steps[Result]) -> Answer:
        result = await self._turns.finish(steps)
        return result if isinstance(result, list) else await self._answer_later(call, result)

    async def _in_turn(self, call: _Call, frame: bytes) -> Answer:
        """Carry out a request when those before it have had their turn."""
        await self._turns.pause(is_short=True)
        carried = self._carry_out(
            call.served,
            call.header,
            call.context,
            decode_request(call.served.api.request, call.header, frame),
            len(frame),
        )
        del frame
        return carried.answer if carried.later is None else await carried.later

    async def _answer_later(self, call: _Call, waiting: Awaitable[Any] | Waiting) -> Answer:
        if not isinstance(waiting, Waiting):
            waiting = Waiting(waiting, call.size)
        if waiting.before:
            await asyncio.wait(waiting.before)
        kept_bytes = WAITING_BYTES + len(call.context.client_id or "") + waiting.kept_bytes
        if not call.context.peer.keep(kept_bytes) and waiting.end is not None:
            waiting.end()
        response = await waiting.response
        if isinstance(response, GeneratorType):
            response = _without_pause(response)
            if isinstance(response, call.served.api.response):
                return response_frame(response, call.header.api_version, call.header.correlation_id)
        result = await self._turns.finish(call.encode(response))
        assert isinstance(result, list), "a handler waits once"
        return result

    def _carry_out_run(self, call: _Call, frames: Sequence[Frame]) -> Carried:
        frame, header, served = frames[0], call.header, call.served
        known = _known_of(call)
        received: Received | None = known.recognise(frame)
        if received is None:
            spans: list[RecordsSpan] = []
            request = self._decode(served, header, frame, spans)
            if isinstance(request, GeneratorType):
                return Carried(1, [], self._finish(call, call.carry_out(request)))
            if must_be_in_pieces(request, len(frame)):
                return self._in_slices(call, call.carry_out_in_pieces(request))
            received = _received(frame, spans, request, header, known)
        responses = served.handle(self._run(received, frames, call, known), call.context)
        if isinstance(responses, AnsweredTogether):
            return Carried(responses.request_count, [], _as_answer(responses, call.context.peer))
        return _carried(responses, frames, header.api_version, served.api.response, call.context.peer)

    def _run(
        self, first: Received, frames: Sequence[Frame], call: _Call, known: RepeatedRequests
    ) -> Iterator[Received]:
        """Yield the first request and those behind it that are of its kind, up to one that is not, or is damaged, or
        is so large that it is carried out alone."""
        yield first
        size, entries = len(frames[0]), entry_count(first[0])
        for frame in islice(frames, 1, RUN_REQUESTS_MAX):
            size += len(frame)
            if size > RUN_BYTES_MAX or entries > RUN_ENTRIES_MAX:
                return
            if (received := known.recognise(frame)) is not None:
                entries += REPEATED_ENTRIES
                yield received
                continue
            if (another := self._another(call.served, call.header, frame, known)) is None:
                return
            entries += entry_count(another[0])
            yield another

    def _another(
        self, served: ServedApi, header: RequestHeader, frame: Frame, known: RepeatedRequests
    ) -> Received | None:
        """Return the request, or None if it does not belong to a run: its own turn comes when those before it are
        answered."""
        spans: list[RecordsSpan] = []
        try:
            own = read_request_header(frame)
            if own.api_key != header.api_key or own.api_version != header.api_version:
                return None
            request = self._decode(served, own, frame, spans)
        except MalformedMessageError:
            return None
        if isinstance(request, GeneratorType) or must_be_in_pieces(request, len(frame)):
            return None
        return _received(frame, spans, request, own, known)

    def _decode(self, served: ServedApi, header: RequestHeader, frame: Frame, spans: list[RecordsSpan]) -> Any:
        """Return the request, or the steps that are left to it where it takes long."""
        if len(frame) <= AT_ONCE_BYTES_MAX:
            return decode_request(served.api.request, header, frame, spans)
        steps = _decode_in_slices(served, header, frame, spans)
        request = self._turns.go_on(steps, DECODING_STEPS_AT_ONCE)
        return steps if isinstance(request, Unfinished) else request


class _Call(NamedTuple):
    """A request that is carried out, and what is done for it in slices."""

    served: ServedApi
    header: RequestHeader
    context: Context
    size: int
    """Of its frame."""

    def carry_out(self, decoding: Steps[Any]) -> Steps[Result]:
        """Decode the request, carry it out and encode the answer."""
        request = yield from decoding
        if self.served.in_runs:
            return (yield from self.carry_out_in_pieces(request))
        return (yield from self.encode(self.served.handle(request, self.context)))

    def carry_out_in_pieces(self, request: Any) -> Steps[Result]:
        """Carry out a request to produce, and encode the answer.

        :raises BarnabasError: an append failed, and the client wants no answer.
        """
        responses: list[tuple[Any, bool]] = []
        failure: BarnabasError | None = None
        for piece, continues in pieces(request):
            yield
            try:
                (response,) = self.served.handle([(piece, None, self.header.correlation_id)], self.context)
            except BarnabasError as error:
                failure = failure or error
            else:
                responses.append((response, continues))
        if request.acks == Acks.NONE:
            later = [response for response, _ in responses if response is not None]
            return _wait_for_all(later, failure) if later or failure else []
        if failure:
            raise failure
        if not all(isinstance(response, self.served.api.response) for response, _ in responses):
            kept_bytes = WAITING_ENTRY_BYTES * entry_count(request)
            return Waiting(join_later(responses), kept_bytes, before=_appending(each for each, _ in responses))
        return (yield from self.encode(join(responses)))

    def encode(self, response: Any) -> Steps[Result]:
        """Encode what a handler returned, which is nothing where no answer is wanted, or return what it waits for.

        :raises MalformedMessageError: the answer is too large.
        """
        if isinstance(response, GeneratorType):
            response = yield from response
        if response is None:
            return []
        if not isinstance(response, self.served.api.response):
            waiting: Awaitable[Any] | Waiting = response
            return waiting
        version, correlation_id = self.header.api_version, self.header.correlation_id
        answer: Answer = yield from response_frame_in_slices(response, version, correlation_id, ANSWER_BYTES_MAX)
        return answer


def _without_pause(response: Any) -> Any:
    """Do the steps of a response up to the first pause; nearly always that is all, for what is small does not pause.

    :returns: the response, or the steps that are left to it.
    """
    if isinstance(response, GeneratorType):
        try:
            next(response)
        except StopIteration as end:
            return end.value
    return response


def _decode_in_slices(served: ServedApi, header: RequestHeader, frame: Frame, spans: list[RecordsSpan]) -> Steps[Any]:
    """Decode a request within its budget.

    :raises MalformedMessageError: the bytes are not such a request, or it is too large.
    """
    if not served.in_runs:
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


def _known_of(call: _Call) -> RepeatedRequests:
    """Return the requests that are known to come from this client again and again."""
    peer, version = call.context.peer, call.header.api_version
    if peer.repeats is None or peer.repeats.version != version:
        flexible = message_of(call.served.api.request).flexible(version)
        peer.repeats = RepeatedRequests(version, flexible=flexible)
    return peer.repeats


def _received(
    frame: Frame, spans: Sequence[RecordsSpan], request: Any, header: RequestHeader, known: RepeatedRequests
) -> Received:
    """Return a request that was decoded; if it is for one partition, learn it without its record bytes."""
    data = only_partition(request)
    if data is None or len(spans) != 1:
        return request, None, header.correlation_id
    _, start, end = spans[0]
    data.records = b""  # else the frame would last as long as what is known
    known.learn(frame, spans[0], request)
    return request, memoryview(frame)[start:end], header.correlation_id


def _carried(responses: Sequence[Any], frames: Sequence[Frame], version: int, kind: type, peer: Peer) -> Carried:
    """Encode the responses up to the first that has to wait; that one and those behind it follow together."""
    answer: Answer = []
    for number, (response, frame) in enumerate(zip(responses, frames, strict=False)):
        if isinstance(response, bytes):
            answer.append(response)
        elif isinstance(response, kind):
            answer += response_frame(response, version, read_request_correlation_id(frame))
        elif response is not None:
            ids = [read_request_correlation_id(each) for each in islice(frames, number, len(responses))]
            later = _answer_run_later(responses[number:], ids, version, kind, peer)
            return Carried(len(responses), _as_one(answer), later)
    return Carried(len(responses), _as_one(answer))


async def _as_answer(together: AnsweredTogether, peer: Peer) -> Answer:
    peer.keep(WAITING_BYTES + KEPT_BYTES_IN_RUN * together.request_count)
    return [await together.frames]


def _appending(responses: Iterable[Any]) -> list[asyncio.Future[Any]]:
    """Return what has to end before the batches of all these requests are in their logs: until then, they are in the
    frames."""
    return list({response.appending for response in responses if isinstance(response, InLine)})


async def _answer_run_later(
    responses: Sequence[Any], correlation_ids: Sequence[int], version: int, kind: type, peer: Peer
) -> Answer:
    if appending := _appending(responses):
        await asyncio.wait(appending)
    peer.keep(WAITING_BYTES + KEPT_BYTES_IN_RUN * len(responses))
    waiting = [response for response in responses if not isinstance(response, bytes | kind)]
    settled = iter([await waiting[0]] if len(waiting) == 1 else await asyncio.gather(*waiting))
    answer: Answer = []
    for response, correlation_id in zip(responses, correlation_ids, strict=True):
        known = response if isinstance(response, bytes | kind) else next(settled)
        if isinstance(known, bytes):
            answer.append(known)
        elif known is not None:
            answer += response_frame(known, version, correlation_id)
    return _as_one(answer)


def _as_one(answers: Answer) -> Answer:
    """Return small pieces in memory as one: the fewer pieces, the less it costs to send them."""
    return [b"".join(answers)] if len(answers) > 1 else answers  # type: ignore[arg-type]


async def _wait_for_all(waiting: Sequence[Awaitable[None]], failure: BarnabasError | None) -> None:
    """Wait for the parts of a request that is not answered, whatever becomes of one.

    :param failure: what went wrong already.
    :raises BarnabasError: the first of all that went wrong.
    """
    settled = await asyncio.gather(*waiting, return_exceptions=True)
    for error in (failure, *settled):
        if error is not None:
            raise error
