"""The completeness watermark of a table: the event time up to which the table has all records that producers reported.

Each load advances the watermark. A load first reads the producers' reports and then the log end offsets, so the table
must have all reported records. The load compares the accounts of all loads with these reports. The watermark never
moves back; records that arrive later for earlier windows are *late*.
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
"""The name of the snapshot property that contains the audit state."""

SETTLED_MS = 10_000
"""The time in ms after its end before a window can be complete. The last records of a younger window may still be in
transit.
"""

REPORT_WAIT_MS = 10 * 60_000
"""The time in ms after the end of a window in which a producer must report its records.

The audit assumes that a producer without a report was killed. Its records are in the log and no longer hold back the
watermark.
"""


@dataclass(frozen=True, slots=True)
class AuditState:
    """The audit state of a table, stored as a property of a snapshot.

    :param audit_id: the id under which the table's loads report.
    :param load_id: the id of the last load.
    :param is_whole: True if all loads of the table have reported.
    :param judged_from_ms: the watermark ignores earlier windows, because loads without reports may have read their
        records. The audit does not ignore them.
    :param complete_until_ms: the watermark in ms; None if the table has none yet.
    :param marks: the topic id and the last window reported by the last load, by topic.
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
        """The start in ms of the first window that is not complete yet."""
        return self.judged_from_ms if self.complete_until_ms is None else self.complete_until_ms

    def advanced(self, load_id: str, until_ms: int | None, marks: Mapping[str, tuple[str, int]]) -> AuditState:
        """Return the audit state after another load."""
        return replace(self, load_id=load_id, complete_until_ms=until_ms, marks=dict(marks))

    def dump(self) -> str:
        """Return the text for the snapshot property."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> AuditState:
        """Read the text that `dump` returns.

        >>> state = AuditState("a1", complete_until_ms=60_000, marks={"clicks": ("t1", 0)})
        >>> AuditState.parse(state.dump()) == state
        True
        """
        reported = json.loads(text)
        marks = {topic: (topic_id, window_ms) for topic, (topic_id, window_ms) in reported.pop("marks").items()}
        return cls(**reported, marks=marks)


def settled_until_ms(planned_at_ms: int, width_ms: int) -> int:
    """Return the time in ms up to which windows are old enough to be complete.

    :param planned_at_ms: the time in ms at which the load read the log end offsets.
    """
    settled_ms = planned_at_ms - SETTLED_MS
    return settled_ms - settled_ms % width_ms


def agreed_until(
    reported: ReportedCounts, accounts: Mapping[int, WindowAccount], state: AuditState, planned_at_ms: int
) -> int | None:
    """Return the time in ms up to which the table has all reported records of a topic; None if no producer has ever
    reported.

    :param accounts: the accounts of all loads of the table, including the load about to commit, by window.
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
        is_old = window_ms + state.width_ms + REPORT_WAIT_MS <= planned_at_ms
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
