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
    from barnabas.spark.table_status import TableStatus
    from barnabas.spark.table_store import TableStore


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

    def _name(self, topic: str) -> str:
        return self._names.get(topic) or table_name_of_topic(topic)

    @property
    def _store(self) -> TableStore:
        if self._opened is None:
            self._opened = require("barnabas.spark.table_formats").open_place(self._place)
        return self._opened
