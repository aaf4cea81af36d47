"""Groups that behave: our consumer with sticky and cooperative sharing, static members, fencing, slow handlers."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter

import pytest

import barnabas
from barnabas import OffsetAndMetadata, TopicPartition
from barnabas.errors import ApiError, ErrorCode, FencedError
from tests.interop.clients.asyncio_kafka import Aiokafka
from tests.interop.clients.confluent import ConfluentKafka
from tests.interop.clients.kafka_python import KafkaPython
from tests.interop.clients.neutral import Membership
from tests.interop.clients.ours import Ours
from tests.support.group_flow import PARTITIONS, member_process, numbers_in, numbers_seen, shares_all
from tests.support.reading import Member, wait_until

QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100, "auto_offset_reset": "earliest"}
COOPERATIVE = {**QUICK, "partition_assignment_strategy": "cooperative-sticky"}


class Reader:
    """A consumer of ours that is polled on a thread of its own, and writes down what it is told."""

    def __init__(self, bootstrap, topic, group, **settings):
        self.events = []
        self.numbers = []
        self.failure = None
        self.consumer = barnabas.Consumer(bootstrap, group=group, **{**COOPERATIVE, **settings})
        self.consumer.subscribe(
            topic,
            on_assign=lambda tps: self._note("assigned", tps),
            on_revoke=lambda tps: self._note("revoked", tps),
            on_lost=lambda tps: self._note("lost", tps),
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _note(self, what, tps):
        self.events.append((what, {tp.partition for tp in tps}))

    def _run(self):
        try:
            while not self._ends.is_set():
                self.numbers += [int(record.value) for record in self.consumer.poll(timeout_s=0.1)]
        except barnabas.BarnabasError as error:
            self.failure = error

    @property
    def assigned(self):
        return {tp.partition for tp in self.consumer.assignment()}

    @property
    def generation(self):
        return self.consumer._core.state.membership.generation

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        self._ends.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.consumer.close()


def share_evenly(*readers):
    owned = sorted(partition for reader in readers for partition in reader.assigned)
    sizes = [len(reader.assigned) for reader in readers]
    return owned == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1


def changes(reader):
    return [what for what, _ in reader.events]


# --- cooperative members -------------------------------------------------------------------------------


def test_only_what_moves_is_revoked_and_all_is_seen_once(bootstrap, topic, group, flow):
    with Reader(bootstrap, topic, group) as first:
        wait_until(lambda: share_evenly(first) and len(first.numbers) > 50, "records for the first member")
        second = Reader(bootstrap, topic, group)
        wait_until(lambda: share_evenly(first, second), "a share for each")
        assert changes(first) == ["assigned", "revoked"]
        assert first.events[1][1] == second.assigned
        assert changes(second) == ["assigned"]
        second.close()
        wait_until(lambda: share_evenly(first), "everything for the one that is left")
        assert first.events[2] == ("assigned", first.events[1][1])
        sent = flow.stop()
        wait_until(lambda: len(first.numbers) + len(second.numbers) >= sent, "all records")
    assert Counter(first.numbers + second.numbers) == Counter(range(sent))


def test_a_member_reads_on_while_the_group_waits_for_another(bootstrap, topic, group, flow):
    """The other one does not poll: its join is outstanding for as long as its handler takes."""
    with Reader(bootstrap, topic, group) as first:
        busy = barnabas.Consumer(bootstrap, group=group, **COOPERATIVE)
        with busy:
            busy.subscribe(topic)
            wait_until(lambda: busy.poll(timeout_s=0.1) is not None and share_evenly(first, _Of(busy)), "two shares")
            third = Reader(bootstrap, topic, group)
            membership = first.consumer._core.state.membership
            wait_until(lambda: membership.joining, "the first member to join again")
            seen = len(first.numbers)
            wait_until(lambda: len(first.numbers) > seen + 100, "records during the join")
            assert membership.joining
            wait_until(lambda: busy.poll(timeout_s=0.1) is not None and share_evenly(first, _Of(busy), third), "three")
            third.close()


class _Of:
    """What a consumer without a thread has."""

    def __init__(self, consumer):
        self.assigned = {tp.partition for tp in consumer.assignment()}


def test_a_change_of_topics_gives_up_what_is_not_wanted_and_keeps_the_rest(bootstrap, topic, group, flow):
    other = f"{topic}-other"
    with barnabas.Admin(bootstrap) as admin:
        admin.create_topic(other, partitions=2)
    revoked = []
    with barnabas.Consumer(bootstrap, group=group, **COOPERATIVE) as consumer:
        consumer.subscribe([topic, other])
        wait_until(lambda: consumer.poll(timeout_s=0.1) is not None and len(consumer.assignment()) == 6, "six")
        consumer.subscribe([topic], on_revoke=revoked.extend)
        wait_until(lambda: consumer.poll(timeout_s=0.1) is not None and len(consumer.assignment()) == 4, "four")
    assert {tp.topic for tp in revoked[:2]} == {other}
    assert len(revoked) == 2


def test_message_streams_keep_their_partitions_while_others_come_and_go(bootstrap, topic, group, flow):
    with barnabas.Consumer(bootstrap, group=group, **COOPERATIVE) as consumer:
        streams = consumer.create_message_streams({topic: 2})[topic]
        seen = [[], []]

        def read(number):
            seen[number].extend((record.partition, record.offset) for record in streams[number])

        threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(2)]
        for thread in threads:
            thread.start()
        other = Reader(bootstrap, topic, group)
        wait_until(lambda: len(other.numbers) > 20, "records for the other member")
        other.close()
        wait_until(lambda: len(consumer.assignment()) == PARTITIONS, "everything back")
        sent = flow.stop()
        wait_until(lambda: len(seen[0]) + len(seen[1]) + len(other.numbers) >= sent, "all records")
    for thread in threads:
        thread.join(60)
    for stream in seen:
        for _, offsets in itertools.groupby(sorted(stream, key=lambda each: each[0]), key=lambda each: each[0]):
            in_order = list(offsets)
            assert in_order == sorted(set(in_order))


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_members_come_and_go_and_nothing_is_missed(bootstrap, topic, group, flow, assignor):
    """Churn: every member but one leaves some time; each hands over what it has done."""
    membership = Membership(group=group, assignor=assignor)
    members = [Member(Ours(), bootstrap, topic, membership)]
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            members.append(stack.enter_context(Member(Ours(), bootstrap, topic, membership)))
            if len(members) > 2:
                members[-3].close()
            living = members[-2:]
            before = sum(len(member.received) for member in living)
            wait_until(lambda: shares_all(*living), "a share for each")  # noqa: B023 - called at once
            wait_until(lambda: sum(len(each.received) for each in living) > before + 20, "records")  # noqa: B023
        sent = flow.stop()
        wait_until(lambda: numbers_seen(*members).total() >= sent, "all records")
    assert numbers_seen(*members) == Counter(range(sent))


def test_a_cooperative_member_that_is_killed_is_replaced(bootstrap, topic, group, flow, tmp_path):
    membership = Membership(group=group, assignor="cooperative-sticky", session_timeout_ms=1_000)
    seen = tmp_path / "seen"
    with Member(Ours(), bootstrap, topic, membership) as member:
        with member_process(Ours(), bootstrap, topic, membership, seen) as killed:
            wait_until(lambda: len(member.assigned) == PARTITIONS / 2, "half of the partitions")
            wait_until(lambda: len(numbers_in(seen)) > 50, "records for the other member")
            killed.kill()
        wait_until(lambda: shares_all(member), "all partitions for the member that is left")
        sent = flow.stop()
        by_the_killed = numbers_in(seen)
        wait_until(lambda: by_the_killed | numbers_seen(member).keys() >= set(range(sent)), "all records")


# --- with other clients --------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", [KafkaPython(), Aiokafka()], ids=lambda client: client.name)
def test_a_sticky_group_shared_with_another_client(bootstrap, topic, group, flow, theirs):
    """Whoever leads: first they, then we. librdkafka has no such assignor."""
    membership = Membership(group=group, assignor="sticky")
    with Member(theirs, bootstrap, topic, membership) as first:
        wait_until(lambda: shares_all(first) and len(first.received) > 50, "records for the first member")
        with Member(Ours(), bootstrap, topic, membership) as second:
            wait_until(lambda: shares_all(first, second), "a share for each")
            wait_until(lambda: len(second.received) > 50, "records for the second member")
            first.close()
            wait_until(lambda: shares_all(second), "all partitions for the member that is left")
            with Member(theirs, bootstrap, topic, membership) as third:
                had = set(second.assigned)
                wait_until(lambda: shares_all(second, third), "a share for each")
                assert second.assigned < had
                sent = flow.stop()
                wait_until(lambda: numbers_seen(first, second, third).total() >= sent, "all records")
    assert numbers_seen(first, second, third) == Counter(range(sent))


@pytest.mark.parametrize("theirs", [ConfluentKafka(), KafkaPython()], ids=lambda client: client.name)
def test_a_cooperative_group_shared_with_another_client(bootstrap, topic, group, flow, theirs):
    """At least once, and no gap: the others do not commit what they give up in the middle of their work."""
    membership = Membership(group=group, assignor="cooperative-sticky")
    with Member(theirs, bootstrap, topic, membership) as first:
        wait_until(lambda: shares_all(first) and len(first.received) > 50, "records for the first member")
        with Member(Ours(), bootstrap, topic, membership) as second:
            wait_until(lambda: shares_all(first, second), "a share for each")
            wait_until(lambda: len(second.received) > 50, "records for the second member")
            first.close()
            wait_until(lambda: shares_all(second), "all partitions for the member that is left")
            with Member(theirs, bootstrap, topic, membership) as third:
                wait_until(lambda: shares_all(second, third), "a share for each")
                wait_until(lambda: len(third.received) > 50, "records for the third member")
                sent = flow.stop()
                wait_until(
                    lambda: numbers_seen(first, second, third).keys() >= set(range(sent)),
                    "all records",
                )


def test_a_group_is_moved_to_cooperative_sharing_member_by_member(bootstrap, topic, group, flow):
    """First both strategies, which all still use eagerly; then the eager one is left out, one member after another."""
    both = {"partition_assignment_strategy": "cooperative-sticky,range"}
    with Reader(bootstrap, topic, group, partition_assignment_strategy="range") as old:
        wait_until(lambda: share_evenly(old), "everything")
        with Reader(bootstrap, topic, group, **both) as first:
            wait_until(lambda: share_evenly(old, first), "a share for each")
            old.close()
            wait_until(lambda: share_evenly(first), "everything")
            with Reader(bootstrap, topic, group) as second:
                wait_until(lambda: share_evenly(first, second) and len(second.numbers) > 20, "a share for each")
                first.close()
                wait_until(lambda: share_evenly(second), "everything")
                assert "revoked" not in changes(second)
                sent = flow.stop()
                everything = lambda: old.numbers + first.numbers + second.numbers  # noqa: E731
                wait_until(lambda: len(everything()) >= sent, "all records")
    assert Counter(everything()) == Counter(range(sent))


def test_a_member_with_no_strategy_of_the_group_is_told_so(bootstrap, topic, group, flow):
    with (
        Reader(bootstrap, topic, group) as reader,
        Reader(bootstrap, topic, group, partition_assignment_strategy="roundrobin") as other,
    ):
        wait_until(lambda: reader.failure or other.failure, "an error for one of them")
    failure = reader.failure or other.failure
    assert failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "partition_assignment_strategy" in str(failure)


# --- static members ------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_a_static_member_is_started_again_and_nobody_else_notices(bootstrap, topic, group, flow, strategy):
    """Whether it leads the group or not: each of the two in turn."""
    settings = {"partition_assignment_strategy": strategy}
    with contextlib.ExitStack() as stack:
        readers = {
            name: stack.enter_context(Reader(bootstrap, topic, group, group_instance_id=name, **settings))
            for name in ("one", "two")
        }
        wait_until(lambda: share_evenly(*readers.values()), "a share for each")
        for name, stays in (("one", "two"), ("two", "one")):
            had, events = readers[name].assigned, len(readers[stays].events)
            generation = readers[stays].generation
            readers[name].close()
            readers[name] = stack.enter_context(Reader(bootstrap, topic, group, group_instance_id=name, **settings))
            wait_until(lambda: readers[name].assigned == had, "the same share as before")  # noqa: B023
            assert readers[name].generation == readers[stays].generation == generation
            assert len(readers[stays].events) == events


def test_who_is_fenced_is_told_for_good_and_loses_its_partitions(bootstrap, topic, group, flow):
    with Reader(bootstrap, topic, group, group_instance_id="one") as first:
        wait_until(lambda: share_evenly(first), "everything")
        with Reader(bootstrap, topic, group, group_instance_id="one") as second:
            wait_until(lambda: first.failure is not None and share_evenly(second), "one to be fenced")
            assert isinstance(first.failure, FencedError)
            assert "group_instance_id='one'" in str(first.failure)
            assert first.events[-1] == ("lost", set(range(PARTITIONS)))
            for _ in range(2):
                with pytest.raises(FencedError):
                    first.consumer.poll(timeout_s=1)
            with pytest.raises(FencedError, match="give each consumer its own instance id"):
                first.consumer.commit({TopicPartition(topic, 0): 1})
            generation = second.generation
        assert second.failure is None
        assert second.generation in {generation, -1}


def test_a_commit_finds_out_that_its_member_is_fenced(bootstrap, topic, group, flow):
    settings = {**COOPERATIVE, "heartbeat_interval_ms": 5_000, "group_instance_id": "one"}
    with barnabas.Consumer(bootstrap, group=group, **settings) as first:
        first.subscribe(topic)
        wait_until(lambda: first.poll(timeout_s=0.1), "records")
        with Reader(bootstrap, topic, group, group_instance_id="one") as second:
            wait_until(lambda: share_evenly(second), "the other one to take over")
            with pytest.raises(FencedError, match="group_instance_id='one'"):
                first.commit()
            with pytest.raises(FencedError):
                first.poll()


# --- time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_handler_that_computes_for_long_keeps_its_partitions(bootstrap, topic, group, flow, strategy):
    """Twice the session: the heartbeats go on beside the handler, though it computes without a pause."""
    settings = {**QUICK, "partition_assignment_strategy": strategy, "session_timeout_ms": 1_000}
    with barnabas.Consumer(bootstrap, group=group, **settings) as consumer:
        consumer.subscribe(topic)
        wait_until(lambda: consumer.poll(timeout_s=0.1), "records")
        membership = consumer._core.state.membership
        generation, clock = membership.generation, consumer._core.state.clock
        until = clock.monotonic() + 2.0
        while clock.monotonic() < until:
            sum(range(1_000))
        consumer.commit()
        consumer.poll()
        assert membership.generation == generation


def test_who_polls_too_late_has_lost_its_partitions_and_reads_again(bootstrap, topic, group, flow):
    told = []
    settings = {**COOPERATIVE, "max_poll_interval_ms": 300}
    with barnabas.Consumer(bootstrap, group=group, **settings) as consumer:
        consumer.subscribe(topic, on_revoke=lambda tps: told.append("revoked"), on_lost=lambda tps: told.append("lost"))
        wait_until(lambda: consumer.poll(timeout_s=0.1), "records")
        membership = consumer._core.state.membership
        wait_until(lambda: membership.lost, "the member to leave")
        with pytest.raises(ApiError, match="max_poll_interval_ms") as refused:
            consumer.commit()
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        # What was handed out and not committed comes again.
        assert consumer.poll(timeout_s=60)[0].offset == 0
        assert told == ["lost"]


def test_offsets_are_committed_with_metadata_by_the_member_that_has_the_partition(bootstrap, topic, group, flow):
    with barnabas.Consumer(bootstrap, group=group, enable_auto_commit=False, **COOPERATIVE) as consumer:
        consumer.subscribe(topic)
        wait_until(lambda: consumer.poll(timeout_s=0.1), "records")
        consumer.commit({(topic, 0): OffsetAndMetadata(7, "by hand"), (topic, 1): 9})
    with barnabas.Admin(bootstrap) as admin:
        committed = admin.group_offsets(group)
    assert committed[TopicPartition(topic, 0)][:2] == (7, "by hand")
    assert committed[TopicPartition(topic, 1)][:2] == (9, "")
