"""`barnabas user`, over an administrator that keeps the users in memory."""

from __future__ import annotations

import inspect
import json

import pytest

from barnabas.cli import user as command
from barnabas.cli.commands import run
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.users import ScramCredentialInfo, UserDescription
from barnabas.errors import ApiError, ErrorCode

BOTH = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_ITERATIONS = inspect.signature(Admin.set_user_password).parameters["iterations"].default


class FakeAdmin:
    """Keeps the passwords of users by mechanism, and the iterations of the last one."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, str]] = {}
        self.iterations = 0

    def __enter__(self) -> FakeAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_users(self, names=None):
        for name in names or ():
            if name not in self.users:
                raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credentials")
        return [
            UserDescription(name, tuple(ScramCredentialInfo(each, 4096) for each in sorted(self.users[name])))
            for name in sorted(names or self.users)
        ]

    def set_user_password(self, name, password, *, mechanisms, iterations=DEFAULT_ITERATIONS):
        self.users.setdefault(name, {}).update(dict.fromkeys(mechanisms, password))
        self.iterations = iterations

    def delete_user(self, name, *, mechanisms):
        for each in mechanisms or BOTH:
            self.users[name].pop(each, None)
        if not self.users[name]:
            del self.users[name]


@pytest.fixture
def admin(monkeypatch):
    made = FakeAdmin()
    monkeypatch.setattr(command, "connect", lambda _connection: made)
    monkeypatch.setenv("OLD", "one")
    monkeypatch.setenv("NEW", "two")
    return made


def test_user_is_created_listed_and_deleted(admin, capsys) -> None:
    assert run(["user", "create", "alice", "--password-env", "OLD"]) == 0
    assert admin.users == {"alice": dict.fromkeys(BOTH, "one")}
    assert admin.iterations == 4096
    assert run(["user", "list", "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["user"], [each["mechanism"] for each in listed["credentials"]]) == ("alice", list(BOTH))
    assert run(["user", "delete", "alice"]) == 2  # no terminal, and no -y
    assert run(["user", "delete", "alice", "-y"]) == 0
    assert admin.users == {}


def test_existing_user_is_not_created_again_and_missing_user_is_not_changed(admin, capsys) -> None:
    assert run(["user", "password", "alice", "--password-env", "OLD"]) == 1
    assert "barnabas user create alice" in capsys.readouterr().err
    assert run(["user", "create", "alice", "--password-env", "OLD"]) == 0
    assert run(["user", "create", "alice", "--password-env", "NEW"]) == 1
    assert "barnabas user password alice" in capsys.readouterr().err
    assert set(admin.users["alice"].values()) == {"one"}
    assert run(["user", "delete", "alice", "bob", "-y"]) == 1
    assert "alice" in admin.users


def test_password_changes_for_one_mechanism_or_for_both(admin) -> None:
    assert run(["user", "create", "alice", "--password-env", "OLD"]) == 0
    assert run(["user", "password", "alice", "--mechanism", "scram-sha-256", "--password-env", "NEW"]) == 0
    assert admin.users["alice"] == {"SCRAM-SHA-256": "two", "SCRAM-SHA-512": "one"}
    assert run(["user", "delete", "alice", "--mechanism", "SCRAM-SHA-512", "-y"]) == 0
    assert admin.users["alice"] == {"SCRAM-SHA-256": "two"}


def test_password_is_no_option(admin, capsys) -> None:
    assert run(["user", "create", "alice", "--password", "planted"]) == 2
    assert "planted" not in capsys.readouterr().err
