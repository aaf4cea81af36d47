"""What the consumer's core says to the shell around it, and what it wants to have done on the event loop.

A call of the application that may have to wait is a generator of steps: it returns the result, raises an error, or
yields what has to happen before it can go on: time or news (`Wait`), or a word to the application (`ListenerCall`). The shell
sees to that in its own way, by blocking a thread or by awaiting, and then asks for the next step. It may ask too
early: the core looks again, and yields another `Wait`.

What needs a broker is `BackgroundTask`. The core puts it down, the background does it and says how it ended, which is news.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.subscription import PartitionState
from barnabas.model import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

FOREVER_S = float("inf")

AssignmentChange = Literal["assigned", "revoked", "lost"]


class Wait(NamedTuple):
    """Come back at `until_s` (monotonic), or earlier when there is news: when `Guard.news` is not `news` any more."""

    until_s: float
    news: int


@dataclass(eq=False, slots=True)
class ListenerCall:
    """Tell the application's listener of a change of its partitions, and then `ConsumerState.told` how that ended."""

    change: AssignmentChange
    partitions: list[TopicPartition]
    done: bool = False
    error: BaseException | None = None
    goes_on: bool = False
    """The listener runs to its end even if who polls gives up; else it is told again with the next poll then."""


CallSteps = Generator[Wait | ListenerCall, None, T]


@dataclass(eq=False, slots=True, kw_only=True)
class BackgroundTask:
    """Something that takes a broker."""

    done: bool = False
    error: BaseException | None = None
    abandoned: bool = False
    """Nobody waits for it any more: it need not be ended."""


@dataclass(eq=False, slots=True)
class Commit(BackgroundTask):
    """Commit offsets for the group."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    timeout_s: float | None = None
    done_with: Mapping[PartitionState, int] = field(default_factory=dict)
    """What auto-commit need not commit again after this."""
    in_hand: Mapping[PartitionState, int] = field(default_factory=dict)
    """The versions of the states of `done_with`, if the application commits what it has in hand."""


@dataclass(eq=False, slots=True)
class CommittedLookup(BackgroundTask):
    """Look up what the group has committed."""

    partitions: list[TopicPartition]
    timeout_s: float | None = None
    answer: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Join(BackgroundTask):
    """Join the group's next generation."""

    partitions: list[TopicPartition] | None = None
    """What falls to this member; None: it has lost what it had, and must know that first."""


@dataclass(eq=False, slots=True)
class Leave(BackgroundTask):
    """Leave the group, if in one."""

    reason: str


@dataclass(eq=False, slots=True)
class Query(BackgroundTask):
    """Find something out that changes nothing here."""

    ask: Callable[[Cluster], Awaitable[Any]]
    answer: Any = None


class Waker:
    """Calls the background, on its event loop, when there may be work. Used from the loop's thread only."""

    def __init__(self) -> None:
        self._rung = False
        self._answer: Callable[[], None] | None = None

    def ring(self) -> None:
        """Have it look for work now, or as soon as it listens."""
        if self._answer is None:
            self._rung = True
        else:
            self._answer()

    def listen(self, answer: Callable[[], None] | None) -> None:
        """Call this from now on; None: nothing any more."""
        self._answer = answer
        if answer is not None and self._rung:
            answer()


class Guard(Protocol):
    """Guards the core where threads share it (`with guard.lock: ...`), and carries word between its two sides."""

    news: int
    """Counts what was told to the application's side."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """What is held while the core's state is looked at or changed; may be taken again by who holds it."""
        ...

    def wake_application(self) -> None:
        """Wake whoever waits for news; under the guard."""
        ...

    def wake_background(self) -> None:
        """Let the background look for work soon."""
        ...
