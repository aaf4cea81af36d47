"""The security log: the content of lines, their limits, and values that clients choose."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.security_log import RequestSource, SecurityLog
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode
from barnabas.log_lines import JsonLines, LimitedLog, LogEvent, PlainLines
from barnabas.net.server_connection import Endpoints
from barnabas.security import security_log
from barnabas.security.acls import Operation
from barnabas.security.principal import Principal
from barnabas.security.security_log import HOSTS_MAX, LINES_MAX, VALUE_CHARACTERS_MAX, HttpSecurityLog

ALICE = Principal("User", "alice")
RULE = "an ACL denies it: deny User:alice write topic:clicks"
PERIOD_S = LimitedLog.PERIOD_S + 1


class Written:
    """The security log of a broker, and its lines in both formats."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = SecurityLog(self.clock.monotonic)
        self.plain_text, self.json_text = io.StringIO(), io.StringIO()

    @property
    def plain(self) -> list[str]:
        return self.plain_text.getvalue().splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.json_text.getvalue().splitlines()]

    def refuse(self, host: str = "10.0.0.1", resource: str = "topic:clicks", client_id: str = "reports") -> None:
        self.log.note_refusal(source(host, client_id), Operation.WRITE, resource, RULE)


def source(host: str = "10.0.0.1", client_id: str | None = "reports") -> RequestSource:
    """Return the source of a Produce request."""
    return RequestSource(ALICE, Endpoints(host, 4711, "10.0.0.9"), "SASL_SSL", client_id, "Produce")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    made = Written()
    handlers = []
    monkeypatch.setattr(security_log.log, "propagate", False)
    security_log.log.setLevel(logging.INFO)
    for stream, lines in ((made.plain_text, PlainLines()), (made.json_text, JsonLines())):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(lines)
        security_log.log.addHandler(handler)
        handlers.append(handler)
    yield made
    security_log.log.setLevel(logging.NOTSET)
    for handler in handlers:
        security_log.log.removeHandler(handler)


def test_refusal_names_the_client_the_resource_and_the_rule(written: Written) -> None:
    written.refuse()
    (line,), (found,) = written.plain, written.objects
    assert line.endswith(
        " WARNING refused a request: principal=User:alice address=10.0.0.1:4711 listener=SASL_SSL client_id=reports"
        f' api=Produce operation=WRITE resource=topic:clicks result=denied rule="{RULE}"'
    )
    del found["timestamp"], found["message"]
    assert found == {
        "level": "WARNING",
        "logger": "barnabas.security.audit",
        "event": "security.request-refused",
        "principal": "User:alice",
        "address": "10.0.0.1:4711",
        "listener": "SASL_SSL",
        "client_id": "reports",
        "api": "Produce",
        "operation": "WRITE",
        "resource": "topic:clicks",
        "result": "denied",
        "rule": RULE,
    }


def test_changes_name_their_result(written: Written) -> None:
    refusal = ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "planted reason")
    written.log.note_change(LogEvent.USERS_CHANGED, source(), "set", "user:bob", None, "SCRAM-SHA-256")
    written.log.note_change(LogEvent.ACLS_CHANGED, source(), "create", "topic:clicks", refusal)
    assert [(each["level"], each["event"], each["result"], each.get("change")) for each in written.objects] == [
        ("INFO", "security.users-changed", "done", "SCRAM-SHA-256"),
        ("INFO", "security.acls-changed", "UNACCEPTABLE_CREDENTIAL", None),
    ]
    assert [" ".join(line.split()[3:6]) for line in written.plain] == [
        "changed security settings:",
        "cannot change security",
    ]


def test_failed_authentication_names_the_mechanism_and_an_earlier_principal(written: Written) -> None:
    for principal in (None, ALICE):
        written.log.note_failed_authentication(
            Endpoints("::1", 4711, "::1"), "SASL_SSL", "PLAIN", "wrong password", principal
        )
    assert [each.get("principal") for each in written.objects] == [None, "User:alice"]
    assert {(each["event"], each["address"], each["mechanism"]) for each in written.objects} == {
        ("connection.authentication-failed", "[::1]:4711", "PLAIN")
    }


@pytest.mark.parametrize(
    "value",
    [
        "a\n2026-01-01 WARNING refused a request: principal=User:bob",
        'a" result=allowed x="',
        "\u2028\u202e\x1b[31m\x00\ud800",
        "\\n\r\n",
    ],
)
def test_no_value_begins_a_line_or_a_field(written: Written, value: str) -> None:
    written.refuse(resource=f"topic:{value}", client_id=value)
    (line,), (found,) = written.plain, written.objects
    assert line.isprintable()
    assert line.count(" result=denied") == 1
    before, _, after = line.partition(' client_id="')
    assert before.endswith("listener=SASL_SSL")
    _, _, rest = after.replace("\\\\", "").replace('\\"', "").partition('"')
    assert rest.startswith(" api=Produce operation=WRITE resource=")
    assert (found["resource"], found["client_id"], found["result"]) == (f"topic:{value}", value, "denied")


def test_long_values_are_cut(written: Written) -> None:
    written.refuse(resource="x" * 40_000, client_id="\n" * 40_000)
    (found,) = written.objects
    assert found["resource"] == "x" * VALUE_CHARACTERS_MAX + f"... ({40_000 - VALUE_CHARACTERS_MAX} more characters)"
    assert len(written.plain[0]) < 2_000


def test_one_client_does_not_hide_the_lines_of_others(written: Written) -> None:
    for _ in range(1_000):
        written.refuse()
    written.refuse("10.0.0.2")
    assert [each["address"] for each in written.objects] == ["10.0.0.1:4711"] * LimitedLog.LINES_MAX + ["10.0.0.2:4711"]
    written.clock.advance(PERIOD_S)
    written.refuse()
    assert written.objects[-2]["message"] == "990 further refused requests from 10.0.0.1 are not logged"


def test_lines_and_addresses_are_limited_in_total(written: Written) -> None:
    for number in range(2 * HOSTS_MAX):
        written.refuse(f"10.0.{number // 250}.{number % 250}%eth0")
    assert len(written.plain) == LINES_MAX
    written.log.note_failed_authentication(Endpoints("10.9.9.9", 1, "h"), "SASL_SSL", "PLAIN", "wrong password")
    assert written.objects[-1]["event"] == "connection.authentication-failed"
    written.clock.advance(PERIOD_S)
    written.refuse("10.9.9.9")
    assert written.objects[-2]["message"] == f"{2 * HOSTS_MAX - LINES_MAX} further refused requests are not logged"


def test_http_servers_write_the_same_log(written: Written) -> None:
    log = HttpSecurityLog("registry", written.clock.monotonic)
    log.note_failed_authentication("10.0.0.1", "al ice", "wrong password")
    for _ in range(1_000):
        log.note_refusal(ALICE, "10.0.0.1", "GET /subjects/a", "User is denied operation Read on Subject: a")
    assert written.objects[0]["event"] == "connection.authentication-failed"
    assert 'failed to authenticate: user="al ice" address=10.0.0.1 listener=registry' in written.plain[0]
    assert (written.objects[1]["principal"], written.objects[1]["request"]) == ("User:alice", "GET /subjects/a")
    assert len(written.plain) == 1 + LimitedLog.LINES_MAX
