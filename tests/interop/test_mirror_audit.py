"""The audit across a mirror between two real brokers: produced here, mirrored there, whatever befell the mirror."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import barnabas
from barnabas.cli.audit import audit as command
from barnabas.errors import ApiError
from barnabas.records import iter_headers
from tests.interop.test_audit import edit_log
from tests.interop.test_completeness_pages import whole
from tests.support.broker_process import BrokerProcess
from tests.support.console_process import running_console
from tests.support.mirror_process import MirrorProcess
from tests.support.reading import wait_until

TOPIC = "clicks"
PARTITIONS = 2
KILLS = 3
ROUND = 1_000


class Pair(NamedTuple):
    """Two brokers, each a cluster."""

    a: BrokerProcess
    b: BrokerProcess


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    brokers = Pair(BrokerProcess(tmp_path / "a"), BrokerProcess(tmp_path / "b"))
    for broker in brokers:
        broker.begin()
    for broker in brokers:
        broker.wait_until_ready()
    yield brokers
    for broker in brokers:
        broker.close()


def send(bootstrap: str, rounds: int) -> None:
    """Send records of three minutes, in small batches, by an audited producer for each round."""
    for _ in range(rounds):
        with barnabas.Producer(bootstrap, audit=True, client_id="shop", batch_size=1_000) as producer:
            for each in range(ROUND):
                producer.send(TOPIC, b"%d" % each, partition=each % PARTITIONS, timestamp_ms=each * 180)


def audit(bootstrap: str, *words: str) -> tuple[int, Any]:
    """Run `barnabas audit --json`; return the exit code and what it says."""
    result = CliRunner().invoke(command, [*words, "--json", "-b", bootstrap])
    assert result.exit_code in (0, 1), (result.output, result.exception)
    return result.exit_code, json.loads(result.stdout)


def counts(found: Any) -> list[tuple[int, int, int]]:
    return [(each["produced"], each["mirrored"], each["stored"]) for each in found["windows"]]


def there(bootstrap: str) -> int:
    with barnabas.Admin(bootstrap) as admin:
        places = [(f"a-{TOPIC}", each) for each in range(PARTITIONS)]
        try:
            return sum(admin.end_offsets(places).values()) if f"a-{TOPIC}" in admin.list_topics() else 0
        except ApiError:
            return 0


def test_account_of_mirrors_that_are_killed_is_that_of_one_that_was_not(pair: Pair, tmp_path: Path) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    with barnabas.Admin(a) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
    send(a, 1)
    for kill in range(KILLS):
        mirror = MirrorProcess(a, b, tmp_path / f"killed-{kill}.log", "--topics", TOPIC, "--prefix", "a-")
        send(a, 3)
        wait_until(lambda kill=kill: there(b) > ROUND * (1 + 3 * kill), mirror.log.read_text)  # type: ignore[misc]
        mirror.kill()
    mirror = MirrorProcess(a, b, tmp_path / "whole.log", "--topics", TOPIC, "--prefix", "a-", "--once")
    assert mirror.wait() == 0, mirror.log.read_text()
    sent = ROUND * (1 + 3 * KILLS)
    code, found = audit(b, f"a-{TOPIC}", "--source", a)
    assert code == 0, found
    assert {each["status"] for each in found["windows"]} == {"complete"}
    assert [sum(each) for each in zip(*counts(found), strict=True)] == [sent] * 3
    assert found["applications"]["shop"]["mirrored"] == sent
    assert audit(b, "why", f"a-{TOPIC}", "--source", a) == (0, [])
    # What comes now is in the source only: not lost, but not there yet.
    send(a, 1)
    code, found = audit(b, f"a-{TOPIC}", "--source", a)
    assert (code, sum(each["open"] for each in found["windows"])) == (0, ROUND)
    # By itself, the target's cluster can say that all is there that the mirror has brought.
    code, found = audit(b, f"a-{TOPIC}")
    assert (code, found["complete_until"]) == (0, 3 * 60_000)
    with running_console(b) as console:
        strip = whole(console, f"/completeness/strip?topic=a-{TOPIC}")
    assert "mirrored: 3 complete" in strip
    assert "stored: 3 complete" in strip
    assert "produced: " not in strip  # the source's producers report to the source
    with running_console(b, "--source", a) as console:
        strip = whole(console, f"/completeness/strip?topic=a-{TOPIC}")
        assert "produced: 3 complete" in strip
        assert "mirrored: 3 open" in strip  # the last round is in the source only
    pair.a.kill()
    with running_console(b, "--source", a) as console:
        page = whole(console, f"/completeness/topic?topic=a-{TOPIC}")
    assert "the source of the topic cannot be read" in page
    assert "<dt>mirrored</dt>" in page


def test_batch_that_the_target_has_lost_is_found_with_its_source_offsets(pair: Pair, tmp_path: Path) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    with barnabas.Admin(a) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
    send(a, 1)
    mirror = MirrorProcess(a, b, tmp_path / "mirror.log", "--topics", TOPIC, "--once")
    assert mirror.wait() == 0, mirror.log.read_text()
    lost: list[int] = []

    def lose(batches: list[bytes]) -> list[bytes]:
        ((_position, header),) = iter_headers(batches[1])
        lost.extend((header.base_offset, header.record_count))
        return [batches[0], *batches[2:]]

    edit_log(pair.b, 1, lose)
    _code, why = audit(b, "why", TOPIC, "--source", a)
    assert {(each["tier"], each["kind"], each["partition"], each["application"]) for each in why} == {
        ("stored", "lost", 1, "barnabas mirror")
    }
    assert sum(each["records"] for each in why) == lost[1]
    assert why[0]["missing_sequences"] == [lost]
    assert audit(b, TOPIC, "--source", a)[0] == 1
