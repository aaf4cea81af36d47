"""kafkajs, the client for Node.js: each of its clients in a process of its own, driven by `kafkajs_driver.js`.

It is installed with npm, into a cache folder, when it is first asked for. Without npm, or without a way to its
registry, there is no kafkajs; `install` says why.
"""

from __future__ import annotations

import base64
import fcntl
import functools
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas.errors import ApiError
from barnabas.model import OffsetAndMetadata
from tests.interop.clients.neutral import (
    FETCH_WAIT_MS,
    HEARTBEAT_INTERVAL_MS,
    RETRY_BACKOFF_MS,
    Event,
    Membership,
    Place,
    Received,
    Sending,
)

PACKAGES = ["kafkajs@2.2.4", "kafkajs-snappy@1.1.0", "lz4js@0.2.0", "zstd-codec@0.1.5"]
"""kafkajs has gzip by itself; the others are in JavaScript or WebAssembly, so that nothing has to be compiled."""
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas" / "kafkajs"
DRIVER = Path(__file__).with_name("kafkajs_driver.js")
INSTALL_TIMEOUT_S = 60


@functools.cache
def install() -> str:
    """Install what is missing; return why there is no kafkajs, or nothing."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "Node.js and npm are not installed"
    FOLDER.mkdir(parents=True, exist_ok=True)
    installed = FOLDER / "installed"
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if installed.exists() and installed.read_text() == " ".join(PACKAGES):
            return ""
        (FOLDER / "package.json").write_text('{"private": true}\n')
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
        try:
            subprocess.run(command, cwd=FOLDER, capture_output=True, timeout=INSTALL_TIMEOUT_S, check=True)
        except subprocess.SubprocessError as error:
            return f"npm could not install kafkajs: {error}"
        installed.write_text(" ".join(PACKAGES))
    return ""


class KafkaJs:
    """The library."""

    name = "kafkajs"
    sends_null_headers = False
    has_static_members = False

    def producer(self, bootstrap: str, sending: Sending = Sending()) -> KafkaJsProducer:  # noqa: B008
        return KafkaJsProducer(bootstrap, sending)

    def consumer(self, bootstrap: str, topic: str, membership: Membership | None = None) -> KafkaJsConsumer:
        return KafkaJsConsumer(bootstrap, topic, membership)

    def admin(self, bootstrap: str) -> KafkaJsAdmin:
        return KafkaJsAdmin(bootstrap)


class Driver:
    """A Node.js process with one client of kafkajs."""

    def __init__(self, bootstrap: str) -> None:
        environment = {**os.environ, "NODE_PATH": str(FOLDER / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        self._process = subprocess.Popen(
            ["node", str(DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.call("connect", bootstrap=bootstrap, retry_backoff_ms=RETRY_BACKOFF_MS)

    def call(self, name: str, **arguments: Any) -> Any:
        """Call one of the driver's functions.

        :raises ApiError: the broker refused; RuntimeError: kafkajs failed by itself.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"call": name, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the kafkajs process ended with {self._process.wait(60)}"
        answer = json.loads(line)
        if "error" not in answer:
            return answer["value"]
        if answer["error"]["code"] is None:
            raise RuntimeError(answer["error"]["message"])
        raise ApiError(answer["error"]["code"], answer["error"]["message"])

    def close(self) -> None:
        """Disconnect the client and end the process."""
        try:
            self.call("close")
        finally:
            assert self._process.stdin
            assert self._process.stdout
            self._process.stdin.close()
            self._process.wait(60)
            self._process.stdout.close()


class KafkaJsProducer:
    def __init__(self, bootstrap: str, sending: Sending) -> None:
        self._driver = Driver(bootstrap)
        self._driver.call(
            "createProducer", compression=sending.compression, acks=sending.acks, idempotent=sending.idempotent
        )

    def produce(self, topic: str, events: Sequence[Event], partition: int | None = None) -> list[Place]:
        """It tells only where the first record in each partition is, and not which it is."""
        wire = [
            {
                "key": _text(event.key),
                "value": _text(event.value),
                "timestamp_ms": event.timestamp_ms,
                "headers": [[name, _text(value)] for name, value in event.headers],
            }
            for event in events
        ]
        answers = self._driver.call("produce", topic=topic, partition=partition, events=wire)
        if partition is None or not answers:
            return []
        (answer,) = answers
        return [Place(partition, answer["base_offset"] + index) for index in range(len(events))]

    def close(self) -> None:
        self._driver.close()


class KafkaJsConsumer:
    """It has no consumers without a group, so one that should have none gets one of its own. It has one assignor."""

    def __init__(self, bootstrap: str, topic: str, membership: Membership | None) -> None:
        membership = membership or Membership(group=f"none-{uuid.uuid4()}", commits_by_itself=False)
        self._driver = Driver(bootstrap)
        self._admin = KafkaJsAdmin(bootstrap)
        self._topic = topic
        self._group = membership.group
        self._positions: dict[int, int] = {}
        self._driver.call(
            "createConsumer",
            topic=topic,
            group=membership.group,
            commits_by_itself=membership.commits_by_itself,
            session_timeout_ms=membership.session_timeout_ms,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            fetch_wait_ms=FETCH_WAIT_MS,
        )

    def poll(self, timeout_s: float) -> list[Received]:
        received = [_received(record) for record in self._driver.call("poll", timeout_ms=int(timeout_s * 1000))]
        self._positions.update((place.partition, place.offset + 1) for place, _ in received)
        return received

    def assigned(self) -> set[int]:
        return set(self._driver.call("assigned"))

    def commit(self, offsets: Mapping[int, OffsetAndMetadata] | None = None) -> None:
        if offsets is None:
            offsets = {partition: OffsetAndMetadata(offset) for partition, offset in self._positions.items()}
        theirs = [{"partition": p, "offset": each.offset, "metadata": each.metadata} for p, each in offsets.items()]
        self._driver.call("commit", offsets=theirs)

    def committed(self, partition: int) -> OffsetAndMetadata | None:
        return self._admin.committed(self._group, self._topic, partition)

    def seek(self, partition: int, offset: int) -> None:
        self._driver.call("seek", partition=partition, offset=offset)

    def beginning_offset(self, partition: int) -> int:
        return self._admin.topic_offsets(self._topic)[partition][0]

    def end_offset(self, partition: int) -> int:
        return self._admin.topic_offsets(self._topic)[partition][1]

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """It takes the end where there is no record so late."""
        return self._admin.offsets_for_time(self._topic, timestamp_ms)[partition]

    def close(self) -> None:
        self._driver.close()
        self._admin.close()


class KafkaJsAdmin:
    """What every client's admin can do, and by `call` whatever kafkajs' admin can do."""

    def __init__(self, bootstrap: str) -> None:
        self._driver = Driver(bootstrap)
        self.call = self._driver.call
        self.call("createAdmin")

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        topic = {
            "topic": name,
            "numPartitions": partitions,
            "replicationFactor": replication_factor,
            "configEntries": [{"name": each, "value": value} for each, value in (config or {}).items()],
        }
        self.call("createTopics", topics=[topic])

    def delete_topic(self, name: str) -> None:
        self.call("deleteTopics", topics=[name])

    def partition_counts(self) -> dict[str, int]:
        return {each["name"]: len(each["partitions"]) for each in self.call("fetchTopicMetadata")["topics"]}

    def brokers(self) -> dict[int, str]:
        return {each["nodeId"]: f"{each['host']}:{each['port']}" for each in self.call("describeCluster")["brokers"]}

    def committed(self, group: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        (found,) = self.call("fetchOffsets", groupId=group, topics=[topic])
        by_partition = {each["partition"]: each for each in found["partitions"]}
        offset = int(by_partition[partition]["offset"])
        return None if offset < 0 else OffsetAndMetadata(offset, by_partition[partition]["metadata"] or "")

    def topic_offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return beginning and end of every partition."""
        found = self.call("fetchTopicOffsets", topic=topic)
        return {each["partition"]: (int(each["low"]), int(each["high"])) for each in found}

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        found = self.call("fetchTopicOffsetsByTimestamp", topic=topic, timestamp_ms=timestamp_ms)
        return {each["partition"]: int(each["offset"]) for each in found}

    def close(self) -> None:
        self._driver.close()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _received(record: dict[str, Any]) -> Received:
    headers = tuple((name, _bytes(value)) for name, value in record["headers"])
    event = Event(_bytes(record["value"]), _bytes(record["key"]), headers, record["timestamp_ms"])
    return Received(Place(record["partition"], record["offset"]), event)
