"""How a handler says which API it serves: once, where it is written; ApiVersions and dispatch follow from it.

    @serves(HeartbeatRequest)
    def heartbeat(broker: Broker, request: HeartbeatRequest, context: Context) -> HeartbeatResponse: ...

A handler returns its response, or an awaitable of it where it has to wait, or None where the client wants none.

    @serves_runs(ProduceRequest)
    def produce(broker: Broker, run: Iterable[Repeated], context: Context) -> list[ProduceResponse]: ...

Such a one is given requests of the same version that came one after the other on a connection. It takes the first
of them, and as many of those behind it as it can carry out with it, and returns, in their order, what another handler
would return for each of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.net.server_connection import Peer
from barnabas.protocol.apis import APIS, Api
from barnabas.protocol.declare import message_of

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


class Context(NamedTuple):
    """What a handler may want to know besides the message."""

    version: int
    client_id: str | None
    peer: Peer


class Repeated(NamedTuple):
    """A request that came once or several times in a row."""

    request: Any
    records: list[memoryview]
    """If it has record bytes at exactly one place: what stood there each time. Else it came once, as it is."""

    @property
    def times(self) -> int:
        """How often it came."""
        return len(self.records) or 1


HandlerFunction = Callable[["Broker", Any, Context], Any]


@dataclass(frozen=True, slots=True)
class ServedApi:
    """An API and the function that serves all declared versions of it."""

    api: Api
    handle: HandlerFunction
    in_runs: bool = False
    """Whether `handle` takes requests that came in a row."""

    @property
    def versions(self) -> range:
        """The versions that are advertised, and answered."""
        return self.api.versions


def serves(request: type) -> Callable[[HandlerFunction], ServedApi]:
    """Declare that the function serves the API of `request`, in every version that is declared of it."""
    return lambda function: ServedApi(_api_of(request), function)


def serves_runs(request: type) -> Callable[[HandlerFunction], ServedApi]:
    """Declare the same of a function that takes several requests at once."""
    return lambda function: ServedApi(_api_of(request), function, in_runs=True)


def _api_of(request: type) -> Api:
    key = message_of(request).api_key
    assert key is not None
    return APIS[key]
