"""The ACLs of nodes: the owner, and the permissions of all other clients."""

from __future__ import annotations

import re

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from barnabas.coordination import paths
from barnabas.coordination.zookeeper.acls import acl_of, is_secured, is_world_readable

READ, WRITE, CREATE, DELETE, ADMIN = (1 << number for number in range(5))
OURS, OTHER = (make_acl("digest", name, all=True) for name in ("barnabas:ours", "barnabas:other"))
READABLE = make_acl("world", "anyone", read=True)


@pytest.mark.parametrize(
    ("path", "world"),
    [
        ("/", READ),
        ("/brokers/topics/clicks", READ),
        ("/config/users", READ),
        ("/config/users/alice", 0),
        (paths.DECOY_SECRET, 0),
        ("/consumers", READ | CREATE | DELETE),
        ("/consumers/ctr", READ),
    ],
)
def test_only_the_owner_changes_a_node(path: str, world: int) -> None:
    owner, *others = acl_of(path)
    assert (owner.perms, owner.id.scheme) == (READ | WRITE | CREATE | DELETE | ADMIN, "auth")
    assert [(each.perms, each.id.scheme) for each in others] == ([(world, "world")] if world else [])
    assert is_secured(path, [OURS, *others], OURS.id.id)


@pytest.mark.parametrize(
    ("path", "acl", "secured"),
    [
        ("/brokers", [OURS, READABLE], True),
        ("/brokers", [OURS, OTHER, READABLE], True),
        ("/brokers", [OTHER, READABLE], False),
        ("/brokers", [READABLE], False),
        ("/brokers", OPEN_ACL_UNSAFE, False),
        ("/brokers", [OURS, *OPEN_ACL_UNSAFE], False),
        ("/brokers", [make_acl("digest", OURS.id.id, read=True, write=True), READABLE], False),
        ("/consumers", [OURS, READABLE], False),
        ("/config/users/alice", [OURS, READABLE], False),
        ("/config/users/alice", [OURS], True),
    ],
)
def test_other_acls_of_existing_nodes_are_detected(path: str, acl: list[object], secured: bool) -> None:
    assert is_secured(path, acl, OURS.id.id) is secured
    assert is_world_readable(acl) is any(each in acl for each in (READABLE, *OPEN_ACL_UNSAFE))


def test_owner_known_by_its_certificate_is_not_compared() -> None:
    assert is_secured("/brokers", [OTHER, READABLE], None)
    assert not is_secured("/brokers", OPEN_ACL_UNSAFE, None)


def test_all_nodes_belong_to_brokers_or_to_consumers() -> None:
    known = [value for name, value in vars(paths).items() if name.isupper() and isinstance(value, str)]
    roots = {re.match(r"/[^/]+", path)[0] for path in known if path.startswith("/")}  # type: ignore[index]
    assert roots == {*paths.BROKER_ROOTS, paths.CONSUMERS}
