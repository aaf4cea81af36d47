"""How a handler says which API it serves: once, where it is written; ApiVersions and dispatch follow from it.

    @serves(HeartbeatRequest)
    def heartbeat(groups: GroupShell, request: HeartbeatRequest, context: Context) -> HeartbeatResponse: ...

Before request and context stand the parts of the broker that the handler works with, each under its name in
`barnabas.broker.parts`. It is given them once, when the broker starts (`ServedApi.bind`).

A handler returns its response, or an awaitable of it where it has to wait, or None where the client wants none. While
it waits, the request counts with its whole size besides record data; a handler whose wait keeps less of the request, or
may be cut short, returns `Waiting`. One
that may be long is a generator, which yields after each `ENTRIES_PER_STEP` entries or so and returns one of these in
the end; or it awaits `turns.pause()` now and then. Others have their turn meanwhile (`barnabas.broker.turns`).

    @serves_runs(ProduceRequest)
    def produce(topics: Topics, run: Iterable[Received], context: Context) -> list[ProduceResponse]: ...

Such a one is given requests of the same version that came one after the other on a connection. It takes the first
of them, and as many of those behind it as it can carry out with it, and returns, in their order, what another handler
would return for each of these, or the whole frame of the answer where it knows a cheaper way to make it. Where all of
them wait for the same, it may return `AnsweredTogether`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from barnabas.net.server_connection import Peer
from barnabas.protocol.apis import APIS, Api
from barnabas.protocol.declare import message_of

R = TypeVar("R")
Steps = Generator[None, None, R]
"""What a handler that may be long is: it yields wherever it may pause, and returns its response."""

ENTRIES_PER_STEP = 32
"""So many entries, each of which takes some microseconds, are done between two pauses."""
LAST_OF_STEP = ENTRIES_PER_STEP - 1

ENTRIES_MAX = 50_000
"""How many entries the arrays of a request may have in all: enough for each of 10,000 topics to be named twice."""

BYTES_MAX = 4 * 1024 * 1024
"""How large a request may be besides its record data: each byte of it may cost many bytes of memory."""


def is_pause_due(number: int) -> bool:
    """Whether a generator that has done so many entries is to yield; not before the first."""
    return number % ENTRIES_PER_STEP == LAST_OF_STEP


class Context(NamedTuple):
    """What a handler may want to know besides the message."""

    version: int
    client_id: str | None
    peer: Peer


Received: TypeAlias = "tuple[Any, memoryview | None, int]"
"""A request, the record bytes that belong there, and its correlation id.

The record bytes are None where they stand in the request. They do not if it is for one partition: then the same object
may stand for many requests, which differ in their record bytes only."""


WAITING_BYTES = 2_048
"""What any waiting request keeps: its task and its futures."""

WAITING_ENTRY_BYTES = 256
"""What a waiting request keeps for each topic or partition that it still has to name."""


class Waiting(NamedTuple):
    """A response that has to wait, and does not need the frame of its request meanwhile."""

    response: Awaitable[Any]
    kept_bytes: int = 0
    """What the wait keeps of the request, besides `WAITING_BYTES`."""
    end: Callable[[], None] | None = None
    """Ends the wait: called where waiting requests keep as much as they may."""
    before: Sequence[asyncio.Future[Any]] = ()
    """What needs the frame, and ends first."""

    def __await__(self) -> Generator[Any, None, Any]:
        return self.response.__await__()


class AnsweredTogether(NamedTuple):
    """The answers to several requests in a row, which all have to wait for the same."""

    request_count: int
    frames: Awaitable[bytes]
    """The whole frames of the answers, one behind the other."""


HandlerFunction = Callable[..., Any]
"""Takes parts of the broker, then a request, or a run of requests, and its context."""


@dataclass(frozen=True, slots=True)
class ServedApi:
    """An API and the function that serves all declared versions of it."""

    api: Api
    handle: HandlerFunction
    in_runs: bool = False
    """Whether `handle` takes requests that came in a row."""
    ends_with_client: bool = False
    """Whether what it does is of use to its client alone, so that it ends when that one is gone. All else that a client
    asked for is carried out, whether it is still there or not."""
    comes_in_crowds: bool = False
    """Whether many clients are likely to send it at the same moment: then they take turns, and others need not stand
    behind all of them."""
    entries_max: int = ENTRIES_MAX
    bytes_max: int = BYTES_MAX

    @property
    def versions(self) -> range:
        """The versions that are advertised, and answered."""
        return self.api.versions

    @property
    def parts(self) -> list[str]:
        """The names of the broker's parts that the handler works with."""
        return _parts_of(self.handle)

    def bind(self, parts: object) -> ServedApi:
        """Return the same with a handler that has its parts, and takes a request and its context."""
        given = [getattr(parts, name) for name in _parts_of(self.handle)]
        return replace(self, handle=functools.partial(self.handle, *given)) if given else self


@functools.cache
def _parts_of(handle: HandlerFunction) -> list[str]:
    """Looked up once: all of them together take as long as much else of a start."""
    return [*inspect.signature(handle).parameters][:-2]


ServedApis: TypeAlias = Mapping[int, ServedApi]
"""By the key of their API."""


def serves(
    request: type,
    *,
    ends_with_client: bool = False,
    comes_in_crowds: bool = False,
    entries_max: int = ENTRIES_MAX,
    bytes_max: int = BYTES_MAX,
) -> Callable[[HandlerFunction], ServedApi]:
    """Declare that the function serves the API of `request`, in every version that is declared of it.

    :param ends_with_client: whether it ends when its client is gone; see `ServedApi`.
    :param comes_in_crowds: whether many clients send it at the same moment.
    :param entries_max: how many entries the arrays of a request may have in all.
    :param bytes_max: how large a request may be.
    """
    return lambda function: ServedApi(
        _api_of(request),
        function,
        ends_with_client=ends_with_client,
        comes_in_crowds=comes_in_crowds,
        entries_max=entries_max,
        bytes_max=bytes_max,
    )


def serves_runs(request: type) -> Callable[[HandlerFunction], ServedApi]:
    """Declare the same of a function that takes several requests at once."""
    return lambda function: ServedApi(_api_of(request), function, in_runs=True)


def _api_of(request: type) -> Api:
    key = message_of(request).api_key
    assert key is not None
    return APIS[key]
