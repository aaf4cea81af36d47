"""What is configured for topics, brokers and groups, beside the defaults of each broker.

A configuration is replaced as a whole, and durable when that returns; the other brokers are told. The nodes and their
JSON are Kafka's (docs/coordination.md lists them). That of a new topic is written with the topic (`registry`).
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.coordination import paths
from barnabas.coordination.changes import Change, tell
from barnabas.coordination.subtrees import delete_all, put_all
from barnabas.coordination.tree import BadVersionError, Check, NoNodeError, Tree
from barnabas.coordination.values import decode_config, decode_topic, encode_config


def read_topic_config(tree: Tree, name: str) -> dict[str, str]:
    """Return what is configured for a topic, beside the broker's defaults."""
    return _read_config(tree, paths.topic_config(name))


def write_topic_config(tree: Tree, name: str, config: Mapping[str, str], topic_id: bytes | None = None) -> None:
    """Replace what is configured for a topic.

    :param topic_id: of the topic that is meant; None: whichever has the name.
    :raises NoNodeError: it is not there; there may be another one under its name.
    """
    change = Change(topics=(name,))
    if topic_id is None:
        _write_config(tree, paths.topic_config(name), config, change)
        return
    path = paths.topic(name)
    while True:
        data, stat = tree.get(path)
        if decode_topic(path, data).topic_id != topic_id:
            raise NoNodeError(path, "another topic has this name")
        try:
            _write_config(tree, paths.topic_config(name), config, change, Check(path, stat.version))
        except BadVersionError:
            continue  # somebody has just changed the topic
        return


def read_broker_config(tree: Tree, name: str) -> dict[str, str]:
    """Return what is configured for a broker, beside its file and flags; for all brokers, where the name is empty."""
    return _read_config(tree, paths.broker_config(name))


def write_broker_config(tree: Tree, name: str, config: Mapping[str, str]) -> None:
    """Replace what is configured for a broker, or for all."""
    path = paths.broker_config(name)
    _write_config(tree, path, config, Change(settings=(path,)))


def read_group_configs(tree: Tree) -> dict[str, dict[str, str]]:
    """Return what is configured for groups, by group."""
    try:
        names = tree.children(paths.GROUP_CONFIGS)
    except NoNodeError:
        return {}
    return {name: _read_config(tree, paths.group_config(name)) for name in map(paths.decode_name, names)}


def write_group_config(tree: Tree, group_id: str, config: Mapping[str, str]) -> None:
    """Replace what is configured for a group; of one without settings nothing is kept."""
    path = paths.group_config(group_id)
    change = Change(settings=(path,))
    if config:
        _write_config(tree, path, config, change)
    else:
        delete_all(tree, [path], [tell(change)])
        tree.flush()


def _read_config(tree: Tree, path: str) -> dict[str, str]:
    try:
        return decode_config(path, tree.get(path).data)
    except NoNodeError:
        return {}


def _write_config(tree: Tree, path: str, config: Mapping[str, str], change: Change, *checks: Check) -> None:
    put_all(tree, {path: encode_config(config)}, also=[*checks, tell(change)])
    tree.flush()
