"""A call: a request on its way through the broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from barnabas.broker.pipeline.connection_state import ConnectionState
from barnabas.broker.pipeline.served_api import ServedApi


class Call:
    """A request that the broker carries out.

    :param served: the API.
    :param size: bytes of the frame.
    """

    __slots__ = ("client_id", "connection", "correlation_id", "served", "size", "version")

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
    ) -> None:
        self.served = served
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.size = size


class RunCall(Call):
    """Requests of a run; the correlation id and the size are those of the first one."""

    __slots__ = ("left_count", "request_count")


Received: TypeAlias = "tuple[Any, memoryview | None, int]"
"""A request of a run, the record bytes that belong there, and its correlation id.

The record bytes are None where they stand in the request. They do not if it is for one partition: then the same object
may stand for many requests, which differ in their record bytes only."""

Run: TypeAlias = "Sequence[Received]"
"""Requests of one version that came one after the other on a connection, and that a handler carries out together."""
