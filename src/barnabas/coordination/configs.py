"""The dynamic configuration of topics, brokers, groups, users and clients in the metadata store.

A change starts from the configuration in the metadata store, not from the broker's copy in memory. So neither of two
concurrent changes at two brokers is lost. When a change function returns, the change is durable and the other brokers
have a change notification. The nodes and their JSON are Kafka's (docs/explanation/coordination.md lists them).
`topic_metadata_store` writes the configuration of a new topic together with the topic.
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
    NotEmptyError,
    Operation,
    Set,
)
from barnabas.coordination.subtrees import ensure_paths
from barnabas.coordination.values import decode_config, decode_topic, encode_config

ATTEMPTS = 100
"""The maximum number of attempts to write a change. Each concurrent change by another broker makes one attempt fail."""

SETTINGS_NAMED_MAX = 5

Settings = Mapping[str, str]

Changed = Callable[[Settings], Settings]
"""A function that gets the current configuration and returns the new one. It may be called several times."""


def read_topic_config(tree: MetadataStore, name: str) -> dict[str, str] | None:
    """Return the configuration of a topic; None if the node is damaged. Defaults of the broker are not included."""
    return _read_config(tree, paths.topic_config(name))


def change_topic_config(
    tree: MetadataStore, name: str, changed: Changed, known: Settings | None = None, topic_id: bytes | None = None
) -> dict[str, str]:
    """Change the configuration of a topic; return the new configuration.

    :param known: the last configuration that the broker knows, as a replacement for a damaged node.
    :param topic_id: the id of the topic to change; None for any topic with this name.
    :raises NoNodeError: the topic does not exist, or another topic has its name now.
    """

    def check() -> list[Operation]:
        path = paths.topic(name)
        data, stat = tree.get(path)
        if topic_id is not None and decode_topic(path, data).topic_id != topic_id:
            raise NoNodeError(path, "another topic has this name")
        return [Check(path, stat.version)]

    return _change(tree, paths.topic_config(name), changed, ChangeNotification(topics=(name,)), known, check)


def read_broker_config(tree: MetadataStore, name: str) -> dict[str, str] | None:
    """Return the configuration of a broker, or of all brokers if `name` is empty; None if the node is damaged."""
    return _read_config(tree, paths.broker_config(name))


def change_broker_config(
    tree: MetadataStore, name: str, changed: Changed, known: Settings | None = None
) -> dict[str, str]:
    """Change the configuration of a broker, or of all brokers if `name` is empty; return the new configuration.

    :param known: the last configuration that the broker knows, as a replacement for a damaged node.
    """
    path = paths.broker_config(name)
    return _change(tree, path, changed, ChangeNotification(settings=(path,)), known)


def read_group_configs(tree: MetadataStore) -> dict[str, dict[str, str]]:
    """Return the configurations by group. Damaged nodes are left out."""
    return _read_configs(tree, paths.GROUP_CONFIGS, paths.group_config)


def read_user_configs(tree: MetadataStore) -> dict[str, dict[str, str]]:
    """Return the SCRAM credentials in Kafka's format, and the quotas, by user. Damaged nodes are left out.

    The log lines about damaged nodes do not contain values.
    """
    return _read_configs(tree, paths.USER_CONFIGS, paths.user_config, are_secret=True)


def _read_configs(
    tree: MetadataStore, parent: str, path_of: Callable[[str], str], *, are_secret: bool = False
) -> dict[str, dict[str, str]]:
    try:
        parts = [part for part in tree.children(parent) if part != paths.DEFAULT]
    except NoNodeError:
        return {}
    found = {
        name: _read_config(tree, path_of(name), are_secret=are_secret) for name in usable_names(tree, parent, parts)
    }
    return {name: config for name, config in found.items() if config is not None}


def change_group_config(
    tree: MetadataStore, group_id: str, changed: Changed, known: Settings | None = None
) -> dict[str, str]:
    """Change the configuration of a group; return the new configuration. An empty configuration deletes the node.

    :param known: the last configuration that the broker knows, as a replacement for a damaged node.
    """
    path = paths.group_config(group_id)
    return _change(tree, path, changed, ChangeNotification(settings=(path,)), known, keeps_empty=False)


def change_user_config(tree: MetadataStore, user: str, changed: Changed) -> dict[str, str]:
    """Change the SCRAM credentials and quotas of a user; return the new ones. A user without them has no node."""
    return change_client_config(tree, paths.user_config(user), changed)


def change_client_config(tree: MetadataStore, path: str, changed: Changed) -> dict[str, str]:
    """Change the node of a user, a client id or an address; return the new settings. An empty node is deleted."""
    return _change(tree, path, changed, ChangeNotification(settings=(path,)), None, keeps_empty=False)


def _read_config(tree: MetadataStore, path: str, *, are_secret: bool = False) -> dict[str, str] | None:
    try:
        return settings_in(tree, path, tree.get(path).data, are_secret=are_secret)
    except NoNodeError:
        return {}


def settings_in(tree: MetadataStore, path: str, data: bytes, *, are_secret: bool = False) -> dict[str, str] | None:
    """Return the settings in a node; log a damaged node and return None.

    :param are_secret: True if the log line must not contain parts of the node.
    """
    try:
        return decode_config(path, data)
    except DamagedNodeError as error:
        shown = DamagedNodeError(path, "its data is not a JSON object with settings") if are_secret else error
        report_damaged(tree, [shown], "ignoring the settings in")
        return None


def report_settings(tree: MetadataStore, path: str, problems: Sequence[str]) -> None:
    """Log the settings in a node that are unknown or invalid."""
    if problems:
        named = "; ".join(each[: 3 * SHOWN_CHARACTERS_MAX] for each in problems[:SETTINGS_NAMED_MAX])
        more = f"; and {len(problems) - SETTINGS_NAMED_MAX} more" if len(problems) > SETTINGS_NAMED_MAX else ""
        report_damaged(tree, [DamagedNodeError(path, named + more)], "ignoring some settings in")


def _change(
    tree: MetadataStore,
    path: str,
    changed: Changed,
    notification: ChangeNotification,
    known: Settings | None,
    check: Callable[[], list[Operation]] = list,
    *,
    keeps_empty: bool = True,
) -> dict[str, str]:
    for attempt in range(1, ATTEMPTS + 1):
        operations = check()
        before: Settings = {}
        version = None
        has_children = False
        try:
            data, stat = tree.get(path)
            version, has_children = stat.version, stat.children_count > 0
            before = decode_config(path, data)
        except NoNodeError:
            ensure_paths(tree, [path.rpartition("/")[0], paths.CHANGES])
        except DamagedNodeError:
            before = known or {}
        config = dict(changed(before))
        if config or keeps_empty or has_children:
            data = encode_config(config)
            operations.append(Create(path, data) if version is None else Set(path, data, version))
        elif version is not None:
            operations.append(Delete(path, version))
        else:
            return config
        try:
            tree.multi([*operations, notification_node(notification)])
        except (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError):
            if attempt == ATTEMPTS:
                raise
        else:
            tree.flush()
            return config
    raise AssertionError("the last attempt returns or raises")
