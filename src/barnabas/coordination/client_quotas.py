"""The client quotas in the metadata store, at Kafka's paths.

`/config/users/alice` contains the quotas of a user next to its SCRAM credentials, and `/config/users/alice/clients/app`
the quotas of a user's client id. `/config/clients/app` and `/config/ips/10.0.0.1` contain the quotas of a client id and
of an address. The name `<default>` stands for all users, client ids or addresses without a node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeAlias

from barnabas.coordination import paths
from barnabas.coordination.configs import Changed, change_client_config, settings_in
from barnabas.coordination.damaged_nodes import report_damaged
from barnabas.coordination.fields import DamagedNodeError
from barnabas.coordination.metadata_store import MetadataStore, NodeError, NoNodeError
from barnabas.coordination.values import decode_config

QuotaNode: TypeAlias = "tuple[tuple[str, str | None], ...]"
"""The types and names of an entity with quotas: `user`, `client-id` or `ip`. None as a name is the default."""


def quota_path(node: QuotaNode) -> str:
    """Return the path of a node with quotas.

    >>> quota_path((("user", "alice"), ("client-id", None)))
    '/config/users/alice/clients/<default>'
    """
    match node:
        case (("user", user),):
            return paths.user_config(user)
        case (("client-id", client_id),):
            return paths.client_config(client_id)
        case (("user", user), ("client-id", client_id)):
            return paths.client_of_user_config(user, client_id)
        case (("ip", address),):
            return paths.ip_config(address)
    raise ValueError(f"{node} has no node")


def is_quota_path(path: str) -> bool:
    """Return whether the node at a path may contain quotas."""
    return path.startswith((f"{paths.USER_CONFIGS}/", f"{paths.CLIENT_CONFIGS}/", f"{paths.IP_CONFIGS}/"))


def read_quota_configs(tree: MetadataStore) -> dict[QuotaNode, dict[str, str]]:
    """Return the settings of all nodes that may contain quotas. Damaged nodes are logged and left out.

    The settings of a user include its SCRAM credentials.
    """
    nodes = {quota_path(node): node for node in _nodes(tree)}
    found = tree.get_all(list(nodes))
    configs = {
        node: settings_in(tree, path, found[path].data, are_secret=paths.is_secret(path))
        for path, node in nodes.items()
        if path in found
    }
    return {node: config for node, config in configs.items() if config}


def change_quota_config(tree: MetadataStore, node: QuotaNode, changed: Changed) -> dict[str, str]:
    """Change the settings of a node with quotas, and return the new settings. An empty node is deleted."""
    config = change_client_config(tree, quota_path(node), changed)
    match node:
        case (("user", user), ("client-id", _)) if not config:
            _delete_empty_parents(tree, user)
    return config


def _nodes(tree: MetadataStore) -> Iterator[QuotaNode]:
    for user in _names(tree, paths.USER_CONFIGS):
        yield (("user", user),)
        for client_id in _names(tree, paths.clients_of_user(user)):
            yield ("user", user), ("client-id", client_id)
    for client_id in _names(tree, paths.CLIENT_CONFIGS):
        yield (("client-id", client_id),)
    for address in _names(tree, paths.IP_CONFIGS):
        yield (("ip", address),)


def _names(tree: MetadataStore, parent: str) -> Iterator[str | None]:
    """Yield the names of a node's children, None for the default; log and leave out names that no broker creates."""
    try:
        parts = tree.children(parent)
    except NoNodeError:
        return
    strange = []
    for part in parts:
        if part == paths.DEFAULT:
            yield None
            continue
        try:
            yield paths.decode_name(part)
        except DamagedNodeError as error:
            strange.append(DamagedNodeError(f"{parent}/{part}", error.detail))
    report_damaged(tree, strange)


def _delete_empty_parents(tree: MetadataStore, user: str | None) -> None:
    """Delete the nodes above the last quota of a user's client ids, unless they contain something else."""
    with contextlib.suppress(NodeError):  # not empty, or changed by another broker
        tree.delete(paths.clients_of_user(user))
        path = paths.user_config(user)
        data, stat = tree.get(path)
        if not decode_config(path, data):
            tree.delete(path, stat.version)
