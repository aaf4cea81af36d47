"""The life counters of log directories in the metadata store: one node for each log directory, by directory id.

A copy of a log directory has the id of its original and an older counter. The nodes remain when a broker or a log
directory is removed. A damaged node is treated as missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.coordination import paths
from barnabas.coordination.damaged_nodes import report_damaged
from barnabas.coordination.fields import DamagedNodeError
from barnabas.coordination.metadata_store import BadVersionError, MetadataStore, NodeExistsError, NoNodeError
from barnabas.coordination.values import decode_life, encode_life
from barnabas.model import LifeMark


def read_life_counters(tree: MetadataStore, directory_ids: Collection[str]) -> dict[str, LifeMark]:
    """Return the life counters in the metadata store, by log directory id.

    :raises CoordinationError: the metadata store is unreachable.
    """
    tree.flush()  # Otherwise, a ZooKeeper server that lags behind could return outdated life counters.
    paths_of = {each: paths.life(each) for each in directory_ids}
    found = tree.get_all(list(paths_of.values()))
    lives = {}
    for directory_id, path in paths_of.items():
        if path not in found:
            continue
        try:
            lives[directory_id] = decode_life(path, found[path].data)
        except DamagedNodeError as error:
            report_damaged(tree, [error], "ignoring the life counter in")
    return lives


def write_life_counters(tree: MetadataStore, broker_id: int, raised: Mapping[str, LifeMark]) -> list[str]:
    """Increase life counters in the metadata store; return the directory ids whose stored counter was not increased.

    A stored counter that is equal or higher stays unchanged.

    :raises CoordinationError: the metadata store is unreachable.
    """
    return [each for each, mark in raised.items() if not _write(tree, broker_id, paths.life(each), mark)]


def _write(tree: MetadataStore, broker_id: int, path: str, mark: LifeMark) -> bool:
    data = encode_life(broker_id, mark)
    try:
        found, stat = tree.get(path)
    except NoNodeError:
        try:
            tree.create(path, data, make_parents=True)
        except NodeExistsError:
            return False
        return True
    try:
        if not decode_life(path, found).is_older_than(mark):
            return False
    except DamagedNodeError:
        pass  # A damaged node is overwritten.
    try:
        tree.set(path, data, stat.version)
    except (BadVersionError, NoNodeError):
        return False
    return True
