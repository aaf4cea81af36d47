"""Logging of damaged nodes. Brokers skip these nodes and log each problem of a node once."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from barnabas.coordination import paths
from barnabas.coordination.fields import DamagedNodeError
from barnabas.coordination.metadata_store import MetadataStore, NodeError
from barnabas.log_lines import LogEvent, event

NAMED_MAX = 10
"""The maximum number of nodes that one call of `report_damaged` logs by path."""
REMEMBERED_MAX = 20_000

log = logging.getLogger(__name__)

_reported: WeakKeyDictionary[MetadataStore, dict[str, str]] = WeakKeyDictionary()
"""The problems that were logged, by path, for each metadata store object."""


def report_damaged(tree: MetadataStore, errors: Iterable[NodeError], consequence: str = "skipping") -> None:
    """Log the problems that have not been logged yet.

    :param consequence: the broker's reaction to these nodes, such as "skipping". The log line begins with it.
    """
    known = _reported.setdefault(tree, {})
    new = [each for each in errors if known.get(each.path) != each.detail]
    for each in new:
        known.pop(each.path, None)
        known[each.path] = each.detail
    while len(known) > REMEMBERED_MAX:
        del known[next(iter(known))]
    for each in new[:NAMED_MAX]:
        detail = each.detail or "repair or delete the node"
        extra = event(LogEvent.TREE_DAMAGED)
        log.warning("%s %s: %s: %s", consequence, each.path, each.reason, detail, extra=extra)
    if len(new) > NAMED_MAX:
        extra = event(LogEvent.TREE_DAMAGED)
        log.warning("%s %d more nodes for similar reasons", consequence, len(new) - NAMED_MAX, extra=extra)


def usable_names(tree: MetadataStore, folder: str, parts: Iterable[str]) -> list[str]:
    """Return the decoded names of a node's children; log and leave out names that no broker creates."""
    names, strange = [], []
    for part in parts:
        try:
            names.append(paths.decode_name(part))
        except DamagedNodeError as error:
            strange.append(DamagedNodeError(f"{folder}/{part}", error.detail))
    report_damaged(tree, strange)
    return names
