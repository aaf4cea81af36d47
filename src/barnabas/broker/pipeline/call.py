"""A call: a request of a connection from its frame to the frame of its answer, the API that serves it, and the reply.

A handler declares the API that it serves once. ApiVersions and the pipeline follow from this declaration:

    @serves(HeartbeatRequest)
    def heartbeat(groups: GroupService, request: HeartbeatRequest, call: Call) -> HeartbeatResponse: ...

The parameters before request and call are parts of the broker, by their names in `barnabas.broker.parts`. The handler
receives them once, when the broker starts (`ServedApi.bind`).

The pipeline calls every handler as `handle(request, call) -> Reply`. `serves` makes the reply from the result of the
handler:

- a function returns its response, or a `Reply` with a later response;
- a coroutine function replies later. While it waits, the request counts with its whole size besides record data;
- a generator function may take long. It yields after about `ENTRIES_PER_STEP` entries and returns its response or a
  `Reply`. Other requests run in between (`barnabas.broker.pipeline.scheduler`).

With `runs`, a handler takes a `Run` instead of a request: requests of one version that came in a row on one connection.
The response in its reply is a list with one response for each request.

A request has a budget: entries of its arrays, and bytes besides record data. A request above its budget ends the
connection with one line in the log. A large frame is decoded in slices.

Templates are caches of the decoding. A request that a template recognises passes the same stages as any other.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

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

if TYPE_CHECKING:
    from barnabas.broker.refused_batches import RefusedBatches
    from barnabas.net.server_connection import ConnectionContext


R = TypeVar("R")
Steps = Generator[None, None, R]
"""Work that may be long: it yields wherever it may pause, and returns its result."""

ENTRIES_PER_STEP = 32
"""Long work pauses after this many entries, each of which takes some microseconds."""
LAST_OF_STEP = ENTRIES_PER_STEP - 1


def is_pause_due(number: int) -> bool:
    """Return whether a generator that has done so many entries is to yield; not before the first."""
    return number % ENTRIES_PER_STEP == LAST_OF_STEP


WAITING_BYTES = 2_048
"""The bytes of the task and the futures of any waiting request."""

WAITING_ENTRY_BYTES = 256
"""The bytes that a waiting request keeps for each topic or partition of its response."""


class Reply:
    """The reply of a handler: a response now, or (`LaterReply`, `StepsReply`) later, or none.

    The response to a run is a list with one response for each request: None for a request without an answer, bytes for
    a frame that a template made. The first requests of a run may have responses now, and the others later.
    """

    __slots__ = ("response",)

    later: Awaitable[Any] | None = None
    steps: Steps[Any] | None = None

    def __init__(self, response: Any = None) -> None:
        self.response = response


class LaterReply(Reply):
    """A response that comes later.

    :param later: returns the response, or the steps that make it.
    :param kept_bytes: the bytes that the wait keeps of the request besides `WAITING_BYTES`; None: the size of the
        frame.
    :param end: ends the wait. Called if waiting requests keep too many bytes.
    :param before: futures of work that needs the frame. The wait begins when they are done.
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
    """Work that ends with the response, or with another reply."""

    __slots__ = ("steps",)

    def __init__(self, steps: Steps[Any]) -> None:
        self.response = None
        self.steps = steps


ENTRIES_MAX = 50_000
"""The entries of all arrays of a request: enough to name each of 10,000 topics twice."""

BYTES_MAX = 4 * 1024 * 1024
"""The bytes of a request besides its record data. Each of them may cost many bytes of memory."""

HandlerFunction = Callable[..., Any]
"""A function of parts of the broker, a request or a run, and its call."""


class RunRules(Protocol):
    """The rules of an API whose requests run together (a run), or in pieces."""

    def requests_max(self, first: Any) -> int:
        """Return the limit of requests in a run that begins with this request."""
        ...

    def go_together(self, first: Any, other: Any) -> bool:
        """Return whether a request may be in the run that begins with another one."""
        ...

    def wants_answer(self, request: Any) -> bool:
        """Return whether a request is answered."""
        ...

    def entry_count(self, request: Any) -> int:
        """Return how many topics and partitions a request names."""
        ...

    def only_partition(self, request: Any) -> Any:
        """Return the data for the only partition of a request; None if the request does not name exactly one."""
        ...

    def must_be_in_pieces(self, request: Any, size: int) -> bool:
        """Return whether a request of this size has to run in pieces."""
        ...

    def pieces(self, request: Any) -> Iterator[tuple[Any, bool]]:
        """Yield a request for each part, in order, and whether it continues the last topic of the part before."""
        ...

    def join(self, responses: Sequence[tuple[Any, bool]]) -> Any:
        """Return the response to a request, made from the responses to its pieces."""
        ...


@dataclass(frozen=True, slots=True)
class ServedApi:
    """An API and the function that serves all declared versions of it."""

    api: Api
    key: int
    """The key of the API."""
    function: HandlerFunction
    """The handler without its parts."""
    handle: HandlerFunction
    """Returns a `Reply`; after `bind`, a function of a request and its call."""
    runs: RunRules | None = None
    """If not None, `handle` takes a run."""
    ends_with_client: bool = False
    """True if the request ends when its client is gone. All other requests run to their end."""
    burst_prone: bool = False
    """True if many clients are likely to send it at the same moment. Such requests take turns, so that other requests
    do not wait for all of them."""
    answers_any_version: bool = False
    """True if a version that is not served is answered too, in version 0, with None as the request."""
    entries_max: int = ENTRIES_MAX
    bytes_max: int = BYTES_MAX

    @property
    def versions(self) -> range:
        """The advertised versions."""
        return self.api.versions

    @property
    def parts(self) -> list[str]:
        """The names of the parts of the broker that the handler needs."""
        return _parts_of(self.function)

    def bind(self, parts: object) -> ServedApi:
        """Return this API with a handler that has its parts."""
        given = [getattr(parts, name) for name in self.parts]
        return replace(self, handle=_replying(self.function, given)) if given else self


@functools.cache
def _parts_of(function: HandlerFunction) -> list[str]:
    """Cached, because the look-ups for all APIs would slow down each start."""
    return [*inspect.signature(function).parameters][:-2]


ServedApis: TypeAlias = Mapping[int, ServedApi]
"""The served APIs, by key."""


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
    """Declare that a function serves the API of `request`, in all declared versions. See `ServedApi`.

    :param runs: if not None, the function takes runs, by these rules.
    :param entries_max: the limit of the entries in all arrays of a request.
    :param bytes_max: the limit of the bytes of a request besides record data.
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
    """Return a function with some arguments bound that converts results of `function` to replies."""
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
    """A request whose repetitions are recognised by their bytes."""

    served: ServedApi
    version: int
    client_id: str | None


class RepeatedRequest(Protocol):
    """A request that repeats another one. Its handler receives it instead of a decoded request."""

    @property
    def template(self) -> FrameTemplate:
        """The template that recognised it."""
        ...

    @property
    def correlation_id(self) -> int: ...


class RecogniseFrame(Protocol):
    """A template of whole frames."""

    def recognise(self, frame: Frame) -> RepeatedRequest | None:
        """Return the request of a frame; None if the frame must be decoded."""
        ...


class ConnectionTemplates:
    """The templates of one connection: requests that it sends again and again."""

    __slots__ = ("_batches", "_client_id", "frame")

    def __init__(self) -> None:
        self.frame: RecogniseFrame | None = None
        """The template that a handler made for the frames of its API."""
        self._batches: RequestTemplates | None = None
        self._client_id: str | None = None

    def batches(self, served: ServedApi, version: int, client_id: str | None) -> RequestTemplates:
        """Return the template of requests of one version and client that differ in their record batches only."""
        known = self._batches
        if known is None or known.version != version or self._client_id != client_id:
            flexible = message_of(served.api.request).flexible(version)
            known = self._batches = RequestTemplates(version, flexible=flexible)
            self._client_id = client_id
        return known


class ListenerName(NamedTuple):
    """A listener of the broker, as Kafka's settings name it."""

    name: str
    security_protocol: str = "PLAINTEXT"


CLIENTS = ListenerName("CLIENTS")
BROKERS = ListenerName("BROKERS")


class WaitingRequest(Protocol):
    """A request that waits, and that another event can complete."""

    def complete(self) -> None:
        """Answer the request now."""
        ...


class ConnectionState:
    """The state of one connection. One part of the broker writes each field; all others only read it.

    :param listener: the listener that accepted the connection.
    :param link: the connection, as the network layer has it.
    """

    __slots__ = (
        "delayed_fetch",
        "has_refused_follower",
        "host",
        "link",
        "listener",
        "local_host",
        "refused_batches",
        "templates",
    )

    def __init__(self, listener: ListenerName, link: ConnectionContext) -> None:
        self.listener = listener
        self.link = link
        self.host = link.endpoints.host
        """The client's address, without its port."""
        self.local_host = link.endpoints.local_host
        """The address of this machine at which the client arrived."""
        self.templates = ConnectionTemplates()
        """The requests that this connection repeats. Written by the decoding, and by handlers that teach it."""
        self.refused_batches: RefusedBatches | None = None
        """The batches that were refused for now. Written by the handler of Produce."""
        self.has_refused_follower = False
        """True if a refusal of a follower was logged. Written by the handler of the followers' Fetch."""
        self.delayed_fetch: WaitingRequest | None = None
        """The follower's fetch that waits; the next request completes it. Written by the handler of the followers'
        Fetch."""

    @property
    def address(self) -> str:
        """The client's host and port, for log lines."""
        return self.link.endpoints.address

    @property
    def is_gone(self) -> bool:
        """Return whether the connection has ended."""
        return self.link.is_gone


class Call:
    """A request that the broker carries out.

    :param served: the API.
    :param size: bytes of the frame.
    :param began_s: the monotonic time at which the pipeline began with it.
    """

    __slots__ = ("began_s", "client_id", "connection", "correlation_id", "served", "size", "version")

    request_count = 1
    """How many requests it stands for."""
    left_count = 0
    """How many of them have left already."""

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


class RunCall(Call):
    """Requests of a run; the correlation id is that of the first one, the size that of all of them."""

    __slots__ = ("left_count", "request_count")


Received: TypeAlias = "tuple[Any, memoryview | None, int]"
"""A request of a run, the record bytes that belong there, and its correlation id.

The record bytes are None where they stand in the request. They do not if it is for one partition: then the same object
may stand for many requests, which differ in their record bytes only."""

Run: TypeAlias = "Sequence[Received]"
"""Requests of one version that came one after the other on a connection, and that a handler carries out together."""


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
    """Return the frames of the responses to some requests of a run, as one piece of memory; no piece without answers.

    The fewer pieces, the less it costs to send them.
    """
    answer: Answer = []
    for response, correlation_id in zip(responses, correlation_ids, strict=False):
        if type(response) is bytes:
            answer.append(response)
        elif response is not None:
            answer += response_frame(response, version, correlation_id)
    return [b"".join(answer)] if len(answer) > 1 else answer  # type: ignore[arg-type]  # it has no file regions
