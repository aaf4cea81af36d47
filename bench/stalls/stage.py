"""The environment of a scenario: its own broker, its topics and its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bench.broker_process import BARNABAS, MeasuredBroker
from bench.stalls.connection import Connection, Deadline

T = TypeVar("T")
TOPIC = "clicks"
CREATE_TIMEOUT_MS = 120_000


class Stage:
    """A broker with its own directory. The broker is killed at the end, because its data are not needed.

    :param deadline: the deadline of all waits, which the caller may move.
    :param environment: variables of the broker in addition to the environment of this process.
    """

    def __init__(
        self, folder: Path, deadline: Deadline, scenario: Scenario, environment: Mapping[str, str] | None = None
    ) -> None:
        self.data = folder / "data"
        self.broker = MeasuredBroker(self.data, scenario.program, environment=environment, **scenario.settings)
        self.deadline = deadline
        self._connections: list[Connection] = []

    def __enter__(self) -> Self:
        self.broker.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections:
            connection.close()
        self.broker.kill()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the broker cleanly for the duration of the block."""
        self.broker.stop()
        yield
        self.broker.__enter__()

    def connect(self) -> Connection:
        """Open a connection. It is closed at the end of the scenario."""
        connection = Connection(self.broker.port, self.deadline)
        self._connections.append(connection)
        return connection

    def ask(self, message: object, version: int, response: type[T]) -> T:
        """Send a request on a new connection.

        :raises RuntimeError: if the broker returns an error.
        """
        connection = Connection(self.broker.port, self.deadline)
        try:
            return connection.ask(message, version, response)
        finally:
            connection.close()

    def create_topics(self, names: Sequence[str], partitions: int = 1, **config: str) -> None:
        """Create topics. Settings have underscores instead of dots."""
        self.ask(create_topics_request(names, partitions, **config), 4, CreateTopicsResponse)

    def create_topic(self, partitions: int = 1, **config: str) -> None:
        """Create the topic that most scenarios use."""
        self.create_topics([TOPIC], partitions, **config)

    def folder(self, partition: int = 0, topic: str = TOPIC) -> Path:
        """Return the partition directory."""
        return self.data / f"{topic}-{partition}"


def create_topics_request(names: Sequence[str], partitions: int = 1, **config: str) -> CreateTopicsRequest:
    """Return the request that creates topics with equal settings."""
    settings = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in config.items()]
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=settings)
            for name in names
        ],
        timeout_ms=CREATE_TIMEOUT_MS,
    )


Act = Callable[[], str]
"""The measured part of a scenario. It returns the result as text."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load by one client while another client only sends pings.

    :param title: the description in the table.
    :param prepare: prepares the scenario, and returns its measured part.
    :param settings: broker settings by field name.
    :param program: the arguments of Python that start the broker.
    """

    name: str
    title: str
    prepare: Callable[[Stage], Act]
    settings: Mapping[str, str] = field(default_factory=dict)
    program: Sequence[str] = BARNABAS
