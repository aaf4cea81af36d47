"""The completeness watermark of a table: the event time up to which producers and the table agree.

Each load carries it on from where the last one has left it, with what producers had told before the ends of the logs
were asked for: all of that must be in the table. It never goes back; what comes to earlier windows later is *late*.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from barnabas.audit.account import WindowAccount
from barnabas.audit.identities import Producer
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.windows import NOTHING, WINDOW_MS, Tally

AUDIT = "barnabas.audit"
"""The property of a load's snapshot that has this state."""

SETTLED_MS = 10_000
"""Windows that ended so shortly before a load are left to the next one: their last records may be on their way."""

UNTOLD_MS = 10 * 60_000
"""What a producer has not told so long after the end of its window, it never will: it was killed. The records are
there, and hold up nothing any more."""


@dataclass(frozen=True, slots=True)
class AuditState:
    """What a snapshot keeps of a table's audit.

    :param audit_id: under which the table's loads tell; `load_id`: the last of them.
    :param is_whole: whether each load of the table has told.
    :param judged_from_ms: the watermark leaves out earlier windows: loads that did not tell, or no load at all, may
        have read their records. The audit does not leave them out.
    :param complete_until_ms: the watermark; None: there is none yet.
    :param marks: by topic, its id and the last window that the last load has told of.
    """

    audit_id: str
    load_id: str = ""
    width_ms: int = WINDOW_MS
    is_whole: bool = True
    judged_from_ms: int = 0
    complete_until_ms: int | None = None
    marks: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def from_ms(self) -> int:
        """When the first window begins that is still to be looked at."""
        return self.judged_from_ms if self.complete_until_ms is None else self.complete_until_ms

    def advanced(self, load_id: str, until_ms: int | None, marks: Mapping[str, tuple[str, int]]) -> AuditState:
        """Return it after a load."""
        return replace(self, load_id=load_id, complete_until_ms=until_ms, marks=dict(marks))

    def dump(self) -> str:
        """Return the text that a snapshot carries."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> AuditState:
        """Read what `dump` wrote.

        >>> state = AuditState("a1", complete_until_ms=60_000, marks={"clicks": ("t1", 0)})
        >>> AuditState.parse(state.dump()) == state
        True
        """
        reported = json.loads(text)
        marks = {topic: (topic_id, window_ms) for topic, (topic_id, window_ms) in reported.pop("marks").items()}
        return cls(**reported, marks=marks)


def settled_until_ms(planned_at_ms: int, width_ms: int) -> int:
    """Return up to when a load can call windows complete.

    :param planned_at_ms: when it asked for the ends of the logs.
    """
    settled_ms = planned_at_ms - SETTLED_MS
    return settled_ms - settled_ms % width_ms


def agreed_until(
    reported: ReportedCounts, accounts: Mapping[int, WindowAccount], state: AuditState, planned_at_ms: int
) -> int | None:
    """Return up to when all that producers have told of a topic is in the table; None where none ever told anything.

    :param accounts: of all loads of the table, with the one that is about to be committed, by window.
    """
    end_ms = settled_until_ms(planned_at_ms, state.width_ms)
    if end_ms <= state.from_ms or (not reported.events and state.complete_until_ms is None):
        return state.complete_until_ms
    produced = reported.produced()
    places = produced.keys() | {
        (window_ms, producer)
        for window_ms, account in accounts.items()
        for producer in account.counted
        if producer.producer_id in reported.instance_of
    }
    for window_ms, producer in sorted(places):
        if not state.from_ms <= window_ms < end_ms:
            continue
        account = accounts.get(window_ms)
        loaded = NOTHING if account is None else account.counted.get(producer, NOTHING)
        is_old = window_ms + state.width_ms + UNTOLD_MS <= planned_at_ms
        if not _agree(
            reported, (window_ms, producer), produced.get((window_ms, producer), NOTHING), loaded, is_old=is_old
        ):
            return window_ms
    return end_ms


def _agree(reported: ReportedCounts, place: tuple[int, Producer], sent: Tally, loaded: Tally, *, is_old: bool) -> bool:
    doubtful = sum(doubt.records for doubt in reported.doubts.get(place, ()))
    more = loaded.records - sent.records
    if more == 0:
        return bool(doubtful) or loaded.fingerprint == sent.fingerprint
    return more > 0 and (more <= doubtful or is_old)
