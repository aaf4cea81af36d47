"""`barnabas quota`, over an administrator that keeps the quotas in memory."""

from __future__ import annotations

import json

import pytest

from barnabas.cli import quota as command
from barnabas.cli.commands import run
from barnabas.client.admin.quotas import ClientQuota


class FakeAdmin:
    def __init__(self) -> None:
        self.quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}

    def __enter__(self) -> FakeAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_client_quotas(self, match=None, *, types=(), strict=False):
        return [
            ClientQuota(dict(entity), dict(quotas))
            for entity, quotas in self.quotas.items()
            if (match or {}).items() <= dict(entity).items() and (not strict or match == dict(entity))
        ]

    def alter_client_quotas(self, entity, quotas):
        kept = {**self.quotas.get(tuple(entity.items()), {}), **quotas}
        self.quotas[tuple(entity.items())] = {key: value for key, value in kept.items() if value is not None}


@pytest.fixture
def admin(monkeypatch) -> FakeAdmin:
    made = FakeAdmin()
    monkeypatch.setattr(command, "connect", lambda _connection: made)
    return made


def test_quotas_are_set_listed_and_removed(admin, capsys) -> None:
    assert run(["quota", "set", "--user", "alice", "producer_byte_rate=1048576", "request_percentage=12.5"]) == 0
    assert run(["quota", "set", "--user-default", "--client-id", "app", "consumer_byte_rate=1e6"]) == 0
    assert admin.quotas == {
        (("user", "alice"),): {"producer_byte_rate": 1048576.0, "request_percentage": 12.5},
        (("user", None), ("client-id", "app")): {"consumer_byte_rate": 1e6},
    }
    assert "user alice: producer_byte_rate = 1048576" in capsys.readouterr().out
    assert run(["quota", "list"]) == 0
    listed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["alice", "request_percentage", "12.5"] in listed
    assert ["(default)", "app", "consumer_byte_rate", "1000000"] in listed
    assert run(["quota", "list", "--user", "alice", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["entity"] == {"user": "alice"}
    assert run(["quota", "remove", "--user", "alice", "request_percentage"]) == 0
    assert run(["quota", "remove", "--user", "alice", "request_percentage"]) == 1
    assert run(["quota", "remove", "--user", "alice"]) == 0
    assert admin.quotas[("user", "alice"),] == {}
    assert run(["quota", "remove", "--user", "alice"]) == 1
    assert "user alice has no quotas" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["set", "producer_byte_rate=1"], "--user NAME"),
        (["remove"], "--user NAME"),
        (["set", "--user", "a", "--user-default", "producer_byte_rate=1"], "exclude each other"),
        (["set", "--user", "a", "--ip", "10.0.0.1", "producer_byte_rate=1"], "--ip cannot be combined"),
        (["set", "--user", "a", "unknown=1"], "unknown quota 'unknown'"),
        (["set", "--user", "a", "producer_byte_rate=many"], "it must be a number"),
        (["set", "--user", "a", "producer_byte_rate"], "="),
        (["remove", "--user", "a", "unknown"], "unknown quota 'unknown'"),
    ],
)
def test_wrong_usage_is_explained(admin, capsys, arguments, reason) -> None:
    assert run(["quota", *arguments]) == 2
    assert reason in capsys.readouterr().err
    assert admin.quotas == {}
