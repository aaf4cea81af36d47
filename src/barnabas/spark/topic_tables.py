"""The tables of topics at one location, for audits and their pages, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING

from barnabas.spark.extras import require
from barnabas.spark.table_names import table_name_of_topic

if TYPE_CHECKING:
    from barnabas.spark.table_audit import TableAudit
    from barnabas.spark.table_place import TablePlace
    from barnabas.spark.table_snapshots import FilePage, SnapshotPage
    from barnabas.spark.table_status import TableStatus
    from barnabas.spark.table_store import TableFormat, TableStore


class TopicTables:
    """Opens tables by the topics that were loaded into them. Thread-safe.

    The catalog stays open, because opening it is slower than reading the state of a table.

    :param names: the names of tables that are not named after their topic, by topic.
    """

    def __init__(self, place: TablePlace, names: Mapping[str, str] | None = None) -> None:
        self._place = place
        self._names = {} if names is None else dict(names)
        self._lock = Lock()
        self._opened: TableStore | None = None

    def has_table(self, topic: str) -> bool:
        """Return whether the table of a topic exists.

        :raises WarehouseError: the catalog cannot be read.
        """
        with self._lock:
            return self._store.begin(self._name(topic)).exists

    def audit_of(self, topic: str, topic_id: str) -> TableAudit:
        """Return the current version of a topic's table, for an audit.

        :raises BarnabasError: see `TableAudit`.
        """
        module = require("barnabas.spark.table_audit")
        with self._lock:
            found: TableAudit = module.TableAudit(self._place, self._name(topic), topic, topic_id, self._store)
            return found

    def status_of(self, topic: str) -> TableStatus:
        """Return the status of a topic's table.

        :raises BarnabasError: the table does not exist, or cannot be read.
        """
        module = require("barnabas.spark.table_status")
        with self._lock:
            found: TableStatus = module.table_status(self._store, self._name(topic))
            return found

    def snapshots_of(self, topic: str, start: int, count: int) -> SnapshotPage:
        """Return a part of the versions of a topic's table, the newest first.

        :param start: the number of newer versions to leave out.
        :param count: the maximum number of versions.
        :raises BarnabasError: the table does not exist, or cannot be read.
        """
        with self._lock:
            return self._format.snapshots(self._store.current_table(self._name(topic)), start, count)

    def files_of(self, topic: str, snapshot_id: int, start: int, count: int) -> FilePage:
        """Return a part of the files of a version of a topic's table.

        :param start: the number of files to leave out.
        :param count: the maximum number of files.
        :raises BarnabasError: the table or the version does not exist, or cannot be read.
        """
        with self._lock:
            return self._format.files(self._store.current_table(self._name(topic)), snapshot_id, start, count)

    @property
    def _format(self) -> TableFormat:
        found: TableFormat = require("barnabas.spark.table_formats").format_of(self._place)
        return found

    def _name(self, topic: str) -> str:
        return self._names.get(topic) or table_name_of_topic(topic)

    @property
    def _store(self) -> TableStore:
        if self._opened is None:
            self._opened = require("barnabas.spark.table_formats").open_place(self._place)
        return self._opened
