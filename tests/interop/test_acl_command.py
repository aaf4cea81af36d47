"""`barnabas acl` and Admin's ACLs at a secured broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.commands import run
from barnabas.security.acls import AclBinding, AclEntry, AclFilter, Operation, Permission, ResourcePattern, ResourceType
from tests.support.acl_grants import AUTHORIZER
from tests.support.secured_broker import PASSWORD, USER, SecuredBroker, secured_broker

READING = AclBinding(
    ResourcePattern(ResourceType.TOPIC, "clicks"), AclEntry("User:bob", "*", Operation.READ, Permission.ALLOW)
)
SUBJECT = AclBinding(
    ResourcePattern(ResourceType.SUBJECT, "clicks-value"), AclEntry("User:bob", "*", Operation.READ, Permission.ALLOW)
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("acl")
    with secured_broker(folder, **{"authorizer.class.name": AUTHORIZER}) as running:
        with barnabas.Admin(**running.client()) as admin:
            admin.set_user_password("bob", PASSWORD)
        yield running


@pytest.fixture
def profile(broker: SecuredBroker, tmp_path: Path) -> str:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    file = tmp_path / "admin.toml"
    settings = {
        "bootstrap.servers": broker.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.cafile": str(broker.certificates.ca),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": f"${{file:{password}}}",
    }
    file.write_text("".join(f'"{name}" = {json.dumps(value)}\n' for name, value in settings.items()))
    file.chmod(0o600)
    return str(file)


def test_acls_are_created_described_and_deleted(broker: SecuredBroker) -> None:
    with barnabas.Admin(**broker.client()) as admin:
        admin.create_acls([READING, SUBJECT, READING])
        assert admin.describe_acls() == [READING]
        assert admin.describe_acls(AclFilter(ResourceType.SUBJECT)) == [SUBJECT]
        assert admin.describe_acls(AclFilter(principal="User:carol")) == []
        mine, others = AclFilter(principal="User:bob"), AclFilter(principal="User:carol")
        assert admin.delete_acls([mine, others]) == {mine: [READING], others: []}
        assert admin.delete_acls([AclFilter(ResourceType.SUBJECT)])[AclFilter(ResourceType.SUBJECT)] == [SUBJECT]
        assert admin.describe_acls() == []


def test_command_allows_explains_and_removes(
    broker: SecuredBroker, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def acl(*words: str) -> str:
        code = run(["--profile", profile, "acl", *words])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return captured.out

    assert "denied: no ACL concerns the resource" in acl("why", "User:bob", "read", "topic:clicks")
    acl("allow", "User:bob", "topic:clicks", "--consumer", "ctr", "--producer")
    acl("allow", "User:bob", "read", "subject:clicks-value")
    assert acl("why", "User:bob", "read", "topic:clicks") == "allowed: rule: User:bob may read topic:clicks\n"
    assert acl("why", f"User:{USER}", "alter", "cluster") == f"allowed: User:{USER} is in super.users\n"
    acl("deny", "User:bob", "all", "topic:cl*")
    assert acl("why", "User:bob", "read", "topic:clicks") == "denied: rule: User:bob may not all topic:cl*\n"
    assert len(json.loads(acl("list", "User:bob", "--json"))) == 7
    acl("remove", "User:bob", "-y")
    assert json.loads(acl("list", "--json")) == []


def test_brokers_without_acls_name_the_setting(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker, barnabas.Admin(**broker.client()) as admin:
        with pytest.raises(barnabas.ApiError, match=r"authorizer\.class\.name") as refused:
            admin.describe_acls()
        assert refused.value.code is barnabas.ErrorCode.SECURITY_DISABLED
        with pytest.raises(barnabas.ApiError, match=r"authorizer\.class\.name"):
            admin.create_acls([READING])
        with pytest.raises(barnabas.ApiError, match=r"authorizer\.class\.name"):
            admin.delete_acls([AclFilter()])
