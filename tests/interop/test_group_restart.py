"""A broker that is stopped, or killed, and started again: the members of its groups go on where they were.

Nobody joins anew and no generation is made, whoever's client it is; what was committed is there.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import kafka
import pytest

import barnabas
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until

PARTITIONS = 4
SESSION_MS = 45_000
POLL_S = 0.5


class Members:
    """Two members of a group, each with half of the partitions of `clicks`."""

    _both: list[Any]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.moves = 0
        """How often partitions were given or taken."""

    def poll(self) -> list[bytes]:
        """Let both do their work for a moment, each in its thread, since they wait for each other; return the values
        that came."""
        with ThreadPoolExecutor(2) as threads:
            return [value for values in threads.map(self.poll_one, (0, 1)) for value in values]

    def poll_one(self, number: int) -> list[bytes]:
        """Let one of them do its work."""
        raise NotImplementedError

    def commit(self) -> None:
        for each in self._both:
            each.commit()

    def close(self) -> None:
        for each in self._both:
            each.close()


class Ours(Members):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._both = [
            barnabas.Consumer(
                bootstrap,
                group="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=200,
            )
            for _ in range(2)
        ]
        for each in self._both:
            each.subscribe("clicks", on_assign=self._note, on_revoke=self._note)

    def _note(self, _partitions: Any) -> None:
        self.moves += 1

    def poll_one(self, number: int) -> list[bytes]:
        return [record.value for record in self._both[number].poll(timeout_s=POLL_S) if record.value]


class Confluent(Members):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._both = [
            confluent_kafka.Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": "g",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "session.timeout.ms": SESSION_MS,
                    "heartbeat.interval.ms": 200,
                }
            )
            for _ in range(2)
        ]
        for each in self._both:
            each.subscribe(["clicks"], on_assign=self._note, on_revoke=self._note)

    def _note(self, _consumer: Any, _partitions: Any) -> None:
        self.moves += 1

    def poll_one(self, number: int) -> list[bytes]:
        found = self._both[number].consume(100, timeout=POLL_S)
        return [message.value() for message in found if message.error() is None]

    def commit(self) -> None:
        for each in self._both:
            each.commit(asynchronous=False)


class KafkaPython(Members, kafka.ConsumerRebalanceListener):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._both = [
            kafka.KafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=200,
            )
            for _ in range(2)
        ]
        for each in self._both:
            each.subscribe(["clicks"], listener=self)

    def on_partitions_assigned(self, _assigned: Any) -> None:
        self.moves += 1

    def on_partitions_revoked(self, _revoked: Any) -> None:
        self.moves += 1

    def poll_one(self, number: int) -> list[bytes]:
        found = self._both[number].poll(timeout_ms=int(POLL_S * 1000))
        return [record.value for records in found.values() for record in records]


def group_of(bootstrap: str) -> tuple[str, list[tuple[str, Any]]]:
    """Return the state of the group, and which member has what."""
    with barnabas.Admin(bootstrap) as admin:
        group = admin.describe_group("g")
        members = [(each.member_id, sorted(map(str, each.partitions))) for each in group.members]
        return str(group.state), sorted(members)


def send(bootstrap: str, name: str) -> None:
    with barnabas.Producer(bootstrap) as producer:
        for partition in range(PARTITIONS):
            producer.send("clicks", f"{name}-{partition}".encode(), partition=partition)


def expect(members: Members, name: str) -> None:
    wanted = {f"{name}-{partition}".encode() for partition in range(PARTITIONS)}
    found: set[bytes] = set()

    def all_came() -> bool:
        found.update(members.poll())
        return found >= wanted

    wait_until(all_came, f"{name} comes")
    assert found == wanted, "something came twice, or late"


@pytest.mark.parametrize("kind", [Ours, Confluent, KafkaPython])
@pytest.mark.parametrize("killed", [False, True])
def test_members_keep_their_assignment_over_a_restart(
    make_broker: Callable[..., BrokerProcess], kind: Callable[[str], Members], killed: bool
) -> None:
    broker = make_broker(offsets_topic_num_partitions="4")
    bootstrap = broker.bootstrap
    with barnabas.Admin(bootstrap) as admin:
        admin.create_topic("clicks", PARTITIONS)
    members = kind(bootstrap)
    try:

        def is_shared() -> bool:
            members.poll()
            state, found = group_of(bootstrap)
            return state == "Stable" and [len(owned) for _, owned in found] == [2, 2]

        wait_until(is_shared, "the group becomes stable")
        send(bootstrap, "before")
        expect(members, "before")
        members.commit()
        before, moves = group_of(bootstrap), members.moves
        if killed:
            broker.kill()
        else:
            broker.stop()
        broker.restart()
        send(bootstrap, "after")
        expect(members, "after")
        members.commit()
        assert group_of(bootstrap) == before
        assert members.moves == moves, "nobody had to join anew"
        with barnabas.Admin(bootstrap) as admin:
            committed = admin.group_offsets("g")
        assert [found.offset for found in committed.values()] == [2] * PARTITIONS
    finally:
        members.close()
