"""What is configured for topics, brokers and groups, beside the defaults of each broker.

A configuration is changed by what it is in the tree at that moment, whatever the broker knows of it that is asked, so
that changes which two brokers are asked for are both kept. It is durable when that returns, and the other brokers are
told. The nodes and their JSON are Kafka's (docs/explanation/coordination.md lists them). That of a new topic is
written with the
topic (`registry`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from barnabas.coordination import paths
from barnabas.coordination.change_notifications import ChangeNotification, notification_node
from barnabas.coordination.damaged_nodes import report_damaged, usable_names
from barnabas.coordination.fields import SHOWN_CHARACTERS_MAX, DamagedNodeError
from barnabas.coordination.metadata_store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
)
from barnabas.coordination.subtrees import ensure_paths
from barnabas.coordination.values import decode_config, decode_topic, encode_config

ATTEMPTS = 100
"""Each change that somebody else makes meanwhile costs one."""

SETTINGS_NAMED_MAX = 5

Settings = Mapping[str, str]

Changed = Callable[[Settings], Settings]
"""Given what is configured, returns what is to be; may be called more than once."""


def read_topic_config(tree: MetadataStore, name: str) -> dict[str, str] | None:
    """Return what is configured for a topic, beside the broker's defaults; None if that cannot be understood."""
    return _read_config(tree, paths.topic_config(name))


def change_topic_config(
    tree: MetadataStore, name: str, changed: Changed, known: Settings | None = None, topic_id: bytes | None = None
) -> dict[str, str]:
    """Change what is configured for a topic; return that.

    :param known: what it was, where the node cannot be understood.
    :param topic_id: of the topic that is meant; None: whichever has the name.
    :raises NoNodeError: it is not there; there may be another one under its name.
    """

    def check() -> list[Operation]:
        path = paths.topic(name)
        data, stat = tree.get(path)
        if topic_id is not None and decode_topic(path, data).topic_id != topic_id:
            raise NoNodeError(path, "another topic has this name")
        return [Check(path, stat.version)]

    return _change(tree, paths.topic_config(name), changed, ChangeNotification(topics=(name,)), known, check)


def read_broker_config(tree: MetadataStore, name: str) -> dict[str, str] | None:
    """Return what is configured for a broker, beside its file and flags; for all brokers, where the name is empty.

    None if that cannot be understood.
    """
    return _read_config(tree, paths.broker_config(name))


def change_broker_config(
    tree: MetadataStore, name: str, changed: Changed, known: Settings | None = None
) -> dict[str, str]:
    """Change what is configured for a broker, or for all; return that.

    :param known: as for topics.
    """
    path = paths.broker_config(name)
    return _change(tree, path, changed, ChangeNotification(settings=(path,)), known)


def read_group_configs(tree: MetadataStore) -> dict[str, dict[str, str]]:
    """Return what is configured for groups, by group; without those of which it cannot be understood."""
    try:
        parts = tree.children(paths.GROUP_CONFIGS)
    except NoNodeError:
        return {}
    names = usable_names(tree, paths.GROUP_CONFIGS, parts)
    found = {name: _read_config(tree, paths.group_config(name)) for name in names}
    return {name: config for name, config in found.items() if config is not None}


def change_group_config(
    tree: MetadataStore, group_id: str, changed: Changed, known: Settings | None = None
) -> dict[str, str]:
    """Change what is configured for a group, and return that; of one without settings nothing is kept.

    :param known: as for topics.
    """
    path = paths.group_config(group_id)
    return _change(tree, path, changed, ChangeNotification(settings=(path,)), known, keeps_empty=False)


def _read_config(tree: MetadataStore, path: str) -> dict[str, str] | None:
    try:
        return settings_in(tree, path, tree.get(path).data)
    except NoNodeError:
        return {}


def settings_in(tree: MetadataStore, path: str, data: bytes) -> dict[str, str] | None:
    """Return the settings in a node; report a node that cannot be understood, and return None."""
    try:
        return decode_config(path, data)
    except DamagedNodeError as error:
        report_damaged(tree, [error], "ignoring the settings in")
        return None


def report_settings(tree: MetadataStore, path: str, problems: Sequence[str]) -> None:
    """Report the settings in a node that its topic, group or broker cannot have."""
    if problems:
        told = "; ".join(each[: 3 * SHOWN_CHARACTERS_MAX] for each in problems[:SETTINGS_NAMED_MAX])
        more = f"; and {len(problems) - SETTINGS_NAMED_MAX} more" if len(problems) > SETTINGS_NAMED_MAX else ""
        report_damaged(tree, [DamagedNodeError(path, told + more)], "ignoring some settings in")


def _change(
    tree: MetadataStore,
    path: str,
    changed: Changed,
    told: ChangeNotification,
    known: Settings | None,
    check: Callable[[], list[Operation]] = list,
    *,
    keeps_empty: bool = True,
) -> dict[str, str]:
    for attempt in range(1, ATTEMPTS + 1):
        operations = check()
        before: Settings = {}
        version = None
        try:
            data, stat = tree.get(path)
            version = stat.version
            before = decode_config(path, data)
        except NoNodeError:
            ensure_paths(tree, [path.rpartition("/")[0], paths.CHANGES])
        except DamagedNodeError:
            before = known or {}
        config = dict(changed(before))
        if config or keeps_empty:
            data = encode_config(config)
            operations.append(Create(path, data) if version is None else Set(path, data, version))
        elif version is not None:
            operations.append(Delete(path, version))
        else:
            return config
        try:
            tree.multi([*operations, notification_node(told)])
        except (BadVersionError, NodeExistsError, NoNodeError):
            if attempt == ATTEMPTS:
                raise
        else:
            tree.flush()
            return config
    raise AssertionError("the last attempt returns or raises")
