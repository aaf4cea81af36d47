"""The SCRAM credentials of users: changes, damaged nodes, decoys, and the import of the first users."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers.describe_user_scram_credentials import describe_user_scram_credentials
from barnabas.broker.super_users import SuperUsers
from barnabas.broker.user_credentials import Upsertion, UserCredentials
from barnabas.coordination import acls, configs, paths, topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.subtrees import ensure_paths
from barnabas.errors import ConfigurationError, ErrorCode
from barnabas.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
    acl_as_fields,
)
from barnabas.security.principal import ANONYMOUS
from barnabas.security.scram import ScramMechanism, credential_from_password

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
SALT = b"salt of 16 bytes"
CREDENTIAL = credential_from_password(SHA_256, "password", SALT)
SALTED = bytes(range(32))


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[EmbeddedMetadataStore]:
    made = EmbeddedMetadataStore(tmp_path / "tree.sqlite")
    topic_metadata_store.prepare(made, "cluster-1")
    yield made
    made.close()


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


async def here(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def users_of(tree: EmbeddedMetadataStore, random: bytes = b"r", file: Path | None = None) -> UserCredentials:
    users = UserCredentials(tree, here, lambda size: random * size)  # type: ignore[arg-type]
    run(users.load(file))
    return users


def write(tree: EmbeddedMetadataStore, user: str, data: bytes) -> None:
    path = paths.user_config(user)
    ensure_paths(tree, [paths.USER_CONFIGS, path])
    tree.set(path, data)


def upsertion(user: str = "alice", mechanism: int = 1, **changed: Any) -> Upsertion:
    given = {"iterations": 4_096, "salt": SALT, "salted_password": SALTED, **changed}
    return Upsertion(user, mechanism, **given)


def altered(users: UserCredentials, *alterations: Upsertion) -> dict[str, ErrorCode | None]:
    results = run(users.alter(alterations))
    return {user: None if error is None else error.code for user, error in results.items()}


def test_credential_is_in_force_here_and_at_other_brokers(tree: EmbeddedMetadataStore) -> None:
    users, other = users_of(tree), users_of(tree)
    assert altered(users, upsertion(), upsertion("bob", 2, salted_password=SALTED * 2)) == {"alice": None, "bob": None}
    assert users.find(SHA_256, "alice") is not None
    assert users.find(SHA_512, "alice") is None
    assert other.find(SHA_512, "bob") is None
    run(other.reread())
    assert other.find(SHA_512, "bob") == users.find(SHA_512, "bob") is not None


def test_deleted_credential_leaves_the_other_one(tree: EmbeddedMetadataStore) -> None:
    users = users_of(tree)
    altered(users, upsertion(), upsertion(mechanism=2, salted_password=SALTED * 2))
    assert altered(users, Upsertion("alice", 1)) == {"alice": None}
    assert users.users().keys() == {"alice"}
    assert users.find(SHA_256, "alice") is None
    assert altered(users, Upsertion("alice", 1)) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    assert altered(users, Upsertion("alice", 2)) == {"alice": None}
    assert not users.users()


@pytest.mark.parametrize(
    ("alteration", "code"),
    [
        (upsertion(iterations=4_095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=bytes(1_000)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted_password=b"short"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a\nb"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_user_with_an_invalid_alteration_keeps_all_credentials(
    tree: EmbeddedMetadataStore, alteration: Upsertion, code: ErrorCode
) -> None:
    users = users_of(tree)
    altered(users, upsertion())
    before = dict(users.users())
    assert altered(users, alteration) == {alteration.user: code}
    assert altered(users, upsertion(), upsertion()) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert users.users() == before


@pytest.mark.parametrize("name", ["a/b", "..", "ü é", "a,b=c", "%00", "x" * 1_000, "config"])
def test_any_valid_name_is_kept(tree: EmbeddedMetadataStore, name: str) -> None:
    assert altered(users_of(tree), upsertion(name)) == {name: None}
    assert users_of(tree).users().keys() == {name}


TEXT = CREDENTIAL.text()
DAMAGED = {
    "no JSON": b"salt",
    "no UTF-8": b"\xff" + TEXT.encode(),
    "a credential in place of the settings": json.dumps({"version": 1, "config": TEXT}).encode(),
    "a list": json.dumps([TEXT]).encode(),
    "nested": b"[" * 100_000,
    "keys of another size": json.dumps({"version": 1, "config": {"SCRAM-SHA-512": TEXT}}).encode(),
    "too many iterations": json.dumps(
        {"version": 1, "config": {"SCRAM-SHA-256": TEXT.replace("4096", "99999999")}}
    ).encode(),
    "a missing field": json.dumps({"version": 1, "config": {"SCRAM-SHA-256": TEXT[:-16]}}).encode(),
    "a number": json.dumps({"version": 1, "config": {"SCRAM-SHA-256": 7}}).encode(),
    "a nested credential": json.dumps({"version": 1, "config": {"SCRAM-SHA-256": {"salt": TEXT}}}).encode(),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_node_hides_no_other_user_and_shows_no_key(
    tree: EmbeddedMetadataStore, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    altered(users_of(tree), upsertion("bob"))
    write(tree, "alice", DAMAGED[damage])
    users = users_of(tree)
    assert users.find(SHA_256, "alice") is None
    assert users.find(SHA_512, "alice") is None
    assert users.find(SHA_256, "bob") is not None
    assert "/config/users/alice" in caplog.text
    secrets = {text for part in TEXT.split(",")[:3] for text in [part.partition("=")[2][:20]]}
    assert not any(secret in caplog.text for secret in secrets)


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_node_can_be_replaced(tree: EmbeddedMetadataStore, damage: str) -> None:
    write(tree, "alice", DAMAGED[damage])
    users = users_of(tree)
    assert altered(users, upsertion()) == {"alice": None}
    assert users.find(SHA_256, "alice") is not None


def test_quota_in_the_node_of_a_user_is_kept(tree: EmbeddedMetadataStore) -> None:
    write(tree, "alice", json.dumps({"version": 1, "config": {"producer_byte_rate": "1024"}}).encode())
    altered(users_of(tree), upsertion())
    assert configs.read_user_configs(tree)["alice"]["producer_byte_rate"] == "1024"


def test_brokers_derive_the_same_decoys_also_after_a_restart(tree: EmbeddedMetadataStore) -> None:
    first, second = users_of(tree, b"1"), users_of(tree, b"2")
    assert first.decoys.credential(SHA_256, "mallory") == second.decoys.credential(SHA_256, "mallory")


@pytest.mark.parametrize("data", [b"", b"short", b"\xff" * 20, b"x" * 1_000_000])
def test_damaged_secret_of_the_decoys_does_not_stop_a_start(tree: EmbeddedMetadataStore, data: bytes) -> None:
    users_of(tree)
    tree.set(paths.DECOY_SECRET, data)
    first, second = users_of(tree, b"1"), users_of(tree, b"2")
    assert first.decoys.credential(SHA_256, "mallory") == second.decoys.credential(SHA_256, "mallory")


def test_first_users_are_imported_once(tree: EmbeddedMetadataStore, tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    file.write_text(json.dumps({"users": {"admin": {"SCRAM-SHA-256": TEXT}}}))
    users = users_of(tree, file=file)
    assert users.find(SHA_256, "admin") == CREDENTIAL
    altered(users, Upsertion("admin", 1))
    file.unlink()
    assert not users_of(tree, file=file).users()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"users": []}',
        b'{"users": {"a": "b"}}',
        b'{"users": {}, "acls": [1]}',
        b'{"users": {}, "acls": [{"principal": "User:a"}]}',
        b'{"users": {"a": {"PLAIN": "b"}}}',
        b'{"users": {"a": {"SCRAM-SHA-256": 1}}}',
        json.dumps({"users": {"a\nb": {"SCRAM-SHA-256": TEXT}}}).encode(),
        json.dumps({"users": {"": {"SCRAM-SHA-256": TEXT}}}).encode(),
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_malformed_file_of_first_users_stops_the_start_without_its_content(
    tree: EmbeddedMetadataStore, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "users.json"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        users_of(tree, file=file)
    assert str(caught.value) == f"{file} is not a file of barnabas security init"
    assert not configs.read_user_configs(tree)


def described(users: UserCredentials, *names: str) -> dict[str, list[ErrorCode]]:
    """Return the error codes of the results for each user that a request names."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    call: Any = SimpleNamespace(connection=SimpleNamespace(principal=ANONYMOUS))
    open_to_all = SuperUsers("", restricts_users=False)
    response = describe_user_scram_credentials.function(users, open_to_all, request, call)
    codes: dict[str, list[ErrorCode]] = {}
    for each in response.results:
        codes.setdefault(str(each.user), []).append(ErrorCode.of(each.error_code))
    return codes


def test_user_named_twice_in_a_description_has_one_result(tree: EmbeddedMetadataStore) -> None:
    users = users_of(tree)
    assert altered(users, upsertion()) == {"alice": None}
    assert described(users, "alice") == {"alice": [ErrorCode.NONE]}
    assert described(users, "alice", "bob", "alice") == {
        "alice": [ErrorCode.DUPLICATE_RESOURCE],
        "bob": [ErrorCode.RESOURCE_NOT_FOUND],
    }


def test_description_without_names_has_all_users(tree: EmbeddedMetadataStore) -> None:
    users = users_of(tree)
    assert altered(users, upsertion()) == {"alice": None}
    assert described(users) == {"alice": [ErrorCode.NONE]}


class ComparedName(str):
    """A name that counts its comparisons with other names."""

    __slots__ = ()
    count = 0

    def __eq__(self, other: object) -> bool:
        ComparedName.count += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def test_work_for_a_description_grows_with_the_number_of_names_only(tree: EmbeddedMetadataStore) -> None:
    users = users_of(tree)
    names = [ComparedName(f"user-{number}") for number in range(1_000)]
    ComparedName.count = 0
    assert len(described(users, *names)) == len(names)
    assert ComparedName.count < 10 * len(names)


def test_first_acls_are_imported_once(tree: EmbeddedMetadataStore, tmp_path: Path) -> None:
    reading = AclBinding(
        ResourcePattern(ResourceType.TOPIC, "_schemas"),
        AclEntry("User:registry", "*", Operation.READ, Permission.ALLOW),
    )
    file = tmp_path / "users.json"
    file.write_text(json.dumps({"users": {}, "acls": [acl_as_fields(reading)]}))
    users_of(tree, file=file)
    assert acls.read_acls(tree) == {reading.pattern: (reading.entry,)}
    acls.remove(tree, reading.pattern, lambda _entry: True)
    users_of(tree, file=file)
    assert acls.read_acls(tree) == {}
