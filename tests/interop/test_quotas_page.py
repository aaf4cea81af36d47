"""docs/how-to/quotas.md: each command runs as it stands, but for the address of the broker."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import barnabas as client
from barnabas.cli.commands import run
from tests.support.broker_process import BrokerProcess

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "quotas.md"
COMMANDS = re.findall(r"(?:^\$ |`)(barnabas (?:quota|config) [^`\n]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_commands_of_the_page_work(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", broker.bootstrap)
    assert len(COMMANDS) >= 7
    for command in COMMANDS:
        assert run(shlex.split(command)[1:]) == 0, command
    with client.Admin(broker.bootstrap) as admin:
        found = {tuple(each.entity.items()): each.quotas for each in admin.describe_client_quotas()}
        setting = admin.describe_config(broker=0)["quota.connection.creation.default"]
    assert found == {
        (("user", "alice"),): {"producer_byte_rate": 1_048_576, "consumer_byte_rate": 2_097_152},
        (("user", None),): {"request_percentage": 50},
        (("ip", "10.0.0.7"),): {"connection_creation_rate": 20},
    }
    assert setting.value == "2000"
