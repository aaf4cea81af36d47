"""How a handler says which API it serves: once, where it is written; ApiVersions and the pipeline follow from it.

    @serves(HeartbeatRequest)
    def heartbeat(groups: GroupService, request: HeartbeatRequest, call: Call) -> HeartbeatResponse: ...

Before request and call stand the parts of the broker that the handler works with, each under its name in
`barnabas.broker.parts`. The handler gets them once, when the broker starts (`ServedApi.bind`).

The pipeline calls every handler alike: `handle(request, call) -> Reply`. A handler may be written in three ways.
`serves` makes the reply of what it returns:

- a function returns its response, or a `Reply` whose response comes later;
- a coroutine function replies later. While it waits, the request counts with its whole size besides record data;
- a generator function may take long. It yields after each `ENTRIES_PER_STEP` entries or so, and returns its response or
  a `Reply` in the end. Others have their turn meanwhile (`barnabas.broker.cooperative_scheduler`).

With `runs` a handler takes a `Run` in place of a request: requests of the same version that came one after the other
on a connection. The response of its reply is a list with a response for each of them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from barnabas.broker.pipeline.reply import LaterReply, Reply, StepsReply
from barnabas.protocol.apis import Api, api_of

ENTRIES_MAX = 50_000
"""How many entries the arrays of a request may have in all: enough for each of 10,000 topics to be named twice."""

BYTES_MAX = 4 * 1024 * 1024
"""How large a request may be besides its record data: each byte of it may cost many bytes of memory."""

HandlerFunction = Callable[..., Any]
"""Takes parts of the broker, then a request or a run, and its call."""


class RunRules(Protocol):
    """What the scheduler must know of an API whose requests are carried out in runs, or in pieces."""

    def requests_max(self, first: Any) -> int:
        """Return how many requests a run has at most that begins with this one."""
        ...

    def go_together(self, first: Any, other: Any) -> bool:
        """Whether a request may be in the run that begins with another one."""
        ...

    def wants_answer(self, request: Any) -> bool:
        """Whether a request is answered."""
        ...

    def entry_count(self, request: Any) -> int:
        """Return how many topics and partitions a request names."""
        ...

    def only_partition(self, request: Any) -> Any:
        """Return what the request brings for the one partition that it names; None if it does not name exactly one."""
        ...

    def must_be_in_pieces(self, request: Any, size: int) -> bool:
        """Whether a request of so many bytes is too much to be carried out at once."""
        ...

    def pieces(self, request: Any) -> Iterator[tuple[Any, bool]]:
        """Yield requests for a part each, in order, and whether each continues the last topic of the one before."""
        ...

    def join(self, responses: Sequence[tuple[Any, bool]]) -> Any:
        """Return the response to a request of the responses to its pieces."""
        ...


@dataclass(frozen=True, slots=True)
class ServedApi:
    """An API and the function that serves all declared versions of it."""

    api: Api
    key: int
    """Of the API."""
    function: HandlerFunction
    """As it was written."""
    handle: HandlerFunction
    """Takes the same, and returns a `Reply`; once it is bound, a request and its call."""
    runs: RunRules | None = None
    """Not None: `handle` takes a run."""
    ends_with_client: bool = False
    """Whether what it does is of use to its client alone, so that it ends when that one is gone. All else that a client
    asked for is carried out, whether it is still there or not."""
    burst_prone: bool = False
    """Whether many clients are likely to send it at the same moment: then they take turns, and others need not stand
    behind all of them."""
    answers_any_version: bool = False
    """Whether a version that is not served is answered too, in version 0; `handle` then gets no request."""
    entries_max: int = ENTRIES_MAX
    bytes_max: int = BYTES_MAX

    @property
    def versions(self) -> range:
        """The versions that are advertised, and answered."""
        return self.api.versions

    @property
    def parts(self) -> list[str]:
        """The names of the broker's parts that the handler works with."""
        return _parts_of(self.function)

    def bind(self, parts: object) -> ServedApi:
        """Return the same with a handler that has its parts, and takes a request and its call."""
        given = [getattr(parts, name) for name in self.parts]
        return replace(self, handle=_replying(self.function, given)) if given else self


@functools.cache
def _parts_of(function: HandlerFunction) -> list[str]:
    """Looked up once: all of them together take as long as much else of a start."""
    return [*inspect.signature(function).parameters][:-2]


ServedApis: TypeAlias = Mapping[int, ServedApi]
"""By the key of their API."""


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
    """Declare that the function serves the API of `request`, in every version that is declared of it.

    :param ends_with_client: whether it ends when its client is gone; see `ServedApi`.
    :param burst_prone: whether many clients send it at the same moment.
    :param answers_any_version: whether a version that is not served is answered too.
    :param runs: not None: the function takes runs, by these rules.
    :param entries_max: how many entries the arrays of a request may have in all.
    :param bytes_max: how large a request may be.
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
    """Return a function that has some arguments already, and makes a reply of what `function` returns."""
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
