"""The administrator on an event loop, over a broker that is a function."""

from __future__ import annotations

import asyncio
import gc

import pytest

from barnabas.client.admin import operations
from barnabas.client.admin.async_admin import AsyncAdmin
from barnabas.errors import ClosedError, ConfigurationError, ErrorCode
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPICS = ["clicks", "views"]


class FakeBroker:
    """One broker, and the channel to it, that knows two topics."""

    def __init__(self):
        self.is_open = False
        self.closed = asyncio.Event()
        self.requests = 0

    async def dial(self, host, port):
        self.is_open = True
        return self

    def version_for(self, request):
        return 9

    async def send(self, request, *, version=None, timeout_s=30.0):
        assert isinstance(request, MetadataRequest)
        self.requests += 1
        await asyncio.sleep(0)
        names = TOPICS if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="a", port=1)],
            topics=[
                MetadataResponseTopic(
                    error_code=0 if name in TOPICS else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    name=name,
                    partitions=[
                        MetadataResponsePartition(
                            error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                        )
                    ],
                )
                for name in names
            ],
        )

    def close(self):
        self.is_open = False
        self.closed.set()


@pytest.fixture
def broker(monkeypatch):
    made = FakeBroker()
    monkeypatch.setattr(operations, "dial_with", lambda config: made.dial)
    return made


def test_calls_run_on_the_loop_of_the_application_side_by_side(broker):
    async def test():
        async with AsyncAdmin("a:1") as admin:
            names, [views], brokers = await asyncio.gather(
                admin.list_topics(), admin.describe_topics(["views"]), admin.brokers()
            )
        assert names == TOPICS
        assert [each.leader for each in views.partitions] == [1]
        assert [node.id for node in brokers] == [1]
        assert not broker.is_open

    asyncio.run(test())


def test_the_first_call_begins_and_calls_after_the_end_are_refused(broker):
    async def test():
        admin = AsyncAdmin("a:1")
        assert await admin.list_topics() == TOPICS
        assert repr(admin) == "<barnabas.AsyncAdmin a:1>"
        await admin.close(timeout_s=1)
        await admin.close()
        assert repr(admin) == "<barnabas.AsyncAdmin a:1 closed>"
        requests = broker.requests
        with pytest.raises(ClosedError, match="closed"):
            await admin.list_topics()
        with pytest.raises(ClosedError, match="closed"):
            await admin.start()
        assert broker.requests == requests

    asyncio.run(test())


def test_a_copy_in_a_forked_child_is_refused_and_closes_nothing(broker):
    async def test():
        admin = AsyncAdmin("a:1")
        await admin.list_topics()
        admin._lifecycle._pid += 1
        with pytest.raises(ClosedError, match="of which this one is a fork"):
            await admin.list_topics()
        await admin.close()
        assert broker.is_open
        admin._lifecycle._pid -= 1
        await admin.close()

    asyncio.run(test())


def drop(objects):
    objects.clear()
    gc.collect()


def test_one_that_is_dropped_warns_and_ends_its_connections(broker):
    async def test():
        admin = AsyncAdmin("a:1")
        await admin.list_topics()
        dropped = [admin]
        del admin
        with pytest.warns(ResourceWarning, match="an AsyncAdmin was dropped without close"):
            drop(dropped)
        await asyncio.wait_for(broker.closed.wait(), 60)

    asyncio.run(test())


def test_a_wrong_argument_is_refused_as_by_the_other(broker):
    async def test():
        async with AsyncAdmin("a:1") as admin:
            with pytest.raises(ConfigurationError, match="settings need exactly one owner"):
                await admin.describe_config()

    asyncio.run(test())
