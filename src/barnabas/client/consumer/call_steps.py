"""The steps of a consumer's calls: waits, listener calls and background tasks.

A method of the consumer that may have to wait is written as a generator of steps. It yields a `Wait` or a
`ListenerCall`, and finally returns its result or raises. A driver (`sync_async_drivers`) blocks or awaits at each step,
and resumes the generator. A driver may resume a generator too early: the generator then checks its condition again, and
yields another `Wait`. A request to a broker is a `BackgroundTask`. The core submits the task, the background runs it,
and wakes the call when the task has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.fetcher import AssignedPartition
from barnabas.model import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

FOREVER_S: float = float("inf")

AssignmentChange = Literal["assigned", "revoked", "lost"]


class Wait(NamedTuple):
    """A step that waits until `until_s` (monotonic time), or until `Guard.wake_count` differs from `wake_count`."""

    until_s: float
    wake_count: int


@dataclass(eq=False, slots=True)
class ListenerCall:
    """A step that calls the application's rebalance listener. The driver reports the result to
    `ConsumerState.on_listener_called`.
    """

    change: AssignmentChange
    partitions: list[TopicPartition]
    done: bool = False
    error: BaseException | None = None
    goes_on: bool = False
    """True if the listener continues to run when the poll is cancelled. If False, the next poll calls the listener
    again.
    """


CallSteps = Generator[Wait | ListenerCall, None, T]


@dataclass(eq=False, slots=True, kw_only=True)
class BackgroundTask:
    """A task that the background runs, because it needs a broker."""

    done: bool = False
    error: BaseException | None = None
    abandoned: bool = False
    """True if no call waits for the task any more, so that the background may cancel it."""


@dataclass(eq=False, slots=True)
class Commit(BackgroundTask):
    """Commit offsets for the group."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    timeout_s: float | None = None
    done_with: Mapping[AssignedPartition, int] = field(default_factory=dict)
    """The offsets that auto-commit need not commit again once this commit succeeds."""
    in_hand: Mapping[AssignedPartition, int] = field(default_factory=dict)
    """The partitions in `done_with` whose current record this commit includes, with their versions."""


@dataclass(eq=False, slots=True)
class CommittedLookup(BackgroundTask):
    """Fetch committed offsets of the group."""

    partitions: list[TopicPartition]
    timeout_s: float | None = None
    answer: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Join(BackgroundTask):
    """Join the group's next generation."""

    partitions: list[TopicPartition] | None = None
    """The new assignment, or None if the member has lost its partitions. The consumer then calls the listener, and
    joins again.
    """


@dataclass(eq=False, slots=True)
class Leave(BackgroundTask):
    """Leave the group."""

    reason: str


@dataclass(eq=False, slots=True)
class Query(BackgroundTask):
    """A request that does not change the state of the consumer."""

    ask: Callable[[Cluster], Awaitable[Any]]
    answer: Any = None


class Guard(Protocol):
    """Guards the core (`with guard.lock: ...`), and wakes the application's calls and the background."""

    wake_count: int
    """The number of wake-ups of the application's calls."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """A re-entrant lock. Code holds it while it reads or changes the core's state."""
        ...

    def wake_application(self) -> None:
        """Wake all waiting calls. The caller must hold the guard."""
        ...

    def wake_background(self) -> None:
        """Wake the background, so that it checks for tasks."""
        ...
