"""The request scheduler, which shares the event loop among requests, and decides when requests run, and which run
together.

Long work is a generator that yields wherever other work may run (`run_slice`, `finish`), or a coroutine that awaits
`pause` regularly. In each iteration of the event loop, all long work together gets about `SLICE_S`. Unfinished work
waits in a queue, and each later iteration continues the first entry. So a short request waits only a few milliseconds,
even if other clients send many expensive requests.

A small request runs immediately, and a long request runs in slices. If many clients send a burst-prone request at the
same time, these requests are spread over several iterations. For some APIs, consecutive requests run together as a run,
and requests that are too large for a run are divided into pieces (`RunRules`). As in Kafka, a request with an
unsupported API or version ends the connection with one log line. There is no response format that both sides support.

When a request waits, it releases the memory of its frame, and only counts with the memory that it still needs
(`ConnectionContext.release_frame`). A waiting task must not have a reference to the frame.

Used from the event loop's thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from itertools import islice
from types import GeneratorType
from typing import Any, TypeVar

from barnabas.broker.authentication import ConnectionAuthentication, ListenerAuthentication
from barnabas.broker.pipeline.call import (
    ENTRIES_PER_STEP,
    WAITING_BYTES,
    WAITING_ENTRY_BYTES,
    Call,
    ConnectionState,
    LaterReply,
    ListenerName,
    Measured,
    Received,
    Reply,
    RequestTimer,
    RunCall,
    RunRules,
    ServedApi,
    ServedApis,
    Steps,
    decode_in_slices,
    encode,
    encode_in_slices,
    encode_run,
    received,
)
from barnabas.broker.pipeline.chain import Chain, RequestCounts, Stage
from barnabas.errors import AuthenticationError, BarnabasError, MalformedMessageError, UnsupportedVersionError
from barnabas.net.server_connection import Answer, ConnectionContext, Frame, FrameReply
from barnabas.protocol.codec import RecordsSpan, RequestHeader, RequestTemplates, decode_request, read_request_header
from barnabas.security.principal import ANONYMOUS, DistinguishedName, Principal

T = TypeVar("T")

SLICE_S = 0.002
SHORT_TURNS = 8
"""The maximum number of short queue entries (single requests or responses) that run in one iteration of the event loop.
"""


class Unfinished:
    """The type of the result that `run_slice` returns for unfinished work."""


UNFINISHED = Unfinished()


class CooperativeScheduler:
    """Shares the time of one event loop among requests.

    :param now_s: returns monotonic seconds.
    :param call_soon: calls a function in the next iteration of the event loop. None means `call_soon` of the running
        loop.
    """

    def __init__(
        self, now_s: Callable[[], float], call_soon: Callable[[Callable[[], None]], object] | None = None
    ) -> None:
        self.now_s = self._now_s = now_s
        self._call_soon = call_soon
        # each entry: future, its result, True for short work
        self._line: deque[tuple[asyncio.Future[Any], Any, bool]] = deque()
        self._is_open = False  # True if long work has already run in this iteration
        self._ends_at_s = 0.0  # the end of the time for long work in this iteration
        self._wakes_left = 0
        self._wakes_again_s = -SLICE_S
        self._round_ends = False  # True if a call of `_end_round` is scheduled

    @property
    def waiting(self) -> int:
        """The number of entries in the queue."""
        return len(self._line)

    def is_over(self) -> bool:
        """Return whether the time for long work in this iteration of the event loop is used up."""
        if self._is_open:
            return self._now_s() >= self._ends_at_s
        self._open()
        return False

    def run_slice(self, steps: Generator[None, None, T], at_least: int = 1) -> T | Unfinished:
        """Run steps until they end, or until the time for long work in this iteration is used up.

        :param at_least: the number of steps that run even if the time is used up.
        :returns: the result of the steps, or `UNFINISHED`.
        """
        try:
            for _ in range(at_least - 1):
                next(steps)
            if not self._is_open:
                self._open()
            while True:
                next(steps)
                if self.is_over():
                    return UNFINISHED
        except StopIteration as end:
            result: T = end.value
            return result

    async def finish(self, steps: Generator[None, None, T]) -> T:
        """Run all steps, and let other work run in between. The first step runs without a pause."""
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await self.pause()
        while isinstance(found := self.run_slice(steps), Unfinished):
            await self._stand_in_line()
        return found

    async def pause(self, *, is_short: bool = False) -> None:
        """Let other work run if the time for long work in this iteration is used up.

        :param is_short: True if the remaining work takes only a fraction of `SLICE_S`. One iteration runs several short
            queue entries.
        """
        if self.is_over():
            await self._stand_in_line(is_short=is_short)

    async def each(self, entries: Iterable[T]) -> AsyncIterator[T]:
        """Yield entries, and let other work run in between."""
        for count, entry in enumerate(entries, start=1):
            yield entry
            if not count % ENTRIES_PER_STEP:
                await self.pause()

    def wake(self, waiter: asyncio.Future[Any], result: Any = None) -> None:
        """Set the result of a future, now or later in the queue.

        Completing many futures in one iteration would block the event loop.
        """
        now_s = self._now_s()
        if now_s >= self._wakes_again_s:
            self._wakes_again_s = now_s + 2 * SLICE_S
            self._wakes_left = SHORT_TURNS
        if self._wakes_left:
            self._wakes_left -= 1
            _resolve(waiter, result)
        else:
            self._line.append((waiter, result, True))
            self._let_round_end()

    async def _stand_in_line(self, *, is_short: bool = False) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((turn, None, is_short))
        self._let_round_end()
        await turn
        self._open()

    def _open(self) -> None:
        self._is_open = True
        self._ends_at_s = self._now_s() + SLICE_S
        self._let_round_end()

    def _let_round_end(self) -> None:
        if not self._round_ends:
            self._round_ends = True
            call_soon = self._call_soon or asyncio.get_running_loop().call_soon
            call_soon(self._end_round)

    def _end_round(self) -> None:
        """Begin the next iteration with the first queue entry, or with the first few entries if they are short."""
        self._round_ends = self._is_open = False
        turns_left = SHORT_TURNS
        while self._line and (turns_left == SHORT_TURNS or (turns_left and self._line[0][2])):
            waiter, result, is_short = self._line.popleft()
            if _resolve(waiter, result):
                turns_left = turns_left - 1 if is_short else 0
        if self._line:
            self._let_round_end()


def _resolve(waiter: asyncio.Future[Any], result: Any) -> bool:
    """Set the result of a future, unless it is done."""
    if waiter.done():
        return False
    waiter.set_result(result)
    return True


WITHOUT_SESSION = frozenset({17, 18, 36})
"""The keys of the APIs for clients that have not authenticated: SaslHandshake, ApiVersions, SaslAuthenticate."""

AT_ONCE_BYTES_MAX = 20_000
"""The maximum size in bytes of a frame that is decoded without pauses. A larger frame may have many entries."""

DECODING_STEPS_AT_ONCE = 16
"""The number of decoding steps that run without a pause. They suffice for large batches of a few partitions."""

RUN_BYTES_MAX = 1024 * 1024
RUN_ENTRIES_MAX = 2048
"""The limits of a run. A run ends at the first request that exceeds `RUN_BYTES_MAX` or `RUN_ENTRIES_MAX`."""

REPEATED_ENTRIES = 2
"""The number of entries in a request that a template recognizes: one topic and one partition."""


class RequestPipeline:
    """The request pipeline of one listener.

    :param served: the served APIs, with handlers that are bound to their parts (`Parts.bind_all`).
    :param listener: the name of the listener.
    :param authentication: the authentication with SASL; None for a listener without SASL.
    :param principal_of: returns the principal of a client from the subject of its certificate; None if all clients
        without SASL are anonymous.
    :param stages: the stages before the one that measures requests, in the order in which calls enter them.
    """

    def __init__(
        self,
        served: ServedApis,
        scheduler: CooperativeScheduler,
        listener: ListenerName,
        authentication: ListenerAuthentication | None = None,
        principal_of: Callable[[DistinguishedName], Principal] | None = None,
        stages: Sequence[Stage] = (),
    ) -> None:
        self.authentication = authentication
        self._principal_of = principal_of
        self.served = served
        self.scheduler = scheduler
        self.listener = listener
        self.counts = RequestCounts(scheduler.now_s)
        self._stages = tuple(stages)
        self.chain = Chain([*stages, self.counts])

    def use_quotas(self, stage: Stage | None) -> None:
        """Add the stage of quotas before the other stages, or remove it, so that it costs nothing without quotas.

        Requests that another stage refuses count, too.
        """
        self.chain.use([*([] if stage is None else [stage]), *self._stages, self.counts])

    def new_handler(self, link: ConnectionContext) -> ConnectionRequests:
        """Return the object that runs the requests of a new connection."""
        subject = link.endpoints.subject
        principal = ANONYMOUS if subject is None or self._principal_of is None else self._principal_of(subject)
        authentication = None
        if self.authentication is not None:
            authentication = self.authentication.of_connection(link.endpoints)
        return ConnectionRequests(self, ConnectionState(self.listener, link, principal, authentication))


class ConnectionRequests:
    """Runs the requests of one connection in order."""

    __slots__ = ("_chain", "_now_s", "_scheduler", "_served", "_waiting", "state")

    def __init__(self, pipeline: RequestPipeline, state: ConnectionState) -> None:
        self._now_s = pipeline.scheduler.now_s
        self._waiting = pipeline.counts.waiting
        self._served = pipeline.served
        self._scheduler = pipeline.scheduler
        self._chain = pipeline.chain
        self.state = state

    def note_request_behind(self) -> None:
        """Complete the waiting fetch, because another request has arrived on the connection."""
        if self.state.delayed_fetch is not None:
            self.state.delayed_fetch.complete()

    def note_gone(self) -> None:
        """Do nothing, because no state outlives the connection."""

    def carry_out(self, frames: Sequence[Frame]) -> FrameReply:  # noqa: PLR0911 - one return for each kind of request
        """Run the first request, and possibly some of the requests that follow it.

        :raises MalformedMessageError: the first frame is not a valid request, or exceeds its budget.
        :raises UnsupportedVersionError: the API or version is not supported.
        :raises BarnabasError: the request failed, and its error cannot be sent in a response. The connection must end.
        """
        frame, state = frames[0], self.state
        if state.timer is not None and not state.timer.is_running:
            return self._carry_out_measured(frames, state.timer)
        if state.authentication is not None and not state.authentication.is_valid(self._now_s()):
            return self._authenticate(state.authentication, frame)
        template = state.templates.frame
        if template is not None and (repeated := template.recognise(frame)) is not None:
            kind = repeated.template
            now_s = self._now_s()
            call = Call(kind.served, kind.version, repeated.correlation_id, kind.client_id, state, len(frame), now_s)
            call.has_passed = self._chain.passes(call, kind.request)
            return self._carry_out(call, repeated if call.has_passed else repeated.in_full())
        header = read_request_header(frame)
        found = self._served.get(header.api_key)
        if found is None or header.api_version not in found.versions:
            return self._refuse_version(header, found)
        if found.ends_with_client and state.link.is_gone:
            return FrameReply(1, [])
        if found.runs is not None:
            return self._carry_out_run(found, header, frames, found.runs)
        now_s = self._now_s()
        call = Call(found, header.api_version, header.correlation_id, header.client_id, state, len(frame), now_s)
        return self._decode_and_carry_out(call, header, frame)

    def _carry_out_measured(self, frames: Sequence[Frame], timer: RequestTimer) -> FrameReply:
        """Run requests, and measure the time that they use on the event loop."""
        timer.begin()
        try:
            reply = self.carry_out(frames)
        finally:
            timer.end()
        return reply if reply.later is None else reply._replace(later=Measured(reply.later, timer))

    def _authenticate(self, authentication: ConnectionAuthentication, frame: Frame) -> FrameReply:
        """Run a request of a client without a valid session.

        :raises AuthenticationError: the request needs a session. The connection must end.
        """
        if authentication.takes_raw_frames:
            return FrameReply(1, [], self._step_with_raw_frame(authentication, bytes(frame)), ends_with_client=True)
        header = read_request_header(frame)
        if header.api_key not in WITHOUT_SESSION:
            raise AuthenticationError("the client sent a request before it authenticated")
        served = self._served[header.api_key]
        if header.api_version not in served.versions:
            return self._refuse_version(header, served)
        call = Call(
            served, header.api_version, header.correlation_id, header.client_id, self.state, len(frame), self._now_s()
        )
        return self._carry_out(call, self._decode(call, header, frame))

    async def _step_with_raw_frame(self, authentication: ConnectionAuthentication, message: bytes) -> Answer:
        response, _ = await authentication.step(message)
        self.state.note_authentication(authentication)
        return [len(response).to_bytes(4, "big") + response]

    def _refuse_version(self, header: RequestHeader, served: ServedApi | None) -> FrameReply:
        if served is None:
            raise UnsupportedVersionError(f"API {header.api_key} is not served")
        if served.answers_any_version:
            now_s = self._now_s()
            return self._carry_out(Call(served, 0, header.correlation_id, header.client_id, self.state, 0, now_s), None)
        versions = f"{served.versions.start} to {served.versions.stop - 1}"
        name = served.api.name
        raise UnsupportedVersionError(f"{name} is served in versions {versions}, not {header.api_version}")

    # -- one request ---------------------------------------------------------------------------------------

    def _decode_and_carry_out(self, call: Call, header: RequestHeader, frame: Frame) -> FrameReply:
        served = call.served
        if len(frame) > AT_ONCE_BYTES_MAX:
            return self._in_slices(call, self._all_steps(call, decode_in_slices(served, header, frame, [])))
        if served.burst_prone and self._scheduler.is_over():
            return FrameReply(1, [], self._in_turn(call, header, bytes(frame)), served.ends_with_client)
        return self._carry_out(call, self._decode(call, header, frame))

    def _decode(self, call: Call, header: RequestHeader, frame: Frame | bytes) -> Any:
        try:
            return decode_request(call.served.api.request, header, frame)
        except BarnabasError as error:
            self._chain.fail(call, error)
            raise

    def _carry_out(self, call: Call, request: Any) -> FrameReply:
        """Run a decoded request."""
        reply = self._chain.carry_out(call, request)
        if reply.steps is not None:
            result = self._first_step(call, reply.steps)
            if isinstance(result, GeneratorType):
                return self._in_slices(call, self._encode_steps(call, result))
            reply = result if isinstance(result, Reply) else Reply(result)
        if isinstance(reply, LaterReply):
            return FrameReply(1, [], self._answer_later(call, reply), call.served.ends_with_client)
        return FrameReply(1, self._encode(call, reply.response))

    def _first_step(self, call: Call, steps: Steps[Any]) -> Any:
        """Run steps up to the first pause. Small requests have no pause, so this method usually completes them.

        :returns: the result, or the remaining steps.
        """
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        except BaseException as error:
            self._chain.fail(call, error)
            raise
        return steps

    def _encode(self, call: Call, response: Any) -> Answer:
        if type(response) is bytes:  # A template created the frame.
            self._chain.leave(call, response, len(response))
            return [response]
        try:
            if self._chain.settles:
                response = self._chain.settle_at_once(call, response)
            answer = encode(call, response)
        except BarnabasError as error:
            self._chain.fail(call, error)
            raise
        self._chain.leave(call, response, sum(map(len, answer)))
        return answer

    def _all_steps(self, call: Call, decoding: Steps[Any]) -> Steps[Answer | LaterReply]:
        """Decode a request, run it, and encode its response."""
        try:
            request = yield from decoding
        except BaseException as error:
            self._chain.fail(call, error)
            raise
        if call.served.runs is not None:
            return (yield from self._steps_in_pieces(call, request, call.served.runs))
        return (yield from self._reply_steps(call, self._chain.carry_out(call, request)))

    def _reply_steps(self, call: Call, reply: Reply) -> Steps[Answer | LaterReply]:
        if isinstance(reply, LaterReply):
            return reply
        return (yield from self._encode_steps(call, reply.response if reply.steps is None else reply.steps))

    def _encode_steps(self, call: Call, response: Any) -> Steps[Answer | LaterReply]:
        """Encode a response, or the result of steps. Return a `LaterReply` unchanged.

        :raises MalformedMessageError: the response is too large.
        """
        try:
            if isinstance(response, GeneratorType):
                response = yield from response
            if isinstance(response, Reply):
                if isinstance(response, LaterReply):
                    return response
                response = response.response
            if self._chain.settles and type(response) is not bytes:
                response = yield from self._chain.settle(call, response)
            answer = yield from encode_in_slices(call, response)
        except BaseException as error:
            self._chain.fail(call, error)
            raise
        self._chain.leave(call, response, sum(map(len, answer)))
        return answer

    def _in_slices(self, call: Call, steps: Steps[Answer | LaterReply]) -> FrameReply:
        """Run steps until the time of this iteration is used up, and the remaining steps later."""
        result = self._scheduler.run_slice(steps)
        if isinstance(result, list):
            return FrameReply(1, result)
        later = self._finish(call, steps) if isinstance(result, Unfinished) else self._answer_later(call, result)
        return FrameReply(1, [], later, call.served.ends_with_client)

    async def _finish(self, call: Call, steps: Steps[Answer | LaterReply]) -> Answer:
        result = await self._scheduler.finish(steps)
        return result if isinstance(result, list) else await self._answer_later(call, result)

    async def _in_turn(self, call: Call, header: RequestHeader, frame: bytes) -> Answer:
        """Run a burst-prone request when it reaches the head of the queue."""
        await self._scheduler.pause(is_short=True)
        reply = self._carry_out(call, self._decode(call, header, frame))
        del frame
        return reply.answer if reply.later is None else await reply.later

    async def _answer_later(self, call: Call, reply: LaterReply) -> Answer:
        self._waiting[call.served.key] += 1
        try:
            await self._wait_without_frame(call, reply)
            response = await reply.later
        except BaseException as error:
            self._chain.fail(call, error)
            raise
        finally:
            self._waiting[call.served.key] -= 1
        if isinstance(response, GeneratorType):
            response = self._first_step(call, response)
            if not isinstance(response, GeneratorType):
                return self._encode(call, response)
        result = await self._scheduler.finish(self._encode_steps(call, response))
        assert isinstance(result, list), "a handler waits once"
        return result

    async def _wait_without_frame(self, call: Call, reply: LaterReply) -> None:
        """Wait until no work needs the frame of a request, then release the frame."""
        if reply.before:
            await asyncio.wait(reply.before)
        kept_bytes = call.size if reply.kept_bytes is None else reply.kept_bytes
        fits = call.connection.link.release_frame(WAITING_BYTES + len(call.client_id or "") + kept_bytes)
        if not fits and reply.end is not None:
            reply.end()

    # -- runs and pieces -----------------------------------------------------------------------------------

    def _carry_out_run(
        self, served: ServedApi, header: RequestHeader, frames: Sequence[Frame], rules: RunRules
    ) -> FrameReply:
        frame = frames[0]
        version, correlation_id = header.api_version, header.correlation_id
        call = RunCall(served, version, correlation_id, header.client_id, self.state, len(frame), self._now_s())
        call.request_count, call.left_count = 1, 0
        known = self.state.templates.batches(served, version, header.client_id)
        first: Received | None = known.recognise(frame)
        if first is not None and not self._chain.passes(call, first[0]):
            first = None  # a stage has to change the request, so decode it with its record bytes
        if first is None:
            spans: list[RecordsSpan] = []
            request = self._decode_some(call, header, frame, spans)
            if isinstance(request, GeneratorType):
                return FrameReply(1, [], self._finish(call, self._all_steps(call, request)))
            if rules.must_be_in_pieces(request, len(frame)) or not self._chain.passes(call, request):
                return self._in_slices(call, self._steps_in_pieces(call, request, rules))
            first = received(served, frame, spans, request, correlation_id, known)
        run = self._run(first, frames, call, known, rules)
        call.request_count, call.has_passed = len(run), True
        reply = self._chain.carry_out(call, run)
        responses = reply.response or ()
        ids = [each for _, _, each in run]
        if responses:
            self._chain.settle_run(call, responses)
        answer = encode_run(call.version, responses, ids)
        if responses:
            self._chain.leave_run(call, responses, len(answer[0]) if answer else 0)
        if not isinstance(reply, LaterReply):
            return FrameReply(len(run), answer)
        call.left_count = len(responses)
        return FrameReply(len(run), answer, self._answer_run_later(call, reply, ids[len(responses) :]))

    def _run(
        self, first: Received, frames: Sequence[Frame], call: Call, known: RequestTemplates, rules: RunRules
    ) -> list[Received]:
        """Return the first request and the following requests of the same run.

        The run ends before a request that does not belong to it, is invalid, or is so large that it must be divided.
        """
        run = [first]
        request = first[0]
        size, entries = len(frames[0]), rules.entry_count(request)
        for frame in islice(frames, 1, rules.requests_max(request)):
            size += len(frame)
            if size > RUN_BYTES_MAX or entries > RUN_ENTRIES_MAX:
                break
            found: Received | None = known.recognise(frame)
            if found is not None:
                entries += REPEATED_ENTRIES
            elif (found := self._another(call, frame, known, rules)) is not None:
                entries += rules.entry_count(found[0])
            else:
                break
            if found[0] is not request and not (
                rules.go_together(request, found[0]) and self._chain.passes(call, found[0])
            ):
                break
            run.append(found)
            call.size = size
        return run

    def _another(self, call: Call, frame: Frame, known: RequestTemplates, rules: RunRules) -> Received | None:
        """Decode a frame, and return its request, or None if the request does not belong to the run."""
        spans: list[RecordsSpan] = []
        try:
            header = read_request_header(frame)
            kind = header.api_key, header.api_version, header.client_id
            if kind != (call.served.api.key, call.version, call.client_id):
                return None
            request = self._decode_at_once(call.served, header, frame, spans)
        except MalformedMessageError:
            return None
        if isinstance(request, GeneratorType) or rules.must_be_in_pieces(request, len(frame)):
            return None
        return received(call.served, frame, spans, request, header.correlation_id, known)

    def _decode_some(self, call: Call, header: RequestHeader, frame: Frame, spans: list[RecordsSpan]) -> Any:
        try:
            return self._decode_at_once(call.served, header, frame, spans)
        except BarnabasError as error:
            self._chain.fail(call, error)
            raise

    def _decode_at_once(self, served: ServedApi, header: RequestHeader, frame: Frame, spans: list[RecordsSpan]) -> Any:
        """Decode a request. If this takes long, return the remaining decoding steps."""
        if len(frame) <= AT_ONCE_BYTES_MAX:
            return decode_request(served.api.request, header, frame, spans)
        steps = decode_in_slices(served, header, frame, spans)
        request = self._scheduler.run_slice(steps, DECODING_STEPS_AT_ONCE)
        return steps if isinstance(request, Unfinished) else request

    async def _answer_run_later(self, call: RunCall, reply: LaterReply, correlation_ids: Sequence[int]) -> Answer:
        count = call.request_count - call.left_count
        self._waiting[call.served.key] += count
        try:
            await self._wait_without_frame(call, reply)
            responses = await reply.later
        except BaseException as error:
            self._chain.fail(call, error)
            raise
        finally:
            self._waiting[call.served.key] -= count
        self._chain.settle_run(call, responses)
        answer = encode_run(call.version, responses, correlation_ids)
        self._chain.leave_run(call, responses, len(answer[0]) if answer else 0)
        return answer

    def _steps_in_pieces(self, call: Call, request: Any, rules: RunRules) -> Steps[Answer | LaterReply]:
        """Pass a request through the stages as a whole, process it in pieces, and encode the response."""
        try:
            entered = yield from self._chain.enter(call, request)
            reply = entered if isinstance(entered, Reply) else (yield from self._pieces(call, entered, rules))
        except BaseException as error:
            self._chain.fail(call, error)
            raise
        return (yield from self._reply_steps(call, reply))

    def _pieces(self, call: Call, request: Any, rules: RunRules) -> Steps[Reply]:
        """Process the pieces of a request one by one.

        :raises BarnabasError: a piece failed, and its error cannot be sent in a response. The connection must end.
        """
        replies: list[tuple[Reply, bool]] = []
        failure: BarnabasError | None = None
        for piece, continues in rules.pieces(request):
            yield
            try:
                reply = call.served.handle([(piece, None, call.correlation_id)], call)
            except BarnabasError as error:
                failure = failure or error
            else:
                replies.append((reply, continues))
        waiting = [reply.later for reply, _ in replies if reply.later is not None]
        if not rules.wants_answer(request):
            return LaterReply(_wait_for_all(waiting, failure)) if waiting or failure else Reply()
        if failure:
            raise failure
        if not waiting:
            return Reply(rules.join([(reply.response[0], continues) for reply, continues in replies]))
        kept_bytes = WAITING_ENTRY_BYTES * rules.entry_count(request)
        before = list({future for reply, _ in replies if isinstance(reply, LaterReply) for future in reply.before})
        return LaterReply(_join_later(replies, waiting, rules), kept_bytes, before=before)


async def _join_later(replies: Sequence[tuple[Reply, bool]], waiting: Sequence[Awaitable[Any]], rules: RunRules) -> Any:
    """Wait for the later responses to the pieces of a request, and join all responses into one."""
    settled = iter(await asyncio.gather(*waiting))
    pieces = [((reply.response or next(settled))[0], continues) for reply, continues in replies]
    return rules.join(pieces)


async def _wait_for_all(waiting: Sequence[Awaitable[Any]], failure: BarnabasError | None) -> None:
    """Wait for all pieces of a request that expects no response, even if one piece fails.

    :param failure: the error of a piece that has already failed.
    :raises BarnabasError: the first error of all pieces.
    """
    settled = await asyncio.gather(*waiting, return_exceptions=True)
    for error in (failure, *settled):
        if isinstance(error, BaseException):
            raise error
