"""The stages that every call passes in a fixed order, and the stage that measures requests.

A call enters each stage before its handler runs. A stage may change the request, or end the call with a reply. When the
handler has responded, each stage may change the response (`settle`), and leaves the call when the response is encoded.
Methods that a stage does not override cost nothing.

Requests that repeat a template, and requests in runs, cannot be changed. So the pipeline first asks the stages whether
they let such a request pass unchanged (`passes`). If not, the request is decoded in full, and processed alone.

`RequestCounts` counts the requests of each listener by API, version, client and error code. The error code is the error
code of the response, or `NO_RESPONSE` if the connection ended without a response. A frame with an unsupported API or
version is not counted. `RequestCounts` also measures the bytes and times of requests by API.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, MutableSequence, Sequence
from types import GeneratorType
from typing import Any, NamedTuple

from barnabas.broker.pipeline.call import Call, Reply, RunCall, Steps, StepsReply
from barnabas.metrics.metric import Observations
from barnabas.protocol.response_errors import NO_ERROR, ReadError, error_reader


class Stage:
    """A stage of the chain. Subclasses override the methods that they need."""

    def passes(self, call: Call, request: Any) -> bool:
        """Return whether a request may pass this stage unchanged. Called for requests of runs and of templates.

        :param request: a decoded request, without its record bytes.
        """
        del call, request
        return True

    def enter(self, call: Call, request: Any) -> Any:
        """Inspect a call before its handler runs.

        :param request: the decoded request, a run, or a `RepeatedRequest`. If `call.has_passed` is true, the request
            must continue unchanged.
        :returns: the request for the next stage, or a `Reply` if the call ends at this stage, or steps that return one
            of both. The stage may return a changed copy of the request.
        :raises BarnabasError: the connection must end.
        """
        del call
        return request

    def settle(self, call: Call, response: Any) -> Any:
        """Inspect a response before it is encoded. It is not called for frames that a template created.

        :param response: the response, or None for a request without a response.
        :returns: the response to encode, or steps that return it.
        """
        del call
        return response

    def settle_run(self, call: RunCall, responses: MutableSequence[Any]) -> None:
        """Inspect the responses to some requests of a run before they are encoded. Each may be None, or bytes.

        The stage may replace responses in the list.
        """

    def leave(self, call: Call, response: Any, size: int) -> None:
        """Inspect an encoded response.

        :param response: the response, or None for a request without a response, or bytes for a frame that a template
            created.
        :param size: the size of the frame in bytes, or 0 for a request without a response.
        """

    def leave_run(self, call: RunCall, responses: Sequence[Any], size: int) -> None:
        """Inspect the responses to some requests of a run.

        :param size: the size of the frames of all these responses, in bytes.
        """
        for response in responses:
            self.leave(call, response, size)
            size = 0

    def fail(self, call: Call, error: BaseException) -> None:
        """Inspect the error of a call without a response. The error also ends the connection."""


class Chain:
    """The stages that calls pass before and after their handlers.

    :param stages: the stages, in the order in which calls enter them. Responses are settled in the reverse order.
    """

    __slots__ = (
        "_entering",
        "_failing",
        "_leaving",
        "_leaving_runs",
        "_passing",
        "_settling",
        "_settling_runs",
        "leave",
        "settles",
    )

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.use(stages)

    def use(self, stages: Sequence[Stage]) -> None:
        """Replace the stages. Calls that have entered the old stages leave the new ones."""
        self._passing = [each.passes for each in stages if type(each).passes is not Stage.passes]
        self._entering = [each.enter for each in stages if type(each).enter is not Stage.enter]
        outwards = stages[::-1]
        self._settling = [each.settle for each in outwards if type(each).settle is not Stage.settle]
        self._settling_runs = [each.settle_run for each in outwards if type(each).settle_run is not Stage.settle_run]
        self.settles = bool(self._settling)
        """True if a stage overrides `settle`."""
        self._leaving = [each.leave for each in stages if type(each).leave is not Stage.leave]
        self.leave: Callable[[Call, Any, int], None] = self._leaving[0] if len(self._leaving) == 1 else self._leave_all
        """Passes a response through the stages.

        If only one stage overrides this method, it is the method of this stage.
        """
        self._leaving_runs = [each.leave_run for each in stages if type(each).leave is not Stage.leave]
        self._failing = [each.fail for each in stages if type(each).fail is not Stage.fail]

    def passes(self, call: Call, request: Any) -> bool:
        """Return whether all stages let a request pass unchanged."""
        for passes in self._passing:  # noqa: SIM110 - a generator would cost more
            if not passes(call, request):
                return False
        return True

    def enter(self, call: Call, request: Any) -> Steps[Any]:
        """Pass a call through the stages, in steps. Return the request for the handler, or a reply.

        :raises BarnabasError: the connection must end.
        """
        for enter in self._entering:
            request = enter(call, request)
            if type(request) is GeneratorType:
                request = yield from request
            if isinstance(request, Reply):
                break
        return request

    def carry_out(self, call: Call, request: Any) -> Reply:
        """Pass a call through the stages and its handler.

        :raises BarnabasError: the call failed, and its error cannot be sent in a response. The connection must end.
        """
        try:
            if self._entering:
                entering = self.enter(call, request)
                try:
                    next(entering)
                except StopIteration as end:
                    request = end.value
                else:
                    return StepsReply(self._carry_out_later(call, entering))
                if isinstance(request, Reply):
                    return request
            handled: Reply = call.served.handle(request, call)
        except BaseException as error:
            self.fail(call, error)
            raise
        return handled

    def _carry_out_later(self, call: Call, entering: Steps[Any]) -> Steps[Any]:
        """Complete the remaining steps of the stages, then run the handler. Return its response, or a reply."""
        yield
        entered = yield from entering
        reply: Reply = entered if isinstance(entered, Reply) else call.served.handle(entered, call)
        return reply if reply.steps is None else (yield from reply.steps)

    def settle(self, call: Call, response: Any) -> Steps[Any]:
        """Pass a response through the stages before it is encoded. Return the response to encode."""
        for settle in self._settling:
            response = settle(call, response)
            if type(response) is GeneratorType:
                response = yield from response
        return response

    def settle_at_once(self, call: Call, response: Any) -> Any:
        """Pass a small response through the stages before it is encoded. Return the response to encode."""
        steps = self.settle(call, response)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            return end.value

    def settle_run(self, call: RunCall, responses: MutableSequence[Any]) -> None:
        """Pass the responses to some requests of a run through the stages before they are encoded."""
        for settle_run in self._settling_runs:
            settle_run(call, responses)

    def _leave_all(self, call: Call, response: Any, size: int) -> None:
        for leave in self._leaving:
            leave(call, response, size)

    def leave_run(self, call: RunCall, responses: Sequence[Any], size: int) -> None:
        """Pass the responses to some requests of a run through the stages."""
        for leave in self._leaving_runs:
            leave(call, responses, size)

    def fail(self, call: Call, error: BaseException) -> None:
        """Pass the error of a call through the stages, if the call has no response."""
        for fail in self._failing:
            fail(call, error)


NO_RESPONSE = -2
"""The error code of requests without a response in the counters. Kafka's error codes begin at -1."""

TIME_BOUNDS_S = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)

CLIENTS_MAX = 1_000
CLIENT_ID_CHARACTERS_MAX = 255
OTHER_CLIENTS = "(others)"
"""The client id in the counters for all clients above `CLIENTS_MAX`, and for clients whose id is too long.

The limits exist because clients choose their ids.
"""


class RequestKind(NamedTuple):
    """The labels of a request counter."""

    api_key: int
    version: int
    client_id: str | None
    error_code: int


class ApiCounts:
    """The bytes and times of the requests to one API. Any thread may read them.

    :ivar request_bytes: the total size of request frames.
    :ivar response_bytes: the total size of response frames.
    """

    __slots__ = ("_times", "_total_s", "request_bytes", "response_bytes")

    def __init__(self) -> None:
        self.request_bytes = 0
        self.response_bytes = 0
        self._times = [0] * (len(TIME_BOUNDS_S) + 1)
        self._total_s = 0.0

    def note(self, count: int, size: int, response_size: int, took_s: float) -> None:
        """Count several requests with the same duration.

        :param size: the size of all these requests in bytes.
        :param response_size: the size of all their responses in bytes.
        """
        # Update the fields of the `Histogram` inline, because a method call per request would cost too much.
        self.request_bytes += size
        self.response_bytes += response_size
        self._times[bisect_left(TIME_BOUNDS_S, took_s)] += count
        self._total_s += took_s * count

    def times(self) -> Observations:
        """Return a histogram of request durations in seconds, with the bounds `TIME_BOUNDS_S`.

        A duration begins before decoding and ends when the response is encoded. It includes all waits.
        """
        return Observations(tuple(self._times), self._total_s)


class _Count:
    """The number of requests with the same labels, and the counters of their API."""

    __slots__ = ("api", "requests")

    def __init__(self, api: ApiCounts) -> None:
        self.requests = 0
        self.api = api


class RequestCounts(Stage):
    """Counts the requests of one listener. Used from the event loop's thread, but any thread may read the counters.

    :param now_s: returns monotonic seconds, as in `Call.began_s`.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        # Use one dict for all labels, so that each request needs only one lookup.
        self._counts: dict[tuple[int, int, str | None, int], _Count] = {}
        self._apis: dict[int, ApiCounts] = {}
        self.waiting: Counter[int] = Counter()
        """The number of waiting requests (for records, replicas or groups), by API key. The scheduler updates it."""
        self._clients: set[str | None] = set()
        self._readers: dict[tuple[type, int], ReadError] = {}

    def counts(self) -> dict[RequestKind, int]:
        """Return the number of requests by labels."""
        return {RequestKind(*kind): count.requests for kind, count in self._counts.copy().items()}

    def apis(self) -> dict[int, ApiCounts]:
        """Return the counters of each API that has been used, by API key."""
        return self._apis.copy()

    def leave(self, call: Call, response: Any, size: int) -> None:
        if response is None or type(response) is bytes:
            error_code = NO_ERROR  # Templates only create frames of successful responses.
        else:
            try:
                error_code = self._readers[type(response), call.version](response)
            except KeyError:
                error_code = self._reader(type(response), call.version)(response)
        self._count(call, error_code, 1, size)

    def leave_run(self, call: RunCall, responses: Sequence[Any], size: int) -> None:
        without_error = 0
        for response in responses:
            if response is None or type(response) is bytes:
                without_error += 1
            else:
                # Response bytes are counted per API. Count the bytes of the whole run for one of its responses.
                self.leave(call, response, size)
                size = 0
        if without_error:
            self._count(call, NO_ERROR, without_error, size)

    def fail(self, call: Call, error: BaseException) -> None:
        del error
        self._count(call, NO_RESPONSE, call.request_count - call.left_count, 0)

    def _count(self, call: Call, error_code: int, count: int, response_size: int) -> None:
        counted = self._counts.get((call.served.key, call.version, call.client_id, error_code))
        if counted is None:
            kind = call.served.key, call.version, self._known(call.client_id), error_code
            api = self._apis.setdefault(call.served.key, ApiCounts())
            counted = self._counts.setdefault(kind, _Count(api))
        counted.requests += count
        # Divide the bytes of a run equally among its requests.
        size = call.size if count == call.request_count else call.size * count // call.request_count
        counted.api.note(count, size, response_size, self._now_s() - call.began_s)

    def _known(self, client_id: str | None) -> str | None:
        """Return the client id to count, which is `OTHER_CLIENTS` above the limits."""
        if client_id not in self._clients:
            if len(self._clients) >= CLIENTS_MAX or len(client_id or "") > CLIENT_ID_CHARACTERS_MAX:
                return OTHER_CLIENTS
            self._clients.add(client_id)
        return client_id

    def _reader(self, response: type, version: int) -> ReadError:
        read = self._readers[response, version] = error_reader(response, version)
        return read
