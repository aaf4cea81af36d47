"""The vocabulary of a consumer's core: what a call waits for, and what the background does for it.

A call of the application that may wait is a generator of steps. It yields a `Wait` or a `ListenerCall`, and then
returns its result or raises. A driver (`sync_async_drivers`) blocks or awaits at each step, and resumes the generator.
A driver may resume early: the core looks again, and yields another `Wait`.

A request to a broker is a `BackgroundTask`. The core submits it, the background runs it, and its end wakes the call.
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
    """Resume at `until_s` (monotonic), or as soon as `Guard.wake_count` differs from `wake_count`."""

    until_s: float
    wake_count: int


@dataclass(eq=False, slots=True)
class ListenerCall:
    """Call the application's rebalance listener; report its end to `ConsumerState.on_listener_called`."""

    change: AssignmentChange
    partitions: list[TopicPartition]
    done: bool = False
    error: BaseException | None = None
    goes_on: bool = False
    """The listener runs on if the poll is cancelled. Otherwise the next poll calls the listener again."""


CallSteps = Generator[Wait | ListenerCall, None, T]


@dataclass(eq=False, slots=True, kw_only=True)
class BackgroundTask:
    """Something that needs a broker."""

    done: bool = False
    error: BaseException | None = None
    abandoned: bool = False
    """No call waits for the task; the background may cancel it."""


@dataclass(eq=False, slots=True)
class Commit(BackgroundTask):
    """Commit offsets for the group."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    timeout_s: float | None = None
    done_with: Mapping[AssignedPartition, int] = field(default_factory=dict)
    """The offsets that auto-commit need not commit again afterwards."""
    in_hand: Mapping[AssignedPartition, int] = field(default_factory=dict)
    """The versions of the partitions in `done_with`, where the commit includes the record in hand."""


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
    """The new assignment. None: the member has lost its partitions, and calls the listener before it joins again."""


@dataclass(eq=False, slots=True)
class Leave(BackgroundTask):
    """Leave the group."""

    reason: str


@dataclass(eq=False, slots=True)
class Query(BackgroundTask):
    """A request that changes no state of the consumer."""

    ask: Callable[[Cluster], Awaitable[Any]]
    answer: Any = None


class Guard(Protocol):
    """Guards the core (`with guard.lock: ...`), and wakes its two sides: the application's calls and the background."""

    wake_count: int
    """Number of wake-ups of the application's side."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """A re-entrant lock that is held while the core's state is read or changed."""
        ...

    def wake_application(self) -> None:
        """Wake all waiting calls; under the guard."""
        ...

    def wake_background(self) -> None:
        """Let the background look for tasks soon."""
        ...
