"""Calls: the decoding of requests, the declaration of served APIs, the replies of handlers, and the encoding of
responses.

A handler declares the API that it serves. ApiVersions and the pipeline use this declaration:

    @serves(HeartbeatRequest)
    def heartbeat(groups: GroupService, request: HeartbeatRequest, call: Call) -> HeartbeatResponse: ...

The parameters before `request` and `call` are parts of the broker, with the names in `barnabas.broker.parts`. They are
bound once, when the broker starts (`ServedApi.bind`). The pipeline calls each handler as `handle(request, call) ->
Reply`. `serves` converts the result of the handler to a reply:

- A function returns its response, or a `Reply`, which may contain a later response.
- A coroutine function responds later. While it waits, the request counts with its full size, without record data.
- A generator function may take long. It yields after each `ENTRIES_PER_STEP` entries, so that other requests can run
  (`barnabas.broker.pipeline.scheduler`). It returns its response or a `Reply`.

With `runs`, a handler gets a `Run` instead of a request: consecutive requests on one connection with the same API
version. The response in its reply is a list with one response per request.

A request has a budget of array entries, and of bytes without record data. If a request exceeds its budget, the broker
closes the connection and logs one line. A large frame is decoded in slices. Templates are decoder caches. A request
that a template recognizes passes the same stages as any other request.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from barnabas.broker.security_log import RequestSource
from barnabas.errors import MalformedMessageError
from barnabas.net.server_connection import Answer, Frame
from barnabas.protocol.apis import Api, api_of
from barnabas.protocol.codec import (
    RecordsSpan,
    RequestHeader,
    RequestTemplates,
    decode_request_in_slices,
    response_frame,
    response_frame_in_slices,
)
from barnabas.protocol.compiler import EntryBudget
from barnabas.protocol.declare import message_of
from barnabas.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from barnabas.broker.authentication import ConnectionAuthentication
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.refused_batches import RefusedBatches
    from barnabas.net.server_connection import ConnectionContext


R = TypeVar("R")
Steps = Generator[None, None, R]
"""A generator for long work. It yields wherever other work may run, and returns its result."""

ENTRIES_PER_STEP = 32
"""The number of entries that long work processes before it yields. Each entry takes some microseconds."""
LAST_OF_STEP = ENTRIES_PER_STEP - 1


def is_pause_due(number: int) -> bool:
    """Return whether a generator should yield at this entry. It never yields at the first entry."""
    return number % ENTRIES_PER_STEP == LAST_OF_STEP


WAITING_BYTES = 2_048
"""The estimated memory in bytes for the task and the futures of a waiting request."""

WAITING_ENTRY_BYTES = 256
"""The estimated memory in bytes of a waiting request for each topic and partition in its response."""


class Reply:
    """The reply of a handler: a response now, a response later (`LaterReply`, `StepsReply`), or no response.

    The response to a run is a list with one item per request. An item is None if the request has no response, or bytes
    if a template created the response frame. Some first requests of a run may have responses now, and the other
    requests later.
    """

    __slots__ = ("response",)

    later: Awaitable[Any] | None = None
    steps: Steps[Any] | None = None

    def __init__(self, response: Any = None) -> None:
        self.response = response


class LaterReply(Reply):
    """A response that is available later.

    :param later: an awaitable of the response, or of the steps that create it.
    :param kept_bytes: the memory of the waiting request in bytes, in addition to `WAITING_BYTES`. None means the size
        of the frame.
    :param end: ends the wait. It is called if waiting requests use too much memory.
    :param before: futures of work that needs the frame. The frame is released when they are done.
    :param response: the responses to the first requests of a run.
    """

    __slots__ = ("before", "end", "kept_bytes", "later")

    later: Awaitable[Any]

    def __init__(
        self,
        later: Awaitable[Any],
        kept_bytes: int | None = None,
        end: Callable[[], None] | None = None,
        before: Sequence[asyncio.Future[Any]] = (),
        response: Any = None,
    ) -> None:
        self.response = response
        self.later = later
        self.kept_bytes = kept_bytes
        self.end = end
        self.before = before


class StepsReply(Reply):
    """A reply that consists of steps. The steps return the response, or another reply."""

    __slots__ = ("steps",)

    def __init__(self, steps: Steps[Any]) -> None:
        self.response = None
        self.steps = steps


ENTRIES_MAX = 50_000
"""The maximum number of array entries in a request. It is sufficient for twice the names of 10,000 topics."""

BYTES_MAX = 4 * 1024 * 1024
"""The maximum size in bytes of a request without its record data.

A decoded request may need many times its size in memory.
"""

HandlerFunction = Callable[..., Any]
"""A handler function. Its parameters are parts of the broker, a request or a run, and the call."""


class RunRules(Protocol):
    """The rules of an API whose requests may be combined into runs, or divided into pieces."""

    def requests_max(self, first: Any) -> int:
        """Return the maximum number of requests in a run that begins with this request."""
        ...

    def go_together(self, first: Any, other: Any) -> bool:
        """Return whether a request may be in the run that begins with another request."""
        ...

    def wants_answer(self, request: Any) -> bool:
        """Return whether the client expects a response to a request."""
        ...

    def entry_count(self, request: Any) -> int:
        """Return the number of topics and partitions in a request."""
        ...

    def only_partition(self, request: Any) -> Any:
        """Return the data for the only partition of a request, or None if the request does not have exactly one
        partition.
        """
        ...

    def must_be_in_pieces(self, request: Any, size: int) -> bool:
        """Return whether a request of this size must be divided into pieces."""
        ...

    def pieces(self, request: Any) -> Iterator[tuple[Any, bool]]:
        """Yield a request for each piece, in order, and True if the piece continues the last topic of the previous
        piece.
        """
        ...

    def join(self, responses: Sequence[tuple[Any, bool]]) -> Any:
        """Join the responses to the pieces of a request into one response."""
        ...


@dataclass(frozen=True, slots=True)
class ServedApi:
    """An API, and the handler that serves all its declared versions."""

    api: Api
    key: int
    """The key of the API."""
    function: HandlerFunction
    """The handler function, without bound parts."""
    handle: HandlerFunction
    """The handler. After `bind`, it is a function that takes a request and a call, and returns a `Reply`."""
    runs: RunRules | None = None
    """The rules of runs, or None if the handler takes single requests."""
    ends_with_client: bool = False
    """True if the request is cancelled when its connection closes. Other requests are completed."""
    burst_prone: bool = False
    """True if many clients are likely to send this request at the same moment.

    The scheduler spreads such requests over time, so that other requests do not have to wait for all of them.
    """
    answers_any_version: bool = False
    """True if a request with an unsupported version gets a version 0 response.

    The handler then gets None instead of the request.
    """
    entries_max: int = ENTRIES_MAX
    bytes_max: int = BYTES_MAX

    @property
    def versions(self) -> range:
        """The advertised versions."""
        return self.api.versions

    @property
    def parts(self) -> list[str]:
        """The names of the broker's parts that the handler needs."""
        return _parts_of(self.function)

    def bind(self, parts: object) -> ServedApi:
        """Return a copy of this API with a handler that is bound to its parts."""
        given = [getattr(parts, name) for name in self.parts]
        return replace(self, handle=_replying(self.function, given)) if given else self


@functools.cache
def _parts_of(function: HandlerFunction) -> list[str]:
    """Return the names of the parameters for parts.

    The result is cached, because inspecting all handlers would slow down each start.
    """
    return [*inspect.signature(function).parameters][:-2]


ServedApis: TypeAlias = Mapping[int, ServedApi]
"""The served APIs, by API key."""


def serves(
    request: type,
    *,
    ends_with_client: bool = False,
    burst_prone: bool = False,
    answers_any_version: bool = False,
    runs: RunRules | None = None,
    entries_max: int = ENTRIES_MAX,
    bytes_max: int = BYTES_MAX,
) -> Callable[[HandlerFunction], ServedApi]:
    """Declare that a function serves the API of `request` in all declared versions. See `ServedApi`.

    :param runs: if not None, the function gets runs that follow these rules.
    :param entries_max: the maximum number of entries in all arrays of a request.
    :param bytes_max: the maximum size of a request in bytes, without record data.
    """
    api = api_of(request)
    return lambda function: ServedApi(
        api,
        api.key,
        function,
        _replying(function, ()),
        runs,
        ends_with_client,
        burst_prone,
        answers_any_version,
        entries_max,
        bytes_max,
    )


def _replying(function: HandlerFunction, given: Sequence[Any]) -> HandlerFunction:
    """Bind the first arguments of `function`, and return a function that converts its results to replies."""
    bound = functools.partial(function, *given)
    if inspect.iscoroutinefunction(function):
        return lambda *asked: LaterReply(bound(*asked))
    if inspect.isgeneratorfunction(function):
        return lambda *asked: StepsReply(bound(*asked))
    if function.__annotations__.get("return") in {Reply, Reply.__name__}:
        return bound

    if given:

        def reply_bound(request: Any, call: Any) -> Reply:
            found = bound(request, call)
            return found if isinstance(found, Reply) else Reply(found)

        return reply_bound

    def reply(*asked: Any) -> Reply:
        found = bound(*asked)
        return found if isinstance(found, Reply) else Reply(found)

    return reply


class FrameTemplate(Protocol):
    """A request that serves as a template, because later frames are likely to repeat its bytes."""

    served: ServedApi
    version: int
    client_id: str | None
    request: Any
    """The decoded request of the template. Repetitions concern the same resources."""


class RepeatedRequest(Protocol):
    """A request that repeats a template. The handler receives this object instead of a decoded request."""

    @property
    def template(self) -> FrameTemplate:
        """The template that recognized the request."""
        ...

    @property
    def correlation_id(self) -> int: ...

    def in_full(self) -> Any:
        """Return the full request, as decoded from its frame."""
        ...


class RecogniseFrame(Protocol):
    """A template that recognizes the frames of repeated requests."""

    def recognise(self, frame: Frame) -> RepeatedRequest | None:
        """Return the request if its frame repeats the template, or None if the frame must be decoded."""
        ...


class ConnectionTemplates:
    """The templates of one connection, for repeated requests."""

    __slots__ = ("_batches", "_client_id", "frame")

    def __init__(self) -> None:
        self.frame: RecogniseFrame | None = None
        """The template for whole frames that a handler has created, or None."""
        self._batches: RequestTemplates | None = None
        self._client_id: str | None = None

    def batches(self, served: ServedApi, version: int, client_id: str | None) -> RequestTemplates:
        """Return the templates for requests with this version and client id that differ only in their record
        batches.
        """
        known = self._batches
        if known is None or known.version != version or self._client_id != client_id:
            flexible = message_of(served.api.request).flexible(version)
            known = self._batches = RequestTemplates(version, flexible=flexible)
            self._client_id = client_id
        return known


class ListenerName(NamedTuple):
    """The name of a listener, as in Kafka's settings.

    :ivar serves_brokers: True for a listener that serves other brokers only.
    """

    name: str
    security_protocol: str = "PLAINTEXT"
    serves_brokers: bool = False


CLIENTS = ListenerName("PLAINTEXT")
"""The listener for clients if `listeners` is not set."""
BROKERS = ListenerName("REPLICATION", serves_brokers=True)
"""The listener for brokers if `inter.broker.listener.name` is not set."""


class WaitingRequest(Protocol):
    """A waiting request that an event other than its own can complete."""

    def complete(self) -> None:
        """Send the response to the request now."""
        ...


class RequestTimer:
    """Measures the time for which the requests of one connection use the event loop.

    :param now_s: returns monotonic seconds.
    :param generation: the number of changes of quotas before this measurement.
    """

    __slots__ = ("_began_s", "_now_s", "_used_s", "generation")

    def __init__(self, now_s: Callable[[], float], generation: int = 0) -> None:
        self.generation = generation
        self._now_s = now_s
        self._used_s = 0.0
        self._began_s: float | None = None

    @property
    def is_running(self) -> bool:
        return self._began_s is not None

    def begin(self) -> None:
        """Begin to measure, because the work on a request begins or continues."""
        self._began_s = self._now_s()

    def end(self) -> None:
        """End the measurement, because the request is complete or waits."""
        if self._began_s is not None:
            self._used_s += self._now_s() - self._began_s
            self._began_s = None

    def take_s(self) -> float:
        """Return the time in seconds since the last call."""
        used_s, self._used_s = self._used_s, 0.0
        if self._began_s is not None:
            now_s = self._now_s()
            used_s += now_s - self._began_s
            self._began_s = now_s
        return used_s


class Measured:
    """Awaits the rest of a request, and measures the time of its steps, but not of its waits."""

    __slots__ = ("_later", "_timer")

    def __init__(self, later: Awaitable[Any], timer: RequestTimer) -> None:
        self._later = later
        self._timer = timer

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._later.__await__()
        step: Callable[[], Any] = functools.partial(next, steps)
        while True:
            self._timer.begin()
            try:
                awaited = step()
            except StopIteration as end:
                return end.value
            finally:
                self._timer.end()
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - a cancellation, which the request handles
                step = functools.partial(steps.throw, error)
            else:
                step = functools.partial(next, steps)


class ConnectionState:
    """The state of one connection. Each field has one writer, and all other code only reads it.

    :param listener: the listener that accepted the connection.
    :param link: the connection object of the network layer.
    :param principal: the principal of the client, before an authentication with SASL.
    :param authentication: the authentication with SASL; None on a listener without SASL.
    """

    __slots__ = (
        "access",
        "authentication",
        "delayed_fetch",
        "has_refused_follower",
        "host",
        "link",
        "listener",
        "local_host",
        "principal",
        "refused_batches",
        "templates",
        "throttle_ms",
        "timer",
    )

    def __init__(
        self,
        listener: ListenerName,
        link: ConnectionContext,
        principal: Principal = ANONYMOUS,
        authentication: ConnectionAuthentication | None = None,
    ) -> None:
        self.listener = listener
        self.link = link
        self.host = link.endpoints.host
        """The client's address, without its port."""
        self.local_host = link.endpoints.local_host
        """The broker's address of this connection, without its port."""
        self.principal = principal
        """The principal of the client. Written by the handler of SaslAuthenticate."""
        self.authentication = authentication
        """The authentication with SASL; None on a listener without SASL."""
        self.access: Access | None = None
        """The permissions of the client. Written by the authorization stage."""
        self.templates = ConnectionTemplates()
        """The templates of this connection. The decoder and some handlers add templates."""
        self.refused_batches: RefusedBatches | None = None
        """The rejected batches of this connection. Written by the Produce handler."""
        self.has_refused_follower = False
        """True if a rejected follower has been logged. Written by the handler of follower fetches."""
        self.throttle_ms = 0
        """The time for which the client must wait because of its quotas, according to the current call."""
        self.timer: RequestTimer | None = None
        """Measures the time of the client's requests, while its quotas limit this time."""
        self.delayed_fetch: WaitingRequest | None = None
        """The follower's waiting fetch, which the next request completes. Written by the handler of follower fetches.
        """

    def note_authentication(self, authentication: ConnectionAuthentication) -> None:
        """Take over the principal after a successful step of an authentication; admit the client if it is complete."""
        if authentication.session_ends_s:
            self.principal = authentication.principal
            self.link.admit()

    def begin_throttling(self, timer: RequestTimer | None) -> None:
        """Begin a call of a client with quotas.

        :param timer: measures the time of the client's requests, while its quotas limit this time.
        """
        self.throttle_ms = 0
        self.timer = timer

    def throttle(self, time_ms: int) -> None:
        """Read nothing from the client for some time, which the response contains, too."""
        self.throttle_ms = max(self.throttle_ms, time_ms)
        self.link.mute(time_ms / 1000)

    @property
    def address(self) -> str:
        """The client's host and port, for log lines."""
        return self.link.endpoints.address

    @property
    def is_gone(self) -> bool:
        """True if the connection is closed."""
        return self.link.is_gone


class Call:
    """A request that the broker is processing.

    :param served: the API.
    :param size: the size of the frame in bytes.
    :param began_s: the monotonic time in seconds at which the pipeline began to process the request.
    """

    __slots__ = (
        "access",
        "began_s",
        "client_id",
        "connection",
        "correlation_id",
        "has_passed",
        "merge",
        "served",
        "size",
        "version",
    )

    request_count = 1
    """The number of requests in the call."""
    left_count = 0
    """The number of requests in the call that already have responses."""

    def __init__(
        self,
        served: ServedApi,
        version: int,
        correlation_id: int,
        client_id: str | None,
        connection: ConnectionState,
        size: int = 0,
        began_s: float = 0.0,
    ) -> None:
        self.served = served
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.size = size
        self.began_s = began_s
        self.has_passed = False
        """True if all stages let the request pass unchanged, which was checked before the call entered them."""
        self.access: Access | None = None
        """The permissions of the client. It is None without ACLs, or after a refusal."""
        self.merge: Callable[[Any], Any] | None = None
        """Adds refused parts of the request to the response."""

    def note_access(self, access: Access, merge: Callable[[Any], Any] | None = None) -> None:
        """Note the permissions of the client, and the refused parts of the request."""
        self.access, self.merge = access, merge

    @property
    def source(self) -> RequestSource:
        """The sender of the request and its API, for the security log."""
        own = self.connection
        return RequestSource(own.principal, own.link.endpoints, own.listener.name, self.client_id, self.served.api.name)


class RunCall(Call):
    """The call of a run. It has the correlation id of the first request, and the total size of all requests."""

    __slots__ = ("left_count", "request_count")


Received: TypeAlias = "tuple[Any, memoryview | None, int]"
"""A request in a run, its record bytes, and its correlation id.

The record bytes are None if the request object contains them. A request object for one partition does not contain them,
because it may represent many requests that differ only in their record bytes.
"""

Run: TypeAlias = "Sequence[Received]"
"""Consecutive requests on one connection with the same API version, which a handler processes together."""


def decode_in_slices(served: ServedApi, header: RequestHeader, frame: Frame, spans: list[RecordsSpan]) -> Steps[Any]:
    """Decode a request in steps, within its budget.

    :param spans: receives the positions of record bytes.
    :raises MalformedMessageError: the bytes are not a valid request, or the request is too large.
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
        raise MalformedMessageError(f"a {name} request of {size} bytes without record data (at most {limit})")


def received(
    served: ServedApi,
    frame: Frame,
    spans: Sequence[RecordsSpan],
    request: Any,
    correlation_id: int,
    known: RequestTemplates,
) -> Received:
    """Return a decoded request as a part of a run.

    If it contains one batch, make a template of it, without the record bytes.
    """
    assert served.runs is not None
    data = served.runs.only_partition(request)
    if data is None or len(spans) != 1:
        return request, None, correlation_id
    _, start, end = spans[0]
    # Drop the record bytes, because they would keep the frame in memory as long as the template exists.
    data.records = b""
    known.learn(frame, spans[0], request)
    return request, memoryview(frame)[start:end], correlation_id


ANSWER_BYTES_MAX = 100_000_000
"""The maximum size of a response in bytes without record data.

It is librdkafka's default of `receive.message.max.bytes`.
"""


def encode(call: Call, response: Any) -> Answer:
    """Encode a response, and return its frame."""
    return response_frame(response, call.version, call.correlation_id)


def encode_in_slices(call: Call, response: Any) -> Steps[Answer]:
    """Encode a response in steps, and return its frame. The response is None if the request has no response.

    :raises MalformedMessageError: the response is too large.
    """
    if response is None:
        return []
    if type(response) is bytes:
        return [response]
    answer: Answer = yield from response_frame_in_slices(response, call.version, call.correlation_id, ANSWER_BYTES_MAX)
    return answer


def encode_run(version: int, responses: Sequence[Any], correlation_ids: Sequence[int]) -> Answer:
    """Encode the responses to some requests of a run into one buffer. Return an empty list if there are no responses.

    Sending one buffer costs less than sending several.
    """
    answer: Answer = []
    for response, correlation_id in zip(responses, correlation_ids, strict=False):
        if type(response) is bytes:
            answer.append(response)
        elif response is not None:
            answer += response_frame(response, version, correlation_id)
    # this buffer has no file regions
    return [b"".join(answer)] if len(answer) > 1 else answer  # type: ignore[arg-type]
