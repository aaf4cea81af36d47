"""Our asynchronous consumer against a real broker: every way of reading, groups, what goes on while others wait."""

from __future__ import annotations

import asyncio
import time

import pytest

import barnabas
from barnabas import OffsetAndMetadata, TopicPartition

SESSION = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100, "auto_offset_reset": "earliest"}
PARTITIONS = 4
COUNT = 400


@pytest.fixture
def filled(bootstrap, topic):
    """Records numbered through, a hundred in each partition."""
    with barnabas.Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    with barnabas.Producer(bootstrap, batch_size=500) as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    return topic


async def wait_for(condition, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"


async def read(consumer, count):
    records = []

    async def enough():
        records.extend(await consumer.poll(timeout_s=0.2))
        return len(records) >= count

    await wait_for(enough)
    return records


def committed_in(bootstrap, group):
    with barnabas.Admin(bootstrap) as admin:
        return {tp.partition: each.offset for tp, each in admin.group_offsets(group).items()}


def test_iterating_hands_out_everything_in_order(bootstrap, filled, group):
    async def main():
        seen = {}
        async with barnabas.AsyncConsumer(bootstrap, group=group, max_poll_records=7, **SESSION) as consumer:
            consumer.subscribe(filled)
            count = 0
            async for record in consumer:
                seen.setdefault(record.partition, []).append(record.offset)
                assert await consumer.position((record.topic, record.partition)) == record.offset + 1
                count += 1
                if count == COUNT:
                    break
        return seen

    assert asyncio.run(main()) == {partition: list(range(100)) for partition in range(PARTITIONS)}
    assert committed_in(bootstrap, group) == dict.fromkeys(range(PARTITIONS), 100)


def test_batches_are_lists_that_are_never_empty(bootstrap, filled):
    async def main():
        async with barnabas.AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(filled)
            numbers = []
            async for records in consumer.batches(max_records=33):
                assert 0 < len(records) <= 33
                numbers += [int(record.value) for record in records]
                if len(numbers) == COUNT:
                    return numbers

    assert sorted(asyncio.run(main())) == list(range(COUNT))


def test_ways_of_reading_may_be_mixed(bootstrap, filled):
    pytest.importorskip("pyarrow")

    async def main():
        offsets = []
        async with barnabas.AsyncConsumer(bootstrap, auto_offset_reset="earliest", max_poll_records=5) as consumer:
            consumer.assign([(filled, 0)])
            async for record in consumer:
                offsets.append(record.offset)
                if len(offsets) == 3:
                    break
            offsets += (await consumer.poll_arrow(max_records=7))["offset"].to_pylist()
            offsets += [record.offset for record in await consumer.poll(max_records=7)]
            offsets += (await consumer.poll_arrow(max_records=1))["offset"].to_pylist()
            async for record in consumer:
                offsets.append(record.offset)
                if record.offset == 99:
                    return offsets

    assert asyncio.run(main()) == list(range(100))


def test_a_poll_in_vain_ends_in_time(bootstrap, filled):
    async def main():
        async with barnabas.AsyncConsumer(bootstrap) as consumer:
            consumer.subscribe(filled)
            assert await consumer.poll(timeout_s=0.1) == []
            assert (await consumer.poll_arrow(timeout_s=0.1)).num_rows == 0

    asyncio.run(main())


def test_positions_are_sought_and_offsets_asked_for(bootstrap, filled):
    async def main():
        tp = TopicPartition(filled, 1)
        async with barnabas.AsyncConsumer(bootstrap) as consumer:
            consumer.assign([tp])
            consumer.seek(tp, 50)
            assert (await consumer.poll(max_records=1))[0].offset == 50
            consumer.seek_to_beginning(tp)
            assert (await consumer.poll(max_records=1))[0].offset == 0
            consumer.seek_to_end(tp)
            assert await consumer.position(tp) == 100
            assert await consumer.beginning_offsets([tp]) == {tp: 0}
            assert await consumer.end_offsets([tp]) == {tp: 100}
            assert (await consumer.offsets_for_times({tp: 0}))[tp].offset == 0
            with pytest.raises(barnabas.ConfigurationError, match="not assigned"):
                consumer.seek((filled, 0), 0)

    asyncio.run(main())


def test_a_paused_partition_waits_and_loses_nothing(bootstrap, filled):
    async def main():
        async with barnabas.AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(filled, 0), (filled, 1)])
            first = await consumer.poll(max_records=10, timeout_s=60)
            paused = (filled, first[0].partition)
            consumer.pause(paused)
            assert {record.partition for record in await read(consumer, 100)} == {1 - paused[1]}
            consumer.resume(paused)
            rest = await read(consumer, 90)
            return [record.offset for record in first + rest]

    assert asyncio.run(main()) == list(range(100))


def test_commits_are_the_groups(bootstrap, filled, group):
    async def main():
        tp = TopicPartition(filled, 2)
        async with barnabas.AsyncConsumer(bootstrap, group=group, enable_auto_commit=False, **SESSION) as consumer:
            consumer.subscribe(filled)
            assert await consumer.committed(tp) is None
            async for record in consumer:
                if (record.partition, record.offset) == (2, 4):
                    await consumer.commit()
                    break
            assert (await consumer.committed(tp)).offset == 5
            await consumer.commit({tp: OffsetAndMetadata(7, "by hand")})
            assert (await consumer.committed(tp))[:2] == (7, "by hand")
        async with barnabas.AsyncConsumer(bootstrap) as alone:
            with pytest.raises(barnabas.ConfigurationError, match="without a group"):
                await alone.commit()

    asyncio.run(main())


def test_a_record_in_hand_when_its_handler_fails_is_handed_out_again(bootstrap, filled, group):
    async def main():
        async with barnabas.AsyncConsumer(bootstrap, group=group, **SESSION) as consumer:
            consumer.subscribe(filled)
            async for record in consumer:
                if (record.partition, record.offset) == (0, 3):
                    raise ValueError("handler")

    with pytest.raises(ValueError, match="handler"):
        asyncio.run(main())
    assert committed_in(bootstrap, group)[0] == 3


def test_two_members_on_one_loop_share_and_take_over(bootstrap, filled, group):
    events = []

    async def assigned(tps):
        await asyncio.sleep(0)
        events.append(("+", len(tps)))

    def revoked(tps):
        events.append(("-", len(tps)))

    async def main():
        seen = []
        async with barnabas.AsyncConsumer(bootstrap, group=group, **SESSION) as first:
            first.subscribe(filled, on_assign=assigned, on_revoke=revoked)
            seen += await read(first, COUNT)
            second = barnabas.AsyncConsumer(bootstrap, group=group, **SESSION)
            second.subscribe(filled)

            async def balanced():
                for records in await asyncio.gather(first.poll(timeout_s=0.05), second.poll(timeout_s=0.05)):
                    seen.extend(records)
                return len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2

            await wait_for(balanced)
            assert first.assignment().isdisjoint(second.assignment())
            await second.close()

            async def has_all():
                seen.extend(await first.poll(timeout_s=0.05))
                return len(first.assignment()) == PARTITIONS

            await wait_for(has_all)
        return seen

    assert len(asyncio.run(main())) == COUNT  # committed before each rebalance: nothing twice
    assert events == [("+", 4), ("-", 4), ("+", 2), ("-", 2), ("+", 4)]


def test_heartbeats_go_on_while_a_handler_awaits(bootstrap, filled, group):
    async def main():
        settings = {**SESSION, "session_timeout_ms": 1_000}
        async with barnabas.AsyncConsumer(bootstrap, group=group, **settings) as consumer:
            consumer.subscribe(filled)
            assert await read(consumer, 1)
            membership = consumer._core.state.membership
            generation = membership.generation
            await asyncio.sleep(2)
            await consumer.commit()
            await consumer.poll()
            assert membership.generation == generation

    asyncio.run(main())


def test_who_does_not_poll_in_time_loses_its_partitions_and_is_told(bootstrap, filled, group):
    async def main():
        told = []
        settings = {**SESSION, "max_poll_interval_ms": 300}
        async with barnabas.AsyncConsumer(bootstrap, group=group, **settings) as consumer:
            consumer.subscribe(filled, on_lost=told.append)
            assert await read(consumer, 1)
            membership = consumer._core.state.membership

            async def lost():
                await asyncio.sleep(0.01)
                return membership.lost

            await wait_for(lost)
            with pytest.raises(barnabas.ApiError, match="max_poll_interval_ms"):
                await consumer.commit()
            assert await read(consumer, COUNT)
            assert len(told) == 1

    asyncio.run(main())


def test_a_poll_that_is_cancelled_while_the_group_is_joined_does_no_harm(bootstrap, filled, group):
    async def main():
        async with barnabas.AsyncConsumer(bootstrap, group=group, **SESSION) as consumer:
            consumer.subscribe(filled)
            records = []
            while len(consumer.assignment()) < PARTITIONS:
                task = asyncio.create_task(consumer.poll(timeout_s=60))
                await asyncio.sleep(0.001)
                task.cancel()
                (outcome,) = await asyncio.gather(task, return_exceptions=True)
                records += outcome if isinstance(outcome, list) else []
            records += await read(consumer, COUNT - len(records))
            assert len(records) == COUNT

    asyncio.run(main())


def test_closing_ends_the_iterations_of_other_tasks(bootstrap, filled):
    async def main():
        consumer = barnabas.AsyncConsumer(bootstrap)
        consumer.subscribe(filled)

        async def follow():
            return [record async for record in consumer]

        task = asyncio.create_task(follow())

        async def reads():
            await asyncio.sleep(0.01)
            return consumer._core.state.waiting

        await wait_for(reads)
        await consumer.close()
        assert await task == []
        await consumer.close()
        with pytest.raises(barnabas.ClosedError):
            await consumer.poll()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_others_on_the_loop_have_their_turn_while_records_are_at_hand(bootstrap, filled):
    async def main():
        turns = 0

        async def count_turns():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with barnabas.AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(filled, 0)])
            await consumer.poll(max_records=1, timeout_s=60)
            other = asyncio.create_task(count_turns())
            for _ in range(10):
                await asyncio.sleep(0)
                before = turns
                consumer._driver._turn_s = 0.0  # as if the last turn were long ago
                await consumer.poll(max_records=1)
                assert turns > before
            other.cancel()

    asyncio.run(main())


def test_a_broker_killed_under_a_consumer_is_survived(broker, group):
    async def main():
        with barnabas.Producer(broker.bootstrap) as producer:
            producer.send("clicks", b"before").result(60)
            async with barnabas.AsyncConsumer(broker.bootstrap, group=group, **SESSION) as consumer:
                consumer.subscribe("clicks")
                assert [record.value for record in await read(consumer, 1)] == [b"before"]
                broker.kill()
                assert await consumer.poll(timeout_s=0.2) == []
                broker.restart()
                sent = asyncio.get_running_loop().run_in_executor(
                    None, lambda: producer.send("clicks", b"after").result(60)
                )
                seen = [record.value for record in await read(consumer, 1)]
                await sent
                assert b"after" in seen

    asyncio.run(main())
