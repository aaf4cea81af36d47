"""A consumer's part in the audit: which records were handed to the application, by windows of event time. No I/O.

What is decoded is noted (`Consumed.coming`): which offsets are in which windows, which the decoder knows. How far the
application is in it, the consumer knows anyway, and is asked only when somebody counts (`count`): every few
seconds, before each commit, and before positions are moved or partitions given up.

An event holds what one life of a consumer was handed in a window, with offsets for numbers; what it was handed twice,
because it went back, counts twice.
"""

from __future__ import annotations

import platform
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from barnabas.audit.account import offsets_of
from barnabas.audit.events import CONSUMED, MonitoringEvent, Reach
from barnabas.audit.windows import NO_WINDOW_MS, NOTHING, WINDOW_MS, Tally, tally
from barnabas.client.consumer.subscription import PartitionState
from barnabas.model import TopicPartition
from barnabas.records import Record
from barnabas.records.reader import record_stretches

if TYPE_CHECKING:
    from barnabas.records.arrow import ArrowReader

WINDOWS_MAX = 5_000
"""So many windows are remembered, so that what comes for them later is added. With more, the consumer tells on under
another name."""

UNTOLD_MAX = 50_000
"""So many windows are remembered while nothing can be told. With more, all are given up: of what was handed out in them
and not told it is told that nobody knows, so that it is open, and not lost."""

Window = tuple[str, int, str]
"""A topic, when a window begins, and the topic's id: another topic of the same name has another one."""


class Offsets(NamedTuple):
    """Records in a row that are in the same window."""

    first: int
    records: int
    window_ms: int


class _Coming:
    """What was decoded of a partition, and is not counted yet."""

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.offsets: deque[Offsets] = deque()

    def forget_from(self, first: int) -> None:
        """What comes from this offset on is decoded anew."""
        while self.offsets and self.offsets[-1].first + self.offsets[-1].records > first:
            last = self.offsets.pop()
            if last.first < first:
                self.offsets.append(last._replace(records=first - last.first))

    def taken_to(self, position: int) -> Iterator[Offsets]:
        """Remove and yield what lies before a position."""
        while self.offsets and self.offsets[0].first < position:
            first = self.offsets.popleft()
            taken = min(first.records, position - first.first)
            if taken < first.records:
                self.offsets.appendleft(Offsets(first.first + taken, first.records - taken, first.window_ms))
            yield first._replace(records=taken)


@dataclass(slots=True)
class _Handed:
    """All that was handed out of one window."""

    tallies: dict[int, Tally] = field(default_factory=dict)
    reached: dict[int, Reach] = field(default_factory=dict)
    is_too_large: bool = False
    """The topic does not take all of it: it is told only among which offsets it was."""


class Consumed:
    """What one consumer has handed out. Its guard is held by who calls it.

    :param group: whose member the consumer is.
    :param topic_id: returns the id of a topic, in hex; empty where that is not known.
    """

    def __init__(self, group: str, topic_id: Callable[[str], str] = lambda _topic: "") -> None:
        self.topic_id = topic_id
        self._group = group
        self._instance = uuid.uuid4().hex
        self._number = 0
        self._coming: dict[PartitionState, _Coming] = {}
        self._windows: dict[Window, _Handed] = {}
        self._changed: dict[Window, None] = {}
        self._left_out: dict[tuple[str, str], dict[int, Reach]] = {}
        """By topic and its id, and by partition, among which offsets some were handed out and are never told of. That
        is told once, and forgotten then: so what is left out later stands by itself."""

    @property
    def window_count(self) -> int:
        """How many windows are remembered."""
        return len(self._windows)

    # --- what comes -------------------------------------------------------------------------------------

    @staticmethod
    def of_records(records: list[Record]) -> list[Offsets]:
        """Return by windows what was decoded to records. Needs no guard."""
        return list(map(Offsets._make, record_stretches(records, WINDOW_MS)))

    @staticmethod
    def of_columns(columns: ArrowReader, row: int) -> list[Offsets]:
        """Return by windows what was decoded to columns, from a row on. Needs no guard."""
        return list(map(Offsets._make, columns.stretches(row, WINDOW_MS)))

    def coming(self, state: PartitionState, first: int, offsets: list[Offsets]) -> None:
        """Note what was decoded, from the partition's position `first` on."""
        topic_id = self.topic_id(state.tp.topic)
        known = self._coming.get(state)
        if known is None or (known.topic_id and topic_id and known.topic_id != topic_id):
            known = self._coming[state] = _Coming(topic_id)
        known.topic_id = known.topic_id or topic_id
        known.forget_from(first)
        known.offsets.extend(offsets)

    # --- what was handed out ----------------------------------------------------------------------------

    def count(self, position_of: Callable[[PartitionState], int | None]) -> None:
        """Count what was handed out since the last call.

        :param position_of: the offset of the first record that was not handed out; None: not known.
        """
        for state, coming in self._coming.items():
            position = position_of(state)
            if position is not None:
                for offsets in coming.taken_to(position):
                    self._add(state.tp, coming.topic_id, offsets)

    def moved(self, states: list[PartitionState]) -> None:
        """Forget what is coming of partitions, which go on elsewhere, or are others' now."""
        for state in states:
            self._coming.pop(state, None)

    def keep_only(self, is_owned: Callable[[PartitionState], bool]) -> None:
        """Forget what is coming of all other partitions."""
        self.moved([state for state in self._coming if not is_owned(state)])

    def _add(self, tp: TopicPartition, topic_id: str, offsets: Offsets) -> None:
        window = (tp.topic, offsets.window_ms, topic_id)
        if window not in self._windows and len(self._windows) >= UNTOLD_MAX:
            self._give_up()
        handed = self._windows.setdefault(window, _Handed())
        found = tally(offsets_of(tp.partition), offsets.first, offsets.records, 0)
        handed.tallies[tp.partition] = handed.tallies.get(tp.partition, NOTHING).plus(found)
        _reach(handed.reached, tp.partition, Reach(offsets.first, offsets.first + offsets.records))
        self._changed[window] = None

    def _give_up(self) -> None:
        """Forget all windows, and go on under another name."""
        for window in self._changed:
            self._leave_out(window, self._windows[window].reached)
        self._windows, self._changed, self._instance = {}, {}, uuid.uuid4().hex

    def _leave_out(self, window: Window, reached: Mapping[int, Reach]) -> None:
        topic, _window_ms, topic_id = window
        left_out = self._left_out.setdefault((topic, topic_id), {})
        for partition, reach in reached.items():
            _reach(left_out, partition, reach)

    # --- telling ----------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether anything was counted that is not told."""
        return bool(self._changed or self._left_out)

    def forget_told(self) -> None:
        """Where there are too many windows, and all of them is told, forget them, and tell on under another name.

        Not to be called while news are being told: these may come back (`not_told`).
        """
        if len(self._windows) > WINDOWS_MAX and not self._changed:
            self._windows, self._instance = {}, uuid.uuid4().hex

    def news(self) -> list[MonitoringEvent]:
        """Return what is to be told; what is counted from now on is news again."""
        changed, self._changed = self._changed, {}
        left_out, self._left_out = self._left_out, {}
        # Of no window, and by a name of its own, so that it takes the place of no account of a window.
        name = f"{self._instance}-unknown"
        return [
            *(
                self._event((topic, NO_WINDOW_MS, topic_id), name, unknown=unknown)
                for (topic, topic_id), unknown in left_out.items()
            ),
            *map(self._account, changed),
        ]

    def not_told(self, events: Iterable[MonitoringEvent]) -> None:
        """These could not be told, or nobody knows: they are told with the next news."""
        for event in events:
            if event.instance == self._instance:
                self._changed[_window_of(event)] = None
            else:
                self._leave_out(_window_of(event), event.reached or event.unknown)

    def instead_of(self, refused: Iterable[MonitoringEvent]) -> list[MonitoringEvent]:
        """Return what is told in the place of events that are larger than the topic takes: what is unknown.

        Those that have nothing else already can be told in no other way.
        """
        found = []
        for event in refused:
            if not event.offsets:
                continue
            if event.instance == self._instance:
                self._windows[_window_of(event)].is_too_large = True
            self._number += 1
            found.append(replace(event, number=self._number, offsets={}, reached={}, unknown=event.reached))
        return found

    def tell_all_again(self) -> None:
        """Let everything be told once more, as if nothing had been."""
        self._changed.update(dict.fromkeys(self._windows))

    def _account(self, window: Window) -> MonitoringEvent:
        handed = self._windows[window]
        if handed.is_too_large:
            return self._event(window, self._instance, unknown=handed.reached)
        return self._event(window, self._instance, handed.tallies, handed.reached)

    def _event(
        self,
        window: Window,
        instance: str,
        offsets: Mapping[int, Tally] = MappingProxyType({}),
        reached: Mapping[int, Reach] = MappingProxyType({}),
        unknown: Mapping[int, Reach] = MappingProxyType({}),
    ) -> MonitoringEvent:
        topic, window_ms, topic_id = window
        self._number += 1
        return MonitoringEvent(
            topic=topic,
            topic_id=topic_id,
            tier=CONSUMED,
            window_ms=window_ms,
            width_ms=WINDOW_MS,
            instance=instance,
            number=self._number,
            host=platform.node(),
            application=self._group,
            offsets=dict(offsets),
            reached=dict(reached),
            unknown=dict(unknown),
        )


def _window_of(event: MonitoringEvent) -> Window:
    return event.topic, event.window_ms, event.topic_id


def _reach(reached: dict[int, Reach], partition: int, more: Reach) -> None:
    before = reached.get(partition, more)
    reached[partition] = Reach(min(before.first, more.first), max(before.next, more.next))
