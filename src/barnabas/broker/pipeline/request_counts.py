"""The stage that counts requests: by API, version, client and error code, for each listener.

It counts a request with the error code of its response, or with `NO_RESPONSE` if the connection ended over the request
or before its response. A frame whose API or version is not served is no call, and does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas.broker.pipeline.call import Call, RunCall
from barnabas.broker.pipeline.chain import Stage
from barnabas.protocol.response_errors import NO_ERROR, ReadError, error_reader

NO_RESPONSE = -2
"""Stands for an error code where no response left. Kafka's own codes begin with -1."""

CLIENTS_MAX = 1_000
CLIENT_ID_CHARACTERS_MAX = 255
OTHER_CLIENTS = "(others)"
"""Stands for the clients beyond `CLIENTS_MAX`, and for those with longer ids: clients choose their ids freely."""


class RequestKind(NamedTuple):
    """What requests of one kind have in common."""

    api_key: int
    version: int
    client_id: str | None
    error_code: int


class RequestCounts(Stage):
    """Counts the requests of one listener. Used from the event loop's thread only."""

    def __init__(self) -> None:
        # A list of one number for each kind: a request looks its kind up once.
        self._counts: dict[tuple[int, int, str | None, int], list[int]] = {}
        self._clients: set[str | None] = set()
        self._readers: dict[tuple[type, int], ReadError] = {}

    def counts(self) -> dict[RequestKind, int]:
        """Return how many requests of each kind there have been."""
        return {RequestKind(*kind): count for kind, [count] in self._counts.items()}

    def leave(self, call: Call, response: Any) -> None:
        if response is None or type(response) is bytes:
            error_code = NO_ERROR  # a frame that was made from a template tells of no error
        else:
            try:
                error_code = self._readers[type(response), call.version](response)
            except KeyError:
                error_code = self._reader(type(response), call.version)(response)
        self._count(call, error_code, 1)

    def leave_run(self, call: RunCall, responses: Sequence[Any]) -> None:
        without_error = 0
        for response in responses:
            if response is None or type(response) is bytes:
                without_error += 1
            else:
                self.leave(call, response)
        if without_error:
            self._count(call, NO_ERROR, without_error)

    def fail(self, call: Call, error: BaseException) -> None:
        del error
        self._count(call, NO_RESPONSE, call.request_count - call.left_count)

    def _count(self, call: Call, error_code: int, count: int) -> None:
        counted = self._counts.get((call.served.key, call.version, call.client_id, error_code))
        if counted is None:
            kind = call.served.key, call.version, self._known(call.client_id), error_code
            counted = self._counts.setdefault(kind, [0])
        counted[0] += count

    def _known(self, client_id: str | None) -> str | None:
        """Return a client id, or what stands for it if there are too many."""
        if client_id not in self._clients:
            if len(self._clients) >= CLIENTS_MAX or len(client_id or "") > CLIENT_ID_CHARACTERS_MAX:
                return OTHER_CLIENTS
            self._clients.add(client_id)
        return client_id

    def _reader(self, response: type, version: int) -> ReadError:
        read = self._readers[response, version] = error_reader(response, version)
        return read
