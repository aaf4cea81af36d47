"""One reader's place among fetched records: what is decoded, what was handed out, what is in hand.

The records that an iteration hands out come straight from a list iterator, so that iterating costs next to
nothing; where the application is in that list is worked out, from what is left, only when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import length_hint

from barnabas.client.consumer.fetcher import Chunk
from barnabas.client.consumer.subscription import PartitionState
from barnabas.model import TopicPartition
from barnabas.records import Record


def accept_all(_tp: TopicPartition) -> bool:
    """Read any partition."""
    return True


class Cursor:
    """Hands out the records of one chunk after the other. Not thread-safe: the consumer guards it.

    Invariant: the records of `state` before `records[index]` were handed out, or lie in `out` and are being
    handed out by `iterator`.
    """

    def __init__(self, accepts: Callable[[TopicPartition], bool] = accept_all) -> None:
        self.accepts = accepts
        self._state: PartitionState | None = None
        self._version = 0
        self._records: list[Record] = []
        self._index = 0
        self._next_offset = 0
        self._out: list[Record] = []
        self._iterator: Iterator[Record] = iter(())
        self._handed: dict[PartitionState, int] = {}
        """Partitions with records handed out and not known to be dealt with, and the version then."""

    @property
    def has_records(self) -> bool:
        """Whether decoded records are left that may be handed out."""
        return self._current() is not None and self._index < len(self._records)

    def reads(self, state: PartitionState) -> bool:
        """Whether `state` is the partition that records are handed out of now."""
        return state is self._state

    def _current(self) -> PartitionState | None:
        """Return the partition being read, unless the application has moved elsewhere in it meanwhile."""
        state = self._state
        if state is None or state.version != self._version or state.paused:
            return None
        return state

    def load(self, chunk: Chunk, records: list[Record], next_offset: int) -> None:
        """Go on with the decoded records of `chunk`; `next_offset` is the one after them."""
        state = chunk.state
        self._leave_behind()
        self._state, self._version = state, state.version
        if state in self._handed:
            self._handed[state] = state.version
        self._records, self._index, self._next_offset = records, 0, next_offset
        if not records:
            # Nothing but markers or a compacted stretch: there is nothing to hand out and nothing to wait for.
            self._advance(state)

    def _leave_behind(self) -> None:
        """Turn away from the current records. What is left of them, in a paused partition, is fetched again."""
        self.put_back()
        state = self._state
        if state is not None and state.version == self._version and self._index < len(self._records):
            state.refetch()
            if state in self._handed:
                self._handed[state] = state.version

    def _advance(self, state: PartitionState) -> None:
        everything = self._index == len(self._records)
        state.position = self._next_offset if everything else self._records[self._index].offset
        self._handed[state] = state.version

    def take_list(self, records_max: int) -> list[Record]:
        """Return the next records and count them as handed out."""
        state = self._current()
        if state is None:
            return []
        start, self._index = self._index, min(self._index + records_max, len(self._records))
        self._advance(state)
        return self._records[start : self._index]

    def take_iterator(self, records_max: int) -> Iterator[Record]:
        """Return an iterator over the next records; each is in hand when it has been returned."""
        self._out = self.take_list(records_max)
        self._iterator = iter(self._out)
        return self._iterator

    @property
    def iterator(self) -> Iterator[Record]:
        """The iterator that was taken last."""
        return self._iterator

    @property
    def left(self) -> int:
        """How many records the iterator has still to hand out."""
        return length_hint(self._iterator) if self._out else 0

    def position(self, state: PartitionState) -> int | None:
        """Return the offset after the last record that the application has, of `state`."""
        if state is self._state and state.version == self._version and self._out:
            handed = len(self._out) - self.left
            return self._out[handed].offset if handed < len(self._out) else state.position
        return state.position

    def done(self, state: PartitionState) -> int | None:
        """Return the offset below which the application has dealt with everything, of `state`."""
        if state is self._state and state.version == self._version and self._out:
            handed = len(self._out) - self.left
            return self._out[max(handed - 1, 0)].offset
        return state.done

    def finish(self) -> None:
        """The application asks for more: what it was handed, it has dealt with."""
        self.put_back()
        for state, version in self._handed.items():
            if state.version == version:
                state.done = state.position
        self._handed.clear()

    def put_back(self) -> None:
        """Take back what an iteration that was broken off has not handed out."""
        if not self._out:
            return
        left = self.left
        state = self._state
        if left and state is not None and state.version == self._version:
            self._index -= left
            self._advance(state)
        self._out = []
        self._iterator = iter(())

    def drop(self, gone: Callable[[PartitionState], bool]) -> None:
        """Hand out nothing more of the partitions that are `gone`: given up, or read elsewhere from now on."""
        if self._state is not None and gone(self._state):
            # An emptied list ends its iterator, so a running iteration comes back for more at once.
            self._out.clear()
            self._records = []
            self._index = 0
            self._state = None
        self._handed = {state: version for state, version in self._handed.items() if not gone(state)}
