"""What a scenario plays on: a broker of its own, topics that it makes, connections that it opens."""

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
    """A broker in a folder of its own; killed in the end, since nobody wants its data.

    :param deadline: when what waits gives up; moved by who runs the scenario.
    :param environment: variables of the broker beside those of this process.
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
        """Let the broker be stopped cleanly meanwhile."""
        self.broker.stop()
        yield
        self.broker.__enter__()

    def connect(self) -> Connection:
        """Open a connection, closed in the end."""
        connection = Connection(self.broker.port, self.deadline)
        self._connections.append(connection)
        return connection

    def ask(self, message: object, version: int, response: type[T]) -> T:
        """Ask on a connection of its own.

        :raises RuntimeError: the broker refused.
        """
        connection = Connection(self.broker.port, self.deadline)
        try:
            return connection.ask(message, version, response)
        finally:
            connection.close()

    def create_topics(self, names: Sequence[str], partitions: int = 1, **config: str) -> None:
        """Make topics; settings have underscores for dots."""
        self.ask(create_topics_request(names, partitions, **config), 4, CreateTopicsResponse)

    def create_topic(self, partitions: int = 1, **config: str) -> None:
        """Make the topic that most scenarios have."""
        self.create_topics([TOPIC], partitions, **config)

    def folder(self, partition: int = 0, topic: str = TOPIC) -> Path:
        """Return the folder of a partition."""
        return self.data / f"{topic}-{partition}"


def create_topics_request(names: Sequence[str], partitions: int = 1, **config: str) -> CreateTopicsRequest:
    """Return the request that makes topics, all alike."""
    settings = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in config.items()]
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=settings)
            for name in names
        ],
        timeout_ms=CREATE_TIMEOUT_MS,
    )


Act = Callable[[], str]
"""What is measured. It returns, in a few words, what came of it."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Something that one client does while another one only wants to be answered.

    :param title: a line for the table.
    :param prepare: makes all that is needed, and returns what is then measured.
    :param settings: of the broker, by field name.
    :param program: what Python runs as the broker.
    """

    name: str
    title: str
    prepare: Callable[[Stage], Act]
    settings: Mapping[str, str] = field(default_factory=dict)
    program: Sequence[str] = BARNABAS
