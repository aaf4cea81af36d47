"""The consumer's core without anything around it: the test calls, answers, disconnects, and moves the time.

There are no threads, and nobody waits: a call is taken a step further when the test says so.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

from barnabas.client.cluster import ClusterView, PartitionView, TopicView
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.call_steps import ListenerCall, Wait
from barnabas.client.consumer.core import ConsumerCore
from barnabas.client.consumer.fetched_records import Deserializers
from barnabas.client.interceptors import ClientContext, ConsumerInterceptors
from barnabas.clock import ManualClock
from barnabas.errors import DisconnectedError
from barnabas.groups.assignors import NO_GENERATION
from barnabas.model import Node, TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.records import BatchBuilder, stamp

TOPIC = "t"
NODE = 1
NOBODY = DisconnectedError("no broker at a:1")


class PlainGuard:
    """For one thread: counts what would wake others."""

    def __init__(self):
        self.lock = nullcontext()
        self.wake_count = 0
        self.wanted = 0

    def wake_application(self):
        self.wake_count += 1

    def wake_background(self):
        self.wanted += 1


class Call:
    """One call of the application, and how far it is."""

    def __init__(self, steps):
        self.steps = steps
        self.step = None
        """The last thing that it waits for."""
        self.ended = False
        self.result = None
        self.error = None

    def go_on(self):
        """Ask for the next step; return the call."""
        assert not self.ended
        try:
            self.step = next(self.steps)
        except StopIteration as end:
            self.ended, self.result = True, end.value
        except Exception as error:  # noqa: BLE001  whatever it is, the test looks at it
            self.ended, self.error = True, error
        return self

    @property
    def waits(self):
        return not self.ended and isinstance(self.step, Wait)

    @property
    def tells(self):
        return not self.ended and isinstance(self.step, ListenerCall) and not self.step.done


def make_view(partitions):
    views = tuple(PartitionView(partition, NODE) for partition in range(partitions))
    return ClusterView({NODE: Node(NODE, "a", 1)}, {TOPIC: TopicView(TOPIC, partitions=views)})


def make_batch(partition, base_offset, count):
    builder = BatchBuilder()
    for number in range(count):
        builder.append(1, None, b"%d/%d" % (partition, base_offset + number), ())
    batch = builder.build()
    stamp(batch, 0, base_offset, 0)
    return bytes(batch)


class Scene:
    """A core, its clock, and the answers of a broker."""

    def __init__(self, *, partitions=2, value_deserializer=None, interceptors=(), **settings):
        self.clock = ManualClock()
        self.guard = PlainGuard()
        self.config = ConsumerConfig(**{"auto_offset_reset": "earliest", **settings})
        self.core = ConsumerCore(
            self.config,
            self.guard,
            self.clock,
            deserializers=Deserializers(None, value_deserializer),
            interceptors=ConsumerInterceptors(interceptors),
        )
        self.state = self.core.state
        self.view = make_view(partitions)
        self.generation = NO_GENERATION

    def context(self):
        """Return what interceptors get when they start."""
        return ClientContext(
            client_id=self.config.client_id,
            group=self.config.group,
            request_timeout_ms=self.config.request_timeout_ms,
            clock=self.clock,
            cluster=SimpleNamespace(view=self.view),
            locked=lambda: self.guard.lock,
            positions=self.state.positions,
        )

    def call(self, steps):
        """Begin a call: take it to where it waits, or to its end."""
        return Call(steps).go_on()

    def poll(self, timeout_s=1.0, records_max=500):
        return self.call(self.core.poll(records_max, timeout_s))

    def may_go_on(self, call):
        """Whether the shell asks for another step."""
        if call.ended:
            return False
        if isinstance(call.step, ListenerCall):
            return call.step.done
        return call.step.wake_count != self.guard.wake_count or call.step.until_s <= self.clock.monotonic()

    def settle(self, call):
        """Do as the shell does until the call has ended, or has to wait, or tells something."""
        while self.may_go_on(call):
            call.go_on()
        return call

    # --- events -----------------------------------------------------------------------------------------

    def on_metadata(self):
        self.state.on_metadata(self.view)

    def on_unreachable(self):
        self.state.on_unreachable(self.clock.monotonic(), NOBODY)

    def place_all(self, offset=0):
        missing = self.state.missing_positions()
        self.state.set_positions(missing, dict.fromkeys(missing, offset))

    def fetch(self):
        return self.state.fetcher.next_fetch(NODE, self.view)

    def answer(self, fetch, count=3):
        """Answer a fetch with so many records of each partition that it asks for."""
        parts = {}
        for topic in fetch.request.topics:
            for part in topic.partitions:
                records = make_batch(part.partition, part.fetch_offset, count) if count else None
                data = PartitionData(
                    partition_index=part.partition,
                    error_code=0,
                    high_watermark=part.fetch_offset + count,
                    records=records,
                )
                parts.setdefault(topic.topic, []).append(data)
        responses = [FetchableTopicResponse(topic=topic, partitions=data) for topic, data in parts.items()]
        self.state.fetcher.on_response(fetch, FetchResponse(responses=responses))
        self.state.notify_change()

    def deliver(self, count=3):
        """Let so many records come of each assigned partition."""
        self.place_all()
        self.answer(self.fetch(), count)

    def join(self, work, partitions):
        """The group has shared its partitions: these are this member's."""
        membership = self.state.membership
        self.generation += 1
        membership.member_id, membership.generation = "m", self.generation
        membership.lost = membership.rejoin_needed = False
        work.partitions = [TopicPartition(TOPIC, partition) for partition in partitions]
        self.state.finish_task(work)

    def join_and_read(self, *partitions, count=3):
        """Subscribe, become a member with these partitions, and let records come; return the poll that did so."""
        poll = self.poll(timeout_s=100)
        self.join(self.state.next_task(), partitions)
        while not self.settle(poll).ended and poll.tells:
            self.state.on_listener_called(poll.step)
        self.deliver(count)
        return self.settle(poll)


def places(records):
    return [(record.partition, record.offset) for record in records]
