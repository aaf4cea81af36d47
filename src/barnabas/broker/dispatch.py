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
from barnabas.errors import UnsupportedVersionError
from barnabas.net.server_connection import Answer, Frame, Peer
from barnabas.protocol.frames import (
    API_VERSIONS_KEY,
    RequestHeader,
    decode_request,
    read_request_header,
    response_frame,
)

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


async def _answer_later(response: Awaitable[Any], header: RequestHeader) -> Answer:
    return response_frame(await response, header.api_version, header.correlation_id)
