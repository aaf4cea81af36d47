"""Every client while its broker is stopped or killed and started again, and while its topic is deleted."""

from __future__ import annotations

import contextlib
import time

import pytest

from barnabas.errors import ApiError, ErrorCode
from tests.interop.clients.neutral import Client, Consumer, Event, Membership, Place, Received, Sending
from tests.interop.conftest import CLIENTS
from tests.support.group_flow import PARTITIONS, Flow, numbers_seen
from tests.support.reading import POLL_S, Member, read, read_topic, wait_until

RECORDS_BETWEEN = 50
"""Clients wait longer and longer between their attempts to connect."""


class SteadyFlow(Flow):
    """Sends numbers with one client and does not give up while the broker is away."""

    def __init__(self, client: Client, bootstrap: str, topic: str) -> None:
        self._client = client
        super().__init__(bootstrap, topic)

    def _run(self, bootstrap: str, topic: str) -> None:
        with contextlib.closing(self._client.producer(bootstrap, Sending(idempotent=True))) as producer:
            while not self._ends.wait(0.01):
                numbers = range(self.sent, self.sent + 4)
                producer.produce(topic, [Event(b"%d" % n, b"%d" % n) for n in numbers])
                self.sent += 4


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_producers_and_consumers_go_on_when_the_broker_was_started_again(
    make_broker, client, topic, group, end
) -> None:
    broker = make_broker(num_partitions=str(PARTITIONS))
    flow = SteadyFlow(client, broker.bootstrap, topic)
    wait_until(lambda: flow.sent > RECORDS_BETWEEN, "records in the topic")
    with Member(client, broker.bootstrap, topic, Membership(group=group)) as member:
        wait_until(lambda: len(member.received) > RECORDS_BETWEEN, "records")
        broker.stop() if end == "stop" else broker.kill()
        broker.restart()
        seen, sent = len(member.received), flow.sent
        wait_until(lambda: flow.sent > sent + RECORDS_BETWEEN, "acknowledgements")
        wait_until(lambda: len(member.received) > seen + RECORDS_BETWEEN, "records")
        sent = flow.stop()
        wait_until(lambda: len(numbers_seen(member)) >= sent, "all records")
    stored = read_topic(CLIENTS[0], broker.bootstrap, topic, sent)
    assert sorted(int(event.value) for _, event in stored) == list(range(sent)), "nothing is lost or stored twice"


def poll_for(consumer: Consumer, duration_s: float) -> list[Received]:
    """Poll for a while; that the topic does not exist may be told, by every client in its own way."""
    received: list[Received] = []
    deadline = time.monotonic() + duration_s
    while time.monotonic() < deadline:
        try:
            received += consumer.poll(POLL_S)
        except ApiError as error:
            if error.code not in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}:
                raise
    return received


@pytest.mark.parametrize("in_group", [False, True], ids=["alone", "member"])
def test_a_topic_can_be_deleted_under_a_running_consumer(make_broker, client, topic, group, in_group) -> None:
    """The consumer stays usable, gets no record of what is gone, and can be closed."""
    broker = make_broker(auto_create_topics_enable="false")
    with contextlib.closing(client.admin(broker.bootstrap)) as admin:
        admin.create_topic(topic, partitions=2)
        with contextlib.closing(client.producer(broker.bootstrap)) as producer:
            producer.produce(topic, [Event(b"old")] * 50, partition=0)
        membership = Membership(group=group, commits_by_itself=False) if in_group else None
        with contextlib.closing(client.consumer(broker.bootstrap, topic, membership)) as consumer:
            read(consumer, 50)
            admin.delete_topic(topic)
            assert poll_for(consumer, 0.5) == []
        admin.create_topic(topic)
        wait_until(lambda: admin.partition_counts().get(topic) == 1, "the new topic")
    with contextlib.closing(client.producer(broker.bootstrap)) as producer:
        assert producer.produce(topic, [Event(b"new")], partition=0) == [Place(0, 0)]
    assert [event.value for _, event in read_topic(client, broker.bootstrap, topic, 1)] == [b"new"]
