"""The tier of a table: its rows, and what its loads have said of themselves.

A load tells its account before it commits, and says after it that it has (`events.COMMITTED`); a load that was killed
between the two is known by the table, and one that was killed before the commit counts for nothing. So an account is as
exact as the commit is, without being part of it. It outlives the log: where retention has taken the records, producers'
counts are compared with the account, and the account with the rows.
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
    from barnabas.audit.table_rows import TableRows  # it needs numpy, which only those have who look at tables

_NO_ACCOUNT = WindowAccount()


def instance_of_load(audit_id: str, load_id: str) -> str:
    """Return under which name a load tells.

    :param audit_id: of the table, wherever it is and whatever it is called.
    """
    return f"{audit_id}.{load_id}"


def accounts_of(
    events: Iterable[MonitoringEvent], audit_id: str, load_ids: Collection[str], width_ms: int
) -> dict[int, WindowAccount]:
    """Return what the loads of a table have told of one topic, by window.

    :param load_ids: of loads that are known to be in the table, whether or not they could say so.
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
    """What is known of a table.

    :param accounts: of its loads, by window.
    :param is_whole: whether each of its loads has told.
    """

    rows: TableRows
    accounts: Mapping[int, WindowAccount] = field(default_factory=dict)
    is_whole: bool = False

    def account_of(self, window_ms: int) -> WindowAccount:
        """Return what loads have told of a window."""
        return self.accounts.get(window_ms, _NO_ACCOUNT)


def expired_rows(table: LoadedTable, stored: StoredLog) -> tuple[list[Finding], set[tuple[int, int]]]:
    """Compare the rows with the accounts where the log has expired.

    Returns what is the matter, and for which windows and partitions the account vouches: it is just what is there.
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
            elif kind is not Kind.DOUBLED or table.is_whole:  # else others than these loads may have brought rows
                findings.append(Finding(kind, window_ms, offsets_of(partition), records, tier=LOADED))
    return findings, vouched


def _difference(found: Tally, reported: Tally) -> tuple[Kind | None, int]:
    more = found.records - reported.records
    if more:
        return (Kind.DOUBLED, more) if more > 0 else (Kind.LOST, -more)
    return (Kind.EXCHANGED, 1) if found.fingerprint != reported.fingerprint else (None, 0)
