"""One reader's place among fetched records: what is decoded, what was handed out, what is in hand.

The records that an iteration hands out come straight from a list iterator, so that iterating costs next to
nothing; where the application is in that list is worked out, from what is left, only when somebody asks.

Records may be handed out as objects or as columns, in turns: the chunk that they come from stays here until all of
it was handed out, and what one way of reading leaves of it the other goes on with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any

from barnabas.client.consumer.fetcher import AssignedPartition, Chunk
from barnabas.model import TopicPartition
from barnabas.records import Record


def accept_all(_tp: TopicPartition) -> bool:
    """Read any partition."""
    return True


class Cursor:
    """Hands out the records of one chunk after the other. Not thread-safe: the consumer guards it.

    Invariant: of the current chunk, what lies before the position of its partition was handed out, or lies in `out`
    and is being handed out by `iterator`. Where it was decoded, that is what lies before `records[index]`.
    """

    def __init__(self, accepts: Callable[[TopicPartition], bool] = accept_all) -> None:
        self.accepts = accepts
        self._state: AssignedPartition | None = None
        self._version = 0
        self._chunk: Chunk | None = None
        self._records: list[Record] | None = None
        """Of the current chunk from some position on; None: what is left of it is not decoded."""
        self._index = 0
        self._out: list[Record] = []
        self._left: Iterator[Record] = iter(())
        """Over `out`."""
        self._iterator: Iterator[Record] = iter(())
        """The same, as it is handed out."""
        self._handed: dict[AssignedPartition, int] = {}
        """Partitions with records handed out and not known to be dealt with, and the version then."""

    @property
    def has_records(self) -> bool:
        """Whether decoded records are left that may be handed out."""
        return self._records is not None and self._index < len(self._records) and self._current() is not None

    @property
    def has_rest(self) -> bool:
        """Whether some of the current chunk is left that may be handed out, decoded or not."""
        return self._is_left() and self._current() is not None

    def reads(self, state: AssignedPartition) -> bool:
        """Whether `state` is the partition that records are handed out of now."""
        return state is self._state

    def _current(self) -> AssignedPartition | None:
        """Return the partition being read, unless the application has moved elsewhere in it meanwhile."""
        state = self._state
        if state is None or state.version != self._version or state.paused:
            return None
        return state

    def _is_left(self) -> bool:
        return self._chunk is not None and (self._records is None or self._index < len(self._records))

    def load(self, chunk: Chunk, records: list[Record]) -> None:
        """Go on with the decoded records of `chunk`."""
        self._turn_to(chunk)
        self._chunk, self._records = chunk, records
        if not records:
            # Nothing but markers or a compacted stretch: there is nothing to hand out and nothing to wait for.
            self._advance(chunk.state, chunk.next_offset)

    def take_rest(self) -> Chunk | None:
        """Return the current chunk, whose partition's position is where it has to be decoded from, if some is left."""
        self.put_back()
        if self._chunk is None or not self.has_rest:
            return None
        chunk, self._chunk, self._records = self._chunk, None, None
        return chunk

    def handed_out(self, chunk: Chunk, next_offset: int, rest: Chunk | None = None) -> None:
        """Count all of `chunk` before `next_offset` as handed out; `rest` is what is left of it, not decoded."""
        self._turn_to(chunk)
        self._chunk = rest
        self._advance(chunk.state, next_offset)

    def _turn_to(self, chunk: Chunk) -> None:
        """Turn away from the current chunk. What is left of it, in a paused partition, is fetched again."""
        self.put_back()
        old = self._state
        if self._is_left() and old is not None and old.version == self._version:
            old.refetch()
            if old in self._handed:
                self._handed[old] = old.version
        state = chunk.state
        self._state, self._version = state, state.version
        self._chunk, self._records, self._index = None, None, 0
        if state in self._handed:
            self._handed[state] = state.version

    def _advance(self, state: AssignedPartition, position: int) -> None:
        state.position = position
        self._handed[state] = state.version

    def _advance_to_index(self, state: AssignedPartition) -> None:
        assert self._chunk is not None
        assert self._records is not None
        everything = self._index == len(self._records)
        self._advance(state, self._chunk.next_offset if everything else self._records[self._index].offset)

    def take_list(self, records_max: int) -> list[Record]:
        """Return the next records and count them as handed out."""
        state = self._current()
        if state is None or self._records is None:
            return []
        start, self._index = self._index, min(self._index + records_max, len(self._records))
        self._advance_to_index(state)
        return self._records[start : self._index]

    def take_iterator(self, records_max: int, may_go_on: Callable[[], bool] | None = None) -> Iterator[Record]:
        """Return an iterator over the next records; each is in hand when it has been returned.

        :param may_go_on: asked before each record; the iterator ends where it says no. None: nobody is asked.
        """
        self._out = self.take_list(records_max)
        self._left = iter(self._out)
        self._iterator = self._left if may_go_on is None else _while_true(may_go_on, self._left)
        return self._iterator

    @property
    def iterator(self) -> Iterator[Record[Any, Any]]:
        """The iterator that was taken last."""
        return self._iterator

    @property
    def left(self) -> int:
        """How many records the iterator has still to hand out."""
        return length_hint(self._left) if self._out else 0

    def position(self, state: AssignedPartition) -> int | None:
        """Return the offset after the last record that the application has, of `state`."""
        if state is self._state and state.version == self._version and self._out:
            handed = len(self._out) - self.left
            return self._out[handed].offset if handed < len(self._out) else state.position
        return state.position

    def done(self, state: AssignedPartition) -> int | None:
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
        if not self._is_left():
            self._chunk = self._records = None

    def put_back(self) -> None:
        """Take back what an iteration that was broken off has not handed out."""
        if not self._out:
            return
        left = self.left
        state = self._state
        if left and state is not None and state.version == self._version:
            self._index -= left
            self._advance_to_index(state)
        # An emptied list ends its iterator: whoever still holds it asks for more, and gets what comes next then.
        self._out.clear()
        self._out = []
        self._iterator = self._left = iter(())

    def drop(self, gone: Callable[[AssignedPartition], bool]) -> None:
        """Hand out nothing more of the partitions that are `gone`: given up, or read elsewhere from now on."""
        if self._state is not None and gone(self._state):
            # An emptied list ends its iterator, so a running iteration comes back for more at once.
            self._out.clear()
            self._chunk = self._records = self._state = None
        self._handed = {state: version for state, version in self._handed.items() if not gone(state)}


def _while_true(condition: Callable[[], bool], records: Iterator[Record]) -> Iterator[Record]:
    """Asked before a record is taken: one that was taken and not handed out would be a gap."""
    while condition() and (record := next(records, None)) is not None:
        yield record
