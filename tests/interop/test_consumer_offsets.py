"""Kafka's own programs read `__consumer_offsets`: the console consumer with its formatters, and the dump tool."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
from tests.interop.java import maven
from tests.interop.java.tools import tools_jars
from tests.support.broker_process import BrokerProcess
from tests.support.xdist_groups import JAVA

pytestmark = [pytest.mark.xdist_group(JAVA), pytest.mark.timeout(maven.TEST_TIMEOUT_S)]

TOPIC = "__consumer_offsets"
TOOL_TIMEOUT_S = 120
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTERS = "org.apache.kafka.tools.consumer"
RECORDS = 6
"""A generation, an offset in each of two partitions, that the group is empty; an offset, and that it is gone."""


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker with a group of a consumer, and one whose offsets were deleted."""
    broker: BrokerProcess = make_broker(offsets_topic_num_partitions="1")
    with barnabas.Admin(broker.bootstrap) as admin, barnabas.Producer(broker.bootstrap) as producer:
        admin.create_topic("clicks", 2)
        producer.send("clicks", b"x", partition=0).result()
        with barnabas.Consumer(broker.bootstrap, group="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("clicks")
            while not consumer.poll(timeout_s=1):
                continue
            consumer.commit()
        admin.set_group_offsets("gone", {("clicks", 0): 1})
        admin.delete_group("gone")
    return broker


def consume(broker: BrokerProcess, version: str, formatter: str) -> list[Any]:
    """Return what the console consumer says of each record that its formatter tells of."""
    command = [maven.java(), "-cp", f"{tools_jars(version)}/*", CONSUMER, "--topic", TOPIC]
    command += ["--bootstrap-server", broker.bootstrap, "--from-beginning", "--max-messages", str(RECORDS)]
    command += ["--formatter", f"{FORMATTERS}.{formatter}"]
    done = subprocess.run(command, timeout=TOOL_TIMEOUT_S, capture_output=True, text=True, check=False)
    decoder, found, text = json.JSONDecoder(), [], done.stdout.strip()
    while text:
        one, end = decoder.raw_decode(text)
        found.append(one)
        text = text[end:].strip()
    assert found, done.stderr
    return found


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_console_consumer_reads_offsets(broker: BrokerProcess, version: str) -> None:
    first, second, third, tombstone = consume(broker, version, "OffsetsMessageFormatter")
    assert first["key"]["data"] == {"group": "readers", "topic": "clicks", "partition": 0}
    assert (first["value"]["version"], first["value"]["data"]["offset"]) == (4, 1)
    assert second["key"]["data"]["partition"] == 1
    assert third["key"]["data"]["group"] == tombstone["key"]["data"]["group"] == "gone"
    assert tombstone["value"] is None
    if version.startswith("4"):
        assert len(first["value"]["data"]["topicId"]) == 22


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_console_consumer_reads_groups(broker: BrokerProcess, version: str) -> None:
    stable, empty = (each["value"]["data"] for each in consume(broker, version, "GroupMetadataMessageFormatter"))
    assert (stable["protocolType"], stable["generation"], stable["protocol"]) == ("consumer", 1, "range")
    [member] = stable["members"]
    assert (member["memberId"], member["sessionTimeout"]) == (stable["leader"], 45_000)
    assert (empty["generation"], empty["members"]) == (2, [])


def test_dump_tool_reads_both(broker: BrokerProcess) -> None:
    class_path = f"{tools_jars('3.9.1')}/*"
    assert broker.stop() == 0
    files = ",".join(str(path) for path in (broker.data / f"{TOPIC}-0").glob("*.log"))
    tool = ["kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", files]
    command = [maven.java(), "-cp", class_path, *tool]
    done = subprocess.run(command, timeout=TOOL_TIMEOUT_S, capture_output=True, text=True, check=False)
    records = [line for line in done.stdout.splitlines() if line.startswith("| offset")]
    assert len(records) == RECORDS, done.stdout + done.stderr
    assert not re.search("exception|invalid", done.stdout, re.IGNORECASE)
    assert '"assignment":{"assignedPartitions":[{"topic":"clicks","partitions":[0,1]}]' in records[0]
    assert records[-1].endswith("payload: <DELETE>")
