"""A table in the audit: its rows and the accounts of its loads.

A load reports its account before it commits, and the commit afterwards (`events.COMMITTED`). If a load was killed after
the commit, the table's snapshots show the commit. If it was killed before the commit, the audit ignores its account. So
accounts are as exact as the commits. An account is kept longer than the records in the log. After retention has removed
the records, the audit compares the producers' reports with the account, and the account with the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.audit.account import WindowAccount, offsets_of
from barnabas.audit.events import COMMITTED, LOADED, MonitoringEvent
from barnabas.audit.findings import Finding, Kind
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import NOTHING, Tally, window_of

if TYPE_CHECKING:
    from barnabas.audit.table_rows import TableRows  # this module imports numpy, which only audits of tables need

_NO_ACCOUNT = WindowAccount()


def instance_of_load(audit_id: str, load_id: str) -> str:
    """Return the instance name under which a load reports.

    :param audit_id: the id of the table, independent of its location and name.
    """
    return f"{audit_id}.{load_id}"


def accounts_of(
    events: Iterable[MonitoringEvent], audit_id: str, load_ids: Collection[str], width_ms: int
) -> dict[int, WindowAccount]:
    """Return the accounts of a table's loads for one topic, by window.

    :param load_ids: the loads that the table's snapshots show as committed, with or without a report.
    """
    reported = {event.key: event for event in events if event.instance.startswith(f"{audit_id}.")}
    done = {event.instance for event in reported.values() if event.tier == COMMITTED}
    done.update(instance_of_load(audit_id, load_id) for load_id in load_ids)
    accounts: dict[int, WindowAccount] = {}
    for event in reported.values():
        if event.tier == LOADED and event.instance in done:
            window = accounts.setdefault(window_of(event.window_ms, width_ms), WindowAccount())
            window.add(event.counted, event.offsets)
    return accounts


@dataclass(slots=True)
class LoadedTable:
    """The rows of a table and the accounts of its loads.

    :param accounts: the accounts by window.
    :param is_whole: True if all loads of the table have reported.
    """

    rows: TableRows
    accounts: Mapping[int, WindowAccount] = field(default_factory=dict)
    is_whole: bool = False

    def account_of(self, window_ms: int) -> WindowAccount:
        """Return the sum of the loads' accounts for a window."""
        return self.accounts.get(window_ms, _NO_ACCOUNT)


def expired_rows(table: LoadedTable, stored: StoredLog) -> tuple[list[Finding], set[tuple[int, int]]]:
    """Compare the rows of a table with the accounts, in windows whose records retention has removed from the log.

    :return: the findings, and the windows and partitions whose account equals the rows.
    """
    findings: list[Finding] = []
    vouched: set[tuple[int, int]] = set()
    for window_ms in table.rows.tallies.keys() | table.accounts.keys():
        rows, account = table.rows.tallies.get(window_ms, {}), table.account_of(window_ms)
        for partition in rows.keys() | account.offsets.keys():
            if not stored.is_expired(partition, window_ms):
                continue
            found, reported = rows.get(partition, NOTHING), account.offsets.get(partition)
            if reported is None:
                continue
            kind, records = _difference(found, reported)
            if kind is None:
                vouched.add((window_ms, partition))
            elif kind is not Kind.DOUBLED or table.is_whole:  # else unreported loads may have added rows
                findings.append(Finding(kind, window_ms, offsets_of(partition), records, tier=LOADED))
    return findings, vouched


def _difference(found: Tally, reported: Tally) -> tuple[Kind | None, int]:
    more = found.records - reported.records
    if more:
        return (Kind.DOUBLED, more) if more > 0 else (Kind.LOST, -more)
    return (Kind.EXCHANGED, 1) if found.fingerprint != reported.fingerprint else (None, 0)
