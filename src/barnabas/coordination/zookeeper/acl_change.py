"""Sets the ACLs of the nodes of an existing tree, which an older version or a broker without credentials has created.

The nodes of consumer groups keep their ACLs, because they belong to the consumers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.security import ACL, make_digest_acl_credential

from barnabas.coordination import paths
from barnabas.coordination.zookeeper.acls import acl_of, is_secured, is_world_readable
from barnabas.coordination.zookeeper.answers import refuse
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.coordination.zookeeper.session import Deadline, Session

CALL_TIMEOUT_S = 30.0
"""The time limit in seconds for each few hundred nodes."""


@dataclass(frozen=True, slots=True)
class AclChange:
    """The result of a change of ACLs.

    :param secured: the nodes with a new ACL, in the order of their paths.
    :param unchanged: the number of nodes that already had the right ACL.
    :param refused: the nodes that belong to other credentials. They keep their ACLs.
    :param exposed: the nodes with secrets that all clients could read.
    """

    secured: tuple[str, ...]
    unchanged: int
    refused: tuple[str, ...]
    exposed: tuple[str, ...]


def secure_nodes(config: ZooKeeperConfig, *, dry_run: bool = False) -> AclChange:
    """Set the ACLs of all existing nodes of the brokers.

    :param config: the session's settings, with the credentials of the brokers.
    :param dry_run: if true, change nothing.
    :raises MetadataStoreUnavailableError: ZooKeeper does not respond in time. Nodes may have changed; the caller can
        repeat the call.
    """
    session = Session(replace(config, is_broker=False))  # A broker's session would already protect nodes with secrets.
    try:
        return _AclChanger(session, config, dry_run=dry_run).run()
    finally:
        session.close()


class _AclChanger:
    def __init__(self, session: Session, config: ZooKeeperConfig, *, dry_run: bool) -> None:
        self._session = session
        self._owner = make_digest_acl_credential(*config.auth.split(":", 1)) if config.auth else None
        self._has_chroot = bool(config.address.chroot)
        self._is_dry_run = dry_run
        self._refused: set[str] = set()

    def run(self) -> AclChange:
        acls = self._read_acls(self._nodes())
        wrong = [path for path, acl in acls.items() if not is_secured(path, acl, self._owner)]
        exposed = [path for path, acl in acls.items() if paths.is_secret(path) and is_world_readable(acl)]
        secured = wrong if self._is_dry_run else self._set_acls(wrong)
        return AclChange(
            tuple(sorted(secured)), len(acls) - len(wrong), tuple(sorted(self._refused)), tuple(sorted(exposed))
        )

    def _nodes(self) -> list[str]:
        """Return the paths of the brokers' nodes. The root of the ensemble may belong to other programs."""
        found = [*(["/"] if self._has_chroot else []), paths.CONSUMERS, *paths.BROKER_ROOTS]
        level = list(paths.BROKER_ROOTS)
        while level:
            children = self._all(level, lambda client, path: client.get_children_async(path))
            level = [f"{path}/{name}" for path, names in children.items() for name in names]
            found += level
        return found

    def _read_acls(self, nodes: list[str]) -> dict[str, list[ACL]]:
        answers = self._all(nodes, lambda client, path: client.get_acls_async(path))
        return {path: acl for path, (acl, _) in answers.items()}

    def _set_acls(self, nodes: list[str]) -> list[str]:
        # Repeated after a lost response: a second time has the same effect.
        return list(self._all(nodes, lambda client, path: client.set_acls_async(path, acl_of(path))))

    def _all(self, nodes: list[str], send: Any) -> dict[str, Any]:
        """Return the results by path. Deleted nodes are left out, and so are refused ones, which are noted."""
        sends = [lambda client, path=path: send(client, path) for path in nodes]
        found: dict[str, Any] = {}
        for path, answer in zip(nodes, self._session.read_all(sends, Deadline(CALL_TIMEOUT_S)), strict=True):
            if isinstance(answer, (kazoo.NoAuthError, kazoo.InvalidACLError)):
                self._refused.add(path)
            elif isinstance(answer, kazoo.ZookeeperError) and not isinstance(answer, kazoo.NoNodeError):
                refuse(path, answer)
            elif not isinstance(answer, kazoo.NoNodeError):
                found[path] = answer
        return found
