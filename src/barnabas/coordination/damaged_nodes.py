"""Reports the nodes that brokers skip: each once for a broker, however often it is read.

A broker reads the same nodes at each change of the cluster. A node that a stranger damaged would fill the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from barnabas.coordination import paths
from barnabas.coordination.fields import DamagedNodeError
from barnabas.coordination.metadata_store import MetadataStore, NodeError

NAMED_MAX = 10
"""So many nodes are named in one line of the log."""
REMEMBERED_MAX = 20_000

log = logging.getLogger(__name__)

_reported: WeakKeyDictionary[MetadataStore, dict[str, str]] = WeakKeyDictionary()
"""By tree, and so by broker: the problem of each node that was reported, by its path."""


def report(tree: MetadataStore, errors: Iterable[NodeError], consequence: str = "skipping") -> None:
    """Log the problems that were not logged before.

    :param consequence: what the broker does with these nodes.
    """
    known = _reported.setdefault(tree, {})
    new = [each for each in errors if known.get(each.path) != each.detail]
    for each in new:
        known.pop(each.path, None)
        known[each.path] = each.detail
    while len(known) > REMEMBERED_MAX:
        del known[next(iter(known))]
    for each in new[:NAMED_MAX]:
        log.warning("%s %s: %s: %s", consequence, each.path, each.reason, each.detail or "mend or delete the node")
    if len(new) > NAMED_MAX:
        log.warning("%s %d more nodes for similar reasons", consequence, len(new) - NAMED_MAX)


def names_of(tree: MetadataStore, folder: str, parts: Iterable[str]) -> list[str]:
    """Return the names that the children of a node stand for; report and leave out those that a stranger created."""
    names, strange = [], []
    for part in parts:
        try:
            names.append(paths.decode_name(part))
        except DamagedNodeError as error:
            strange.append(DamagedNodeError(f"{folder}/{part}", error.detail))
    report(tree, strange)
    return names
