"""From a request frame to its handler and back to a response frame.

An API or version that is not served ends the connection with one line in the log, as in Kafka: there is no
format in which both sides could agree on an answer. ApiVersions is the exception that tells clients what is
served: it is answered in version 0, with UNSUPPORTED_VERSION and the list (KIP-511).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.broker.api import Context, ServedApi
from barnabas.broker.handlers import SERVED
from barnabas.broker.handlers.api_versions import unsupported_version
from barnabas.errors import MalformedMessageError, UnsupportedVersionError
from barnabas.net.server_connection import Answer, Frame, Peer
from barnabas.protocol.frames import (
    API_VERSIONS_KEY,
    RequestHeader,
    decode_request,
    read_request_header,
    response_frame,
)

PRODUCE_KEY, JOIN_GROUP_KEY, SYNC_GROUP_KEY = 0, 11, 14

REQUEST_BYTES_MAX = 1024 * 1024
"""The largest request of an API that carries no data: each byte of such a one may cost many bytes of memory."""

DATA_REQUEST_BYTES_MAX = {JOIN_GROUP_KEY: 16 * 1024 * 1024, SYNC_GROUP_KEY: 16 * 1024 * 1024}
"""APIs whose requests carry data that is not looked into. Produce has no limit but that of the listener."""

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


class Dispatcher:
    """The listener's handler: carries out one request frame at a time."""

    def __init__(self, broker: Broker, served: Mapping[int, ServedApi] = SERVED) -> None:
        self._broker = broker
        self._served = served

    def __call__(self, frame: Frame, peer: Peer) -> Answer | Awaitable[Answer]:
        """Answer a request.

        :raises MalformedMessageError: the frame is no request.
        :raises UnsupportedVersionError: its API or version is not served.
        """
        header = read_request_header(frame)
        served = self._served.get(header.api_key)
        if served is None or header.api_version not in served.versions:
            return self._not_served(header, served)
        _check_size(header, len(frame))
        request = decode_request(served.api.request, header, frame)
        context = Context(header.api_version, header.client_id, peer)
        response = served.handle(self._broker, request, context)
        if response is None:
            return None
        if isinstance(response, served.api.response):
            return response_frame(response, header.api_version, header.correlation_id)
        return _answer_later(response, header)

    def _not_served(self, header: RequestHeader, served: ServedApi | None) -> Answer:
        if header.api_key == API_VERSIONS_KEY:
            return response_frame(unsupported_version(), 0, header.correlation_id)
        if served is None:
            raise UnsupportedVersionError(f"API {header.api_key} is not served")
        versions = f"{served.versions.start} to {served.versions.stop - 1}"
        name = served.api.name
        raise UnsupportedVersionError(f"{name} is served in versions {versions}, not {header.api_version}")


def _check_size(header: RequestHeader, size: int) -> None:
    limit = DATA_REQUEST_BYTES_MAX.get(header.api_key, REQUEST_BYTES_MAX)
    if size > limit and header.api_key != PRODUCE_KEY:
        raise MalformedMessageError(f"a request of {size} bytes to API {header.api_key} (at most {limit} are allowed)")


async def _answer_later(response: Awaitable[Any], header: RequestHeader) -> Answer:
    return response_frame(await response, header.api_version, header.correlation_id)
