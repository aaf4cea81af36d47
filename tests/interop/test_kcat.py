"""kcat, the command line client of librdkafka: produce, consume, where to start, metadata, offsets, groups."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from tests.interop.clients.neutral import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, Event, Sending
from tests.interop.conftest import CLIENTS
from tests.support.reading import read_topic, wait_until

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (apt-get install kcat)")

TIMEOUT_S = 60
BASE_TIMESTAMP_MS = 1_700_000_000_000
RECORDS = 20
QUICK = ["-X", "fetch.wait.max.ms=100", "-X", f"heartbeat.interval.ms={HEARTBEAT_INTERVAL_MS}"]


def run(bootstrap: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = ["kcat", "-b", bootstrap, *QUICK, *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def kcat(bootstrap: str, *arguments: str, given: str = "") -> str:
    """Run kcat, which has to succeed, and return what it prints."""
    done = run(bootstrap, *arguments, given=given)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(count: int) -> str:
    return "".join(f"{n}\n" for n in range(count))


@pytest.fixture
def filled_topic(bootstrap, topic, our_admin) -> str:
    """A topic with two partitions: 20 records in the first, a second between each and the next; none in the other."""
    our_admin.create_topic(topic, partitions=2)
    events = [Event(b"%d" % n, timestamp_ms=BASE_TIMESTAMP_MS + n * 1_000) for n in range(RECORDS)]
    with contextlib.closing(CLIENTS[0].producer(bootstrap)) as producer:
        producer.produce(topic, events[:13], partition=0)
        producer.produce(topic, events[13:], partition=0)
    return topic


def test_keys_values_and_headers_arrive_as_they_were_sent(bootstrap, topic) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-K:", "-H", "one=1", "-H", "two=ünï", given="k1:v1\nk2:v2:too\n:no key\n")
    shown = kcat(bootstrap, "-C", "-t", topic, "-q", "-e", "-f", "%t/%p/%o %k=%s (%S) %h\n")
    assert shown.splitlines() == [
        f"{topic}/0/0 k1=v1 (2) one=1,two=ünï",
        f"{topic}/0/1 k2=v2:too (6) one=1,two=ünï",
        f"{topic}/0/2 =no key (6) one=1,two=ünï",
    ]
    received = [event for _, event in read_topic(CLIENTS[0], bootstrap, topic, 3)]
    assert [(event.key, event.value) for event in received][:2] == [(b"k1", b"v1"), (b"k2", b"v2:too")]
    assert received[0].headers == (("one", b"1"), ("two", "ünï".encode()))


def test_empty_keys_and_values_are_null_where_asked_for(bootstrap, topic) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-K:", "-Z", given="key:\n:value\n")
    shown = kcat(bootstrap, "-C", "-t", topic, "-q", "-e", "-Z", "-f", "%k=%s\n")
    assert shown.splitlines() == ["key=NULL", "NULL=value"]
    received = [event for _, event in read_topic(CLIENTS[0], bootstrap, topic, 2)]
    assert [(event.key, event.value) for event in received] == [(b"key", None), (None, b"value")]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_both_ways(bootstrap, topic, compression) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-z", compression, given=lines(1_000))
    with contextlib.closing(CLIENTS[-1].producer(bootstrap, Sending(compression=compression))) as producer:
        producer.produce(topic, [Event(b"%d" % n) for n in range(1_000, 2_000)])
    assert kcat(bootstrap, "-C", "-t", topic, "-q", "-e", "-X", "check.crcs=true") == lines(2_000)
    received = read_topic(CLIENTS[-1], bootstrap, topic, 2_000)
    assert [event.value for _, event in received] == [b"%d" % n for n in range(2_000)]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (["-o", "beginning"], range(RECORDS)),
        (["-o", "7"], range(7, RECORDS)),
        (["-o", "-3"], range(RECORDS - 3, RECORDS)),
        (["-o", "end"], []),
        (["-o", f"s@{BASE_TIMESTAMP_MS + 6_500}"], range(7, RECORDS)),
        (["-o", f"s@{BASE_TIMESTAMP_MS + 3_000}", "-o", f"e@{BASE_TIMESTAMP_MS + 9_000}"], range(3, 9)),
        (["-o", "5", "-c", "4"], range(5, 9)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and value else None,
)
def test_reading_starts_and_ends_where_told(bootstrap, filled_topic, start, expected) -> None:
    shown = kcat(bootstrap, "-C", "-t", filled_topic, "-p", "0", "-q", "-e", *start)
    assert [int(line) for line in shown.splitlines()] == list(expected)


def test_all_partitions_are_read_to_their_ends(bootstrap, topic, our_admin) -> None:
    our_admin.create_topic(topic, partitions=3)
    for partition in range(3):
        kcat(bootstrap, "-P", "-t", topic, "-p", str(partition), given=f"in {partition}\n")
    shown = run(bootstrap, "-C", "-t", topic, "-e", "-f", "%p %s\n")
    assert sorted(shown.stdout.splitlines()) == ["0 in 0", "1 in 1", "2 in 2"]
    assert shown.stderr.count("Reached end of topic") == 3


def test_records_as_json(bootstrap, topic) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-K:", "-H", "h=x", given="key:value\n")
    (line,) = kcat(bootstrap, "-C", "-t", topic, "-q", "-e", "-J").splitlines()
    record = json.loads(line)
    assert record.pop("ts") > BASE_TIMESTAMP_MS
    assert record == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "tstype": "create",
        "broker": 0,
        "headers": ["h", "x"],
        "key": "key",
        "payload": "value",
    }


def test_metadata(bootstrap, filled_topic) -> None:
    listed = json.loads(kcat(bootstrap, "-L", "-J"))
    assert listed["brokers"] == [{"id": 0, "name": bootstrap}]
    assert listed["controllerid"] == 0
    (found,) = [each for each in listed["topics"] if each["topic"] == filled_topic]
    assert [each["partition"] for each in found["partitions"]] == [0, 1]
    assert {each["leader"] for each in found["partitions"]} == {0}
    assert f'topic "{filled_topic}" with 2 partitions' in kcat(bootstrap, "-L", "-t", filled_topic)


@pytest.mark.parametrize(
    ("time_ms", "offset"), [(-1, RECORDS), (-2, 0), (BASE_TIMESTAMP_MS + 4_001, 5), (BASE_TIMESTAMP_MS + 10**9, -1)]
)
def test_offsets_of_times(bootstrap, filled_topic, time_ms, offset) -> None:
    shown = kcat(bootstrap, "-Q", "-t", f"{filled_topic}:0:{time_ms}")
    assert shown == f"{filled_topic} [0] offset {offset}\n"


def test_what_the_broker_refuses_kcat_tells(bootstrap, topic, our_admin) -> None:
    our_admin.create_topic(topic, config={"max.message.bytes": "1000"})
    refused = run(bootstrap, "-P", "-t", topic, given="x" * 2_000)
    assert refused.returncode == 1
    assert "Message size too large" in refused.stderr
    missing = run(bootstrap, "-C", "-t", f"{topic}-missing", "-e")
    assert missing.returncode == 1
    assert "Unknown topic or partition" in missing.stderr


def test_an_idempotent_producer_and_one_that_does_not_wait(bootstrap, topic) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-X", "enable.idempotence=true", given=lines(500))
    kcat(bootstrap, "-P", "-t", topic, "-X", "acks=0", given=lines(500))
    assert kcat(bootstrap, "-C", "-t", topic, "-q", "-c", "1000") == lines(500) * 2


@contextlib.contextmanager
def member(bootstrap: str, group: str, topic: str, seen: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A balanced consumer, which writes what it gets into the file `seen` and leaves when it is told to end."""
    command = ["kcat", "-b", bootstrap, *QUICK, "-X", f"session.timeout.ms={SESSION_TIMEOUT_MS}", "-q", "-u"]
    command += ["-X", "auto.offset.reset=earliest", "-G", group, "-f", "%p %s\n", topic]
    with seen.open("wb") as output, subprocess.Popen(command, stdout=output) as process:
        try:
            yield process
            process.terminate()
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()


def seen_in(seen: Path) -> list[tuple[int, int]]:
    """Return partition and number of every record in the file."""
    complete = seen.read_text().rpartition("\n")[0].splitlines()
    return [(int(line.split()[0]), int(line.split()[1])) for line in complete]


def test_two_members_of_a_group_share_the_work_and_leave_it_to_who_stays(
    bootstrap, topic, group, our_admin, tmp_path
) -> None:
    our_admin.create_topic(topic, partitions=4)
    first, second = tmp_path / "first", tmp_path / "second"
    sent = 0
    with contextlib.closing(CLIENTS[0].producer(bootstrap)) as producer:

        def partitions_of_next(seen: Path) -> set[int]:
            """Send a record to each partition, and return from which the member got records since its last ones."""
            nonlocal sent
            before = len(seen_in(seen))
            for partition in range(4):
                producer.produce(topic, [Event(b"%d" % sent)], partition)
                sent += 1
            wait_until(lambda: len(seen_in(first) + (seen_in(second) if second.exists() else [])) >= sent, "all")
            return {partition for partition, _ in seen_in(seen)[before:]}

        with member(bootstrap, group, topic, first):
            wait_until(lambda: partitions_of_next(first) == {0, 1, 2, 3}, "all partitions for the first")
            with member(bootstrap, group, topic, second):
                wait_until(lambda: len(partitions_of_next(second)) == 2, "half of the partitions for the second")
            wait_until(lambda: partitions_of_next(first) == {0, 1, 2, 3}, "all partitions for who stays")
    assert Counter(number for _, number in seen_in(first) + seen_in(second)) == Counter(range(sent))


def test_a_group_goes_on_where_it_stopped(bootstrap, filled_topic, group) -> None:
    as_member = ["-G", group, "-q", "-e", "-X", "auto.offset.reset=earliest"]
    assert kcat(bootstrap, *as_member, filled_topic) == lines(RECORDS)
    kcat(bootstrap, "-P", "-t", filled_topic, "-p", "1", given="more\n")
    assert kcat(bootstrap, *as_member, filled_topic) == "more\n"
    with barnabas.Admin(bootstrap) as admin:
        committed = {(where[0], where[1]): each.offset for where, each in admin.group_offsets(group).items()}
    assert committed == {(filled_topic, 0): RECORDS, (filled_topic, 1): 1}
