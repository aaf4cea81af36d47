"""What groups were handed, told by real consumers: all of it, again where they were killed, less what they skipped."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import barnabas
from barnabas.cli.audit import Audit
from barnabas.cli.audit import audit as command
from barnabas.cli.connection import Connection
from barnabas.client.audit import log_counting
from barnabas.client.config import Bootstrap
from barnabas.client.range_reader import RangeReader
from barnabas.errors import ConfigurationError
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until

TOPIC = "clicks"
COUNT = 300
PARTITIONS = 3
PLACES = [(TOPIC, each) for each in range(PARTITIONS)]


def send(bootstrap: str) -> None:
    """Send records of three minutes to a new topic, in small batches."""
    with barnabas.Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
    with barnabas.Producer(bootstrap, audit=True, batch_size=500) as producer:
        for number in range(COUNT):
            producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS, timestamp_ms=number * 600)


def audit(bootstrap: str, group: str) -> tuple[int, list[tuple[int, int, str]]]:
    """Run `barnabas audit --group --json`; return the exit code, and stored, consumed and status of each window."""
    result = CliRunner().invoke(command, [TOPIC, "--group", group, "--json", "-b", bootstrap])
    assert result.exit_code in (0, 1), (result.output, result.exception)
    windows = json.loads(result.stdout)["windows"]
    return result.exit_code, [(each["stored"], each["consumed"], each["status"]) for each in windows]


ALL_COMPLETE = [(100, 100, "complete")] * 3


def consumer(bootstrap: str, group: str, **settings: Any) -> barnabas.Consumer:
    made = barnabas.Consumer(bootstrap, group=group, audit=True, auto_offset_reset="earliest", **settings)
    made.subscribe([TOPIC])
    return made


def test_groups_have_all_that_is_stored_whichever_way_they_read(broker: BrokerProcess) -> None:
    send(broker.bootstrap)
    with consumer(broker.bootstrap, "polls") as polls:
        left = [COUNT]
        wait_until(
            lambda: left.append(left[-1] - len(polls.poll(max_records=7, timeout_s=0.2))) or left[-1] <= 0, "records"
        )  # type: ignore[func-returns-value]
    assert audit(broker.bootstrap, "polls") == (0, ALL_COMPLETE)

    with consumer(broker.bootstrap, "columns") as columns:
        left = [COUNT]
        wait_until(
            lambda: left.append(left[-1] - len(columns.poll_arrow(max_records=11, timeout_s=0.2))) or left[-1] <= 0,  # type: ignore[func-returns-value]
            "records",
        )
    assert audit(broker.bootstrap, "columns") == (0, ALL_COMPLETE)

    async def read() -> None:
        async with barnabas.AsyncConsumer(
            broker.bootstrap, group="async", audit=True, auto_offset_reset="earliest"
        ) as reader:
            reader.subscribe([TOPIC])
            read = 0
            async for _record in reader:
                read += 1
                if read == COUNT:
                    break

    asyncio.run(read())
    assert audit(broker.bootstrap, "async") == (0, ALL_COMPLETE)


def test_member_that_is_killed_leaves_records_that_another_is_handed_again(broker: BrokerProcess) -> None:
    send(broker.bootstrap)
    program = f"""
import barnabas, os, signal
consumer = barnabas.Consumer({broker.bootstrap!r}, group="killed", audit=True, auto_offset_reset="earliest",
    enable_auto_commit=False, max_poll_records=10, session_timeout_ms=6000)
consumer.subscribe([{TOPIC!r}])
read = 0
for record in consumer:
    read += 1
    if read == 60:
        consumer.commit()
    if read == 90:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    code, windows = audit(broker.bootstrap, "killed")
    # It has told of what it committed, at least.
    told = sum(each[1] for each in windows)
    assert code == 0
    assert 60 <= told <= 90
    assert all("lost" not in each[2] for each in windows)
    with consumer(broker.bootstrap, "killed") as another:
        wait_until(lambda: len(another.poll(max_records=50, timeout_s=0.2)) == 0 and lag(another) == 0, "all is read")
        another.seek((TOPIC, 0), 40)
        wait_until(
            lambda: len(another.poll(max_records=50, timeout_s=0.2)) == 0 and lag(another) == 0, "some is read again"
        )
    code, windows = audit(broker.bootstrap, "killed")
    assert (code, sum(each[1] for each in windows)) == (0, COUNT + told)
    assert all(each[2].startswith("complete") for each in windows)
    assert "again" in windows[2][2]


def lag(reader: barnabas.Consumer) -> int:
    if len(reader.assignment()) < PARTITIONS:
        return COUNT
    ends = reader.end_offsets(PLACES)
    return sum(end - reader.position(tp) for tp, end in ends.items())


def test_what_a_group_skips_is_lost_to_it_and_what_it_has_not_reached_is_open(broker: BrokerProcess) -> None:
    send(broker.bootstrap)
    with consumer(broker.bootstrap, "skips", enable_auto_commit=False) as reader:
        read: list[barnabas.Record] = []
        wait_until(lambda: read.extend(reader.poll(max_records=9, timeout_s=0.2)) or len(read) >= 20, "some records")  # type: ignore[func-returns-value]
        place = read[-1].partition
        at = reader.position((TOPIC, place))
        reader.seek((TOPIC, place), at + 5)
        wait_until(
            lambda: any(each.partition == place for each in reader.poll(max_records=4, timeout_s=0.2)),
            "one behind the gap",
        )
        reader.commit()
    code, windows = audit(broker.bootstrap, "skips")
    assert code == 1
    statuses = ", ".join(each[2] for each in windows)
    assert "lost 5" in statuses or statuses.count("lost") == 2  # at the edge of two windows
    assert "open" in statuses


def test_group_is_watched_without_reading_the_log_again(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    begins: list[int] = []

    class Reader(RangeReader):
        def __init__(self, bootstrap: Bootstrap, topic: str, partition: int, begin: int, end: int) -> None:
            begins.append(begin)
            super().__init__(bootstrap, topic, partition, begin, end)

    send(broker.bootstrap)
    watched = Audit(TOPIC, Connection(broker.bootstrap), group="watched")
    with consumer(broker.bootstrap, "watched") as reader:
        for times in (1, 2):
            left = [COUNT]
            wait_until(
                lambda left=left: (
                    left.append(left[-1] - len(reader.poll(max_records=50, timeout_s=0.2))) or left[-1] <= 0
                ),
                "records",
            )  # type: ignore[misc]
            reader.commit()
            begins.clear()
            with monkeypatch.context() as patched:
                patched.setattr(log_counting, "RangeReader", Reader)
                found, _table = watched.run()
            anew, _table = Audit(TOPIC, Connection(broker.bootstrap), group="watched").run()
            assert (found.windows, found.findings) == (anew.windows, anew.findings)
            assert sum(each.consumed for each in found.windows) == times * COUNT
            reader.seek_to_beginning()
    assert len(begins) == PARTITIONS
    assert all(begins)  # the second look has begun with the last batches


def test_consume_tells_what_it_has_printed_and_ship_what_it_has_sent(broker: BrokerProcess, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{number}\n" for number in range(COUNT)))
    run = [sys.executable, "-m", "barnabas.cli.main"]
    where = ["-b", broker.bootstrap, "-X", "audit=true"]
    shipping = [*run, "ship", "--exit", str(log), "-t", TOPIC, "--state", str(tmp_path / "state"), *where]
    subprocess.run(shipping, check=True, timeout=120)
    printed = subprocess.run(
        [*run, "consume", TOPIC, "-g", "prints", "-e", *where], check=True, timeout=120, stdout=subprocess.PIPE
    )
    assert len(printed.stdout.splitlines()) == COUNT
    result = CliRunner().invoke(command, [TOPIC, "--group", "prints", "--json", "-b", broker.bootstrap])
    windows = json.loads(result.stdout)["windows"]
    sums = [sum(each[name] for each in windows) for name in ("produced", "stored", "consumed", "not_audited")]
    assert (result.exit_code, sums) == (0, [COUNT, COUNT, COUNT, 0])
    assert {each["status"] for each in windows} == {"complete"}
    alone = subprocess.run([*run, "consume", TOPIC, "-e", *where], check=False, timeout=120, stderr=subprocess.PIPE)
    assert alone.returncode != 0
    assert b"audit needs a group" in alone.stderr


def test_audit_without_a_group_is_refused(broker: BrokerProcess) -> None:
    with pytest.raises(ConfigurationError, match="audit needs a group"):
        barnabas.Consumer(broker.bootstrap, audit=True)
