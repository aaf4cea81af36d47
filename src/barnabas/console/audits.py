"""Audits of topics for the pages of completeness. They run on threads, so that a large topic does not stop the console.

At most `AUDITS_AT_ONCE` audits of all users run at the same time, and one per topic of a user. A result stays valid for
some seconds, or longer if the audit took long. The counts of the log stay in memory, so that the next audit of a topic
reads only new records.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from barnabas.audit.balance import Balance
from barnabas.audit.identities import Producer
from barnabas.client.admin.admin import Admin
from barnabas.client.audit.event_log import ReportedTopics, topic_ranges
from barnabas.client.audit.log_counting import LogCountCache, OnProgress
from barnabas.client.audit.neighbours import Neighbours, neighbours_of
from barnabas.client.audit.topic_audit import TableSide, audit_topic
from barnabas.clock import Clock
from barnabas.console.cached import Cached
from barnabas.console.memory import return_freed_memory
from barnabas.console.tables import Tables, TableView
from barnabas.console.threads import on_thread
from barnabas.errors import ApiError, BarnabasError, UnavailableError
from barnabas.model import TopicPartition

AUDITS_AT_ONCE = 2
WAITING_MAX = 300
"""The maximum number of audits of a user that wait for their turn."""
AGE_S_MAX = 10.0
REST_FACTOR = 5
"""A result stays valid for this multiple of the duration of its audit."""
RESULTS_MAX = 100
WINDOWS_MAX = 50_000
"""The maximum number of windows of all results of a user, which limits their memory. The newest result stays anyway."""
REPORTED_AGE_S_MAX = 15.0
REPORTED_S_MAX = 0.15
"""The time after which the list of audited topics is the earlier one, if there is one."""
SEARCH_S_MAX = 10.0
SOURCE_TIMEOUT = {"default.api.timeout.ms": "10000"}
SOURCE_OUTAGE_S = 60.0
"""The time for which audits leave out a source cluster that has not answered."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableLag:
    """A partition of a topic: the offset where the next load starts, and the end of the log."""

    partition: int
    next_offset: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.next_offset)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The result of an audit.

    :param table: the status of the topic's table; None without one.
    :param table_problem: the reason why the audit left out the table; empty if it did not.
    :param source_problem: the reason why the audit left out the source of a mirrored topic; empty if it did not.
    :param ended_ms: the end of the audit, in ms since 1970.
    """

    balance: Balance
    ended_ms: int
    table: TableView | None = None
    lags: tuple[TableLag, ...] = ()
    table_problem: str = ""
    source_problem: str = ""

    @property
    def has_table(self) -> bool:
        """True if the audit compared the log with a table."""
        return self.table is not None and not self.table_problem

    @property
    def lag(self) -> int:
        """The number of offsets in the log after the loaded ones."""
        return sum(each.lag for each in self.lags)


@dataclass(slots=True)
class TopicAudit:
    """The audit of a topic: its last result, and the progress of the running audit.

    :ivar problem: the reason why the last audit failed; empty if it did not.
    :ivar total: the number of records that the running audit counts; None before it is known.
    """

    topic: str
    result: AuditResult | None = None
    problem: str = ""
    done: int = 0
    total: int | None = None
    task: asyncio.Task[None] | None = None
    valid_until_s: float = float("-inf")
    memory: LogCountCache = field(default_factory=LogCountCache, repr=False)

    @property
    def is_running(self) -> bool:
        return self.task is not None

    @property
    def window_count(self) -> int:
        return 0 if self.result is None else len(self.result.balance.windows)


class _TableError(Exception):
    """The table of a topic cannot be audited."""


class _ClosedError(BarnabasError):
    """The session of a running audit has ended."""


class Audits:
    """Audits topics as one user. Used on one event loop.

    :param settings: client settings under Kafka's names, with the user's credentials.
    :param tables: the tables of topics; None without a warehouse.
    :param turns: the turns of all users, so that only some audits run at the same time.
    :param source: client settings of the cluster from which topics are mirrored; None without one.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        tables: Tables | None,
        turns: asyncio.Semaphore,
        clock: Clock,
        source: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = dict(settings)
        self._tables = tables
        self._turns = turns
        self._clock = clock
        self._source = None if source is None else {**SOURCE_TIMEOUT, **source}
        self._source_outage: tuple[str, float] = ("", float("-inf"))
        self._audits: dict[str, TopicAudit] = {}
        self._is_closed = False
        self._reported: Cached[frozenset[str]] = Cached(self._read_reported, REPORTED_AGE_S_MAX, clock.monotonic)

        self._reports = ReportedTopics(self._settings)
        self._reading: asyncio.Task[frozenset[str]] | None = None
        self._known: frozenset[str] | None = None

    @property
    def has_tables(self) -> bool:
        return self._tables is not None

    def ask(self, topic: str) -> TopicAudit:
        """Return the audit of a topic. Start one if the last result is too old.

        :raises UnavailableError: too many audits wait for their turn.
        """
        audit = self._audits.pop(topic, None) or TopicAudit(topic)
        self._audits[topic] = audit
        if audit.task is None and self._clock.monotonic() >= audit.valid_until_s:
            if sum(each.is_running for each in self._audits.values()) >= WAITING_MAX:
                raise UnavailableError("too many audits wait for their turn; try again later")
            audit.done, audit.total = 0, None
            audit.task = asyncio.create_task(self._run(audit))
        self._forget_old(audit)
        return audit

    async def wait(self, audit: TopicAudit, seconds: float) -> None:
        """Wait for the end of a running audit, at most for some seconds."""
        if audit.task is not None:
            await asyncio.wait([audit.task], timeout=seconds)

    async def reported_topics(self) -> frozenset[str] | None:
        """Return the topics about which producers, mirrors or loads have reported.

        If the reports take long to read, return the topics of an earlier call; None if there was none.
        """
        reading = self._reading = asyncio.create_task(self._reported.get())
        reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait([reading], timeout=REPORTED_S_MAX)
        if reading.done():
            self._known = await reading
        return self._known

    async def neighbours(
        self, where: TopicPartition, window_ms: int, producer: Producer, missing: tuple[int, int]
    ) -> Neighbours:
        """Search the neighbours of lost records; see `neighbours_of`."""

        def search() -> Neighbours:
            until_s = self._clock.monotonic() + SEARCH_S_MAX
            with Admin(self._settings) as admin:
                begins, ends = admin.beginning_offsets([where]), admin.end_offsets([where])
                first = admin.offsets_for_times({where: max(window_ms, 0)})[where]
            # The neighbour before the lost records may be in an earlier window, so the second search reads all.
            for begin in dict.fromkeys([begins[where] if first is None else first.offset, begins[where]]):
                found = neighbours_of(
                    self._settings, where, (begin, ends[where]), producer, missing,
                    lambda: not self._is_closed and self._clock.monotonic() < until_s,
                )  # fmt: skip
                if not found.is_whole or (found.before is not None and found.after is not None):
                    break
            return found

        async with self._turns:
            return await on_thread(search, "console-search")

    async def close(self) -> None:
        """End the running audits."""
        self._is_closed = True
        tasks = [each.task for each in self._audits.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- on the event loop -----------------------------------------------------------------------------------------

    def _forget_old(self, kept: TopicAudit) -> None:
        """Drop the results that pages have not asked for lately."""
        results = windows = 0
        for topic, audit in reversed(list(self._audits.items())):
            if audit.is_running or audit is kept:
                continue
            results += 1
            windows += audit.window_count
            if results > RESULTS_MAX or windows > WINDOWS_MAX:
                del self._audits[topic]

    async def _run(self, audit: TopicAudit) -> None:
        async with self._turns:
            began_s = self._clock.monotonic()
            try:
                audit.result = await on_thread(lambda: self._audited(audit), f"console-audit-{audit.topic}")
                audit.problem = ""
            except BarnabasError as error:
                audit.problem = str(error)
            except Exception:
                log.exception("the audit of topic %s failed; the page shows an error", audit.topic)
                audit.problem = "The audit has a defect; see the log of the console."
            finally:
                ended_s = self._clock.monotonic()
                audit.valid_until_s = ended_s + max(AGE_S_MAX, REST_FACTOR * (ended_s - began_s))
                audit.task = None

    async def _read_reported(self) -> frozenset[str]:
        def read() -> frozenset[str]:
            with Admin(self._settings) as admin:
                return self._reports.read(admin)

        return await on_thread(read, "console-reports")

    # -- on a thread -----------------------------------------------------------------------------------------------

    def _audited(self, audit: TopicAudit) -> AuditResult:
        try:
            return self._audit(audit)
        finally:
            if self._tables is not None:
                return_freed_memory()

    def _audit(self, audit: TopicAudit) -> AuditResult:
        topic, problem, status = audit.topic, "", None
        with Admin(self._settings) as admin:
            side = self._table_side(topic)
            try:
                found, source_problem = self._compare_all(admin, audit, side)
            except _TableError as error:
                problem = str(error)
                found, source_problem = self._compare_all(admin, audit, None)
            if side is not None and self._tables is not None:
                with contextlib.suppress(BarnabasError):
                    status = self._tables.status_of(topic)
            lags: tuple[TableLag, ...] = ()
            if status is not None and topic in status.ledger.topics:
                loaded = status.ledger.topics[topic].next_offsets
                lags = tuple(
                    TableLag(where.partition, loaded.get(where.partition, begin), end)
                    for where, (begin, end) in sorted(topic_ranges(admin, topic).items())
                )
        return AuditResult(found, self._clock.time_ms(), status, lags, problem, source_problem)

    def _table_side(self, topic: str) -> Callable[[str], TableSide] | None:
        tables = self._tables
        if tables is None:
            return None

        def side_of(topic_id: str) -> TableSide:
            try:
                return tables.audit_of(topic, topic_id)
            except BarnabasError as error:
                raise _TableError(str(error)) from error

        try:
            return side_of if tables.has_table(topic) else None
        except BarnabasError as error:
            log.warning("cannot look for the table of topic %s: %s; the audit leaves it out", topic, error)
            return None

    def _compare_all(
        self, admin: Admin, audit: TopicAudit, side: Callable[[str], TableSide] | None
    ) -> tuple[Balance, str]:
        """Return the result of a comparison, and the reason why it left out the source cluster."""
        reason, until_s = self._source_outage
        if self._source is None or self._clock.monotonic() < until_s:
            return self._compare(admin, audit, side, None), "" if self._source is None else reason
        try:
            return self._compare(admin, audit, side, self._source), ""
        except (_TableError, _ClosedError):
            raise
        except BarnabasError as error:
            found = self._compare(admin, audit, side, None)
            reason = f"the source of the topic cannot be read: {error}"
            if not isinstance(error, ApiError):
                self._source_outage = reason, self._clock.monotonic() + SOURCE_OUTAGE_S
            return found, reason

    def _compare(
        self,
        admin: Admin,
        audit: TopicAudit,
        side: Callable[[str], TableSide] | None,
        source: Mapping[str, str] | None,
    ) -> Balance:
        @contextmanager
        def progress(total: int) -> Iterator[OnProgress]:
            audit.done, audit.total = 0, total
            yield advance

        def advance(records: int) -> None:
            audit.done += records
            if self._is_closed:
                raise _ClosedError("the session has ended")

        return audit_topic(
            self._settings,
            admin,
            audit.topic,
            table_side=side,
            source=None if source is None else dict(source),
            only_if_mirrored=True,
            progress=progress,
            memory=audit.memory,
        )


NewAudits = Callable[[Mapping[str, str]], Audits]
