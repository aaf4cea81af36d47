"""How a handler says which API it serves: once, where it is written; ApiVersions and dispatch follow from it.

    @serves(HeartbeatRequest)
    def heartbeat(broker: Broker, request: HeartbeatRequest, context: Context) -> HeartbeatResponse: ...

A handler returns its response, or an awaitable of it where it has to wait, or None where the client wants none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.net.server_connection import Peer
from barnabas.protocol.apis import APIS, Api
from barnabas.protocol.declare import message_of

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler may want to know besides the message."""

    version: int
    client_id: str | None
    peer: Peer


HandlerFunction = Callable[["Broker", Any, Context], Any]


@dataclass(frozen=True, slots=True)
class ServedApi:
    """An API and the function that serves all declared versions of it."""

    api: Api
    handle: HandlerFunction

    @property
    def versions(self) -> range:
        """The versions that are advertised, and answered."""
        return self.api.versions


def serves(request: type) -> Callable[[HandlerFunction], ServedApi]:
    """Declare that the function serves the API of `request`, in every version that is declared of it."""

    def declare(function: HandlerFunction) -> ServedApi:
        key = message_of(request).api_key
        assert key is not None
        return ServedApi(APIS[key], function)

    return declare
