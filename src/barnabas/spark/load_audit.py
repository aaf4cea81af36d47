"""The audit events of a load, and the event time up to which the table has all produced records.

A load publishes its counts to the topic `_audit` before the commit, and a mark of the commit after it. The audit state
(`barnabas.audit`) is a property of the snapshot, committed with the data. Counts without a mark are ignored, for
example after a kill before the commit. After a kill that follows the commit, the next load publishes the missing mark.
"""

from __future__ import annotations

import logging
import platform
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from barnabas.audit.account import Account, WindowAccount
from barnabas.audit.events import COMMITTED, LOADED, MonitoringEvent
from barnabas.audit.loaded_table import accounts_of, instance_of_load
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.watermark import AUDIT, AuditState, agreed_until, settled_until_ms
from barnabas.audit.windows import WINDOW_MS, common_width
from barnabas.client.audit.event_log import EventWriter, read_events_of
from barnabas.client.audit.event_sender import AUDIT_TOPIC
from barnabas.errors import BarnabasError
from barnabas.spark.errors import LoadError, SourceUnavailableError, is_source_unavailable
from barnabas.spark.ledger import LEDGER
from barnabas.spark.load_plan import TopicLoadPlan
from barnabas.spark.range_reading import Settings, open_admin, settings_of_client

log = logging.getLogger(__name__)


def wants_audit(wanted: bool | None, bootstrap: str, settings: Settings) -> bool:
    """Return whether a load publishes audit events. By default it does if the topic `_audit` exists.

    :param wanted: The setting of the caller; None for the default.
    :param settings: Client settings under Kafka's dotted names.
    """
    if wanted is not None:
        return wanted
    with open_admin(bootstrap, settings) as admin:
        return AUDIT_TOPIC in admin.list_topics()


class LoadAudit:
    """The audit of one load of one table. Not thread-safe.

    Make this object, and call `read`, before you read the ends of the logs: all records that the events report must be
    in the logs by then.

    :param last_load: The properties of the last load's snapshot; empty for a new table.
    """

    def __init__(
        self, bootstrap: str, settings: Settings, table: str, load_id: str, last_load: Mapping[str, str]
    ) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._table = table
        self._load_id = load_id
        self._last_load = last_load
        known = last_load.get(AUDIT)
        self._state = None if known is None else AuditState.parse(known)
        self._events: dict[str, list[MonitoringEvent]] = {}
        self._topic_ids: Mapping[str, str] = {}
        self._planned_at_ms = 0
        self._next: AuditState | None = None

    def read(self, topics: Sequence[str]) -> None:
        """Read the events of topics that the audit still has to compare.

        :raises LoadError: The topic `_audit` cannot be read.
        """
        since_ms = None if self._state is None else self._state.from_ms
        try:
            with open_admin(self._bootstrap, self._settings) as admin:
                self._events = read_events_of(
                    settings_of_client(self._bootstrap, self._settings), admin, topics, since_ms
                )
        except BarnabasError as error:
            raise self._failed("read", error) from error

    def planned(self, topic_ids: Mapping[str, str], plan: TopicLoadPlan, planned_at_ms: int) -> int:
        """Set the plan of the load, and return the width of the windows to count in, in milliseconds."""
        self._topic_ids, self._planned_at_ms = topic_ids, planned_at_ms
        known = [WINDOW_MS if self._state is None else self._state.width_ms]
        width_ms = common_width([*known, *(event.width_ms for events in self._events.values() for event in events)])
        if self._state is not None:
            self._state = replace(self._state, width_ms=width_ms)
            return width_ms
        is_whole = LEDGER not in self._last_load
        is_from_the_begin = is_whole and not any(each.start_offset for each in plan.ranges)
        judged_from_ms = 0 if is_from_the_begin else settled_until_ms(planned_at_ms, width_ms) + width_ms
        self._state = AuditState(uuid.uuid4().hex, "", width_ms, is_whole, judged_from_ms)
        return width_ms

    def report(self, account: Account) -> str:
        """Publish the counts of the records to commit, and return the audit state to commit with them.

        :raises LoadError: The brokers did not acknowledge the events.
        """
        state = self._planned_state()
        marks = {topic: (self._topic_ids.get(topic, ""), window_ms) for topic, window_ms, _window in account.items()}
        self._next = state.advanced(self._load_id, self.complete_until_ms(account), marks)
        instance = instance_of_load(state.audit_id, self._load_id)
        loaded = account.events(LOADED, state.width_ms, instance, platform.node(), self._table, self._topic_ids)
        try:
            with EventWriter(settings_of_client(self._bootstrap, self._settings)) as writer:
                writer.write([*self._marks(state), *loaded])
        except BarnabasError as error:
            raise self._failed("written", error) from error
        return self._next.dump()

    def committed(self) -> int | None:
        """Publish the mark of the commit, and return the watermark. After a failure the next load publishes the
        mark."""
        assert self._next is not None, "report was called"
        try:
            with EventWriter(settings_of_client(self._bootstrap, self._settings)) as writer:
                writer.write(self._marks(self._next))
        except BarnabasError as error:
            log.warning(
                "cannot publish the audit event for the commit of table %s: %s; the next load publishes it",
                self._table,
                error,
            )
        return self._next.complete_until_ms

    def complete_until_ms(self, account: Account) -> int | None:
        """Return the table's completeness watermark after the commit of `account`; None if there is none."""
        state = self._planned_state()
        until_ms = [self._agreed_until(state, topic, events, account) for topic, events in self._events.items()]
        return min((each for each in until_ms if each is not None), default=None)

    def _planned_state(self) -> AuditState:
        assert self._state is not None, "planned was called"
        return self._state

    def _agreed_until(
        self, state: AuditState, topic: str, events: Iterable[MonitoringEvent], account: Account
    ) -> int | None:
        reported = ReportedCounts(events, self._topic_ids.get(topic, ""), state.width_ms)
        accounts = accounts_of(events, state.audit_id, [state.load_id], state.width_ms)
        for name, window_ms, window in account.items():
            if name == topic:
                accounts.setdefault(window_ms, WindowAccount()).add(window.counted, window.offsets)
        return agreed_until(reported, accounts, state, self._planned_at_ms)

    def _marks(self, state: AuditState) -> Iterable[MonitoringEvent]:
        """Yield the events that mark the last load of a state as committed."""
        for topic, (topic_id, window_ms) in state.marks.items():
            yield MonitoringEvent(
                topic=topic,
                topic_id=topic_id,
                tier=COMMITTED,
                window_ms=window_ms,
                width_ms=state.width_ms,
                instance=instance_of_load(state.audit_id, state.load_id),
                number=1,
                host=platform.node(),
                application=self._table,
                is_last=True,
            )

    def _failed(self, what: str, error: BarnabasError) -> LoadError:
        kind = SourceUnavailableError if is_source_unavailable(error) else LoadError
        return kind(
            f"table {self._table}: the audit cannot be {what}: {error}; to load without it: audit=False (--no-audit)"
        )
