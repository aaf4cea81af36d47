"""The templates of one connection: requests that it sends again and again.

Templates are caches of the decoding. A request that a template recognises passes the same stages as any other.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.broker.pipeline.served_api import ServedApi
from barnabas.net.server_connection import Frame
from barnabas.protocol.codec import RequestTemplates
from barnabas.protocol.declare import message_of


class FrameTemplate(Protocol):
    """A request whose repetitions are recognised by their bytes."""

    served: ServedApi
    version: int
    client_id: str | None


class RepeatedRequest(Protocol):
    """A request that repeats another one. The handler of its API takes it in place of a decoded one."""

    @property
    def template(self) -> FrameTemplate:
        """What has recognised it."""
        ...

    @property
    def correlation_id(self) -> int: ...


class RecogniseFrame(Protocol):
    """Recognises whole frames."""

    def recognise(self, frame: Frame) -> RepeatedRequest | None:
        """Return the request of a frame; None if it has to be decoded."""
        ...


class ConnectionTemplates:
    """What one connection is known to repeat."""

    __slots__ = ("_batches", "_client_id", "frame")

    def __init__(self) -> None:
        self.frame: RecogniseFrame | None = None
        """Recognises the frames of the API whose handler has taught it."""
        self._batches: RequestTemplates | None = None
        self._client_id: str | None = None

    def batches(self, served: ServedApi, version: int, client_id: str | None) -> RequestTemplates:
        """Return what recognises requests of one version and client that differ in their record batches only."""
        known = self._batches
        if known is None or known.version != version or self._client_id != client_id:
            flexible = message_of(served.api.request).flexible(version)
            known = self._batches = RequestTemplates(version, flexible=flexible)
            self._client_id = client_id
        return known
