"""Our producer for event loops against a real broker: the promises of the other one, without a thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pyarrow
import pytest

import barnabas
from tests.interop.test_client_producer import read_all, wait_for_offset


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_setting_delivers(broker, acks):
    async def main():
        async with barnabas.AsyncProducer(broker.bootstrap, acks=acks) as producer:
            deliveries = [await producer.send("clicks", b"%d" % number, partition=0) for number in range(1000)]
            many = await producer.send_many("clicks", [b"%d" % number for number in range(1000, 3000)], partition=0)
            return [(await delivery).offset for delivery in deliveries] + [each.offset for each in await many]

    assert asyncio.run(main()) == ([-1] * 3000 if acks == 0 else list(range(3000)))
    assert read_all(broker.bootstrap, "clicks")[0] == [b"%d" % number for number in range(3000)]


def test_keys_go_where_the_other_producer_puts_them(broker):
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks", partitions=7)
    keys = [b"key-%d" % number for number in range(100)]
    with barnabas.Producer(broker.bootstrap) as producer:
        expected = [producer.send("clicks", b"", key).result().partition for key in keys]

    async def main():
        async with barnabas.AsyncProducer(broker.bootstrap) as producer:
            assert await producer.partitions_for("clicks") == list(range(7))
            one_by_one = [(await (await producer.send("clicks", b"", key))).partition for key in keys]
            together = await (await producer.send_many("clicks", [b""] * 100, keys=keys))
            table = pyarrow.table({"value": [b""] * 100, "key": keys})
            columns = await (await producer.send_arrow("clicks", table, value="value", key="key"))
            return one_by_one, [each.partition for each in together], [each.partition for each in columns]

    assert asyncio.run(main()) == (expected, expected, expected)


def test_many_tasks_that_await_each_record_share_requests(broker):
    async def main():
        async with barnabas.AsyncProducer(broker.bootstrap) as producer:
            await producer.partitions_for("clicks")

            async def deliver(number):
                return await (await producer.send("clicks", b"%d" % number))

            return await asyncio.gather(*(deliver(number) for number in range(5_000)))

    places = asyncio.run(main())
    assert sorted(place.offset for place in places) == list(range(5_000))


def test_a_broker_that_is_down_at_first_is_waited_for_while_the_loop_goes_on(broker):
    broker.stop()

    async def main():
        async with barnabas.AsyncProducer(broker.bootstrap, max_block_ms=60_000) as producer:
            sending = asyncio.create_task(producer.send("clicks", b"late"))
            await asyncio.sleep(0.2)
            assert not sending.done()
            await asyncio.to_thread(broker.restart)
            return await (await sending)

    assert asyncio.run(main()).offset == 0


def test_more_than_fits_into_memory_waits_for_the_broker(broker):
    values = [b"%06d" % number * 20 for number in range(20_000)]

    async def main():
        async with barnabas.AsyncProducer(
            broker.bootstrap, buffer_memory=100_000, batch_size=10_000, max_request_size=50_000
        ) as producer:
            await producer.send_many("clicks", values[:10_000], partition=0)
            for value in values[10_000:]:
                await producer.send("clicks", value, partition=0)

    asyncio.run(main())
    assert read_all(broker.bootstrap, "clicks")[0] == values


def test_memory_that_stays_full_raises(broker):
    async def main():
        producer = barnabas.AsyncProducer(broker.bootstrap, buffer_memory=50_000, max_block_ms=2_000)
        await (await producer.send("clicks", b"taken"))
        broker.kill()
        with pytest.raises(barnabas.BufferFullError, match="50000 bytes"):
            await producer.send_many("clicks", [bytes(1000)] * 100)
        with pytest.raises(barnabas.TimedOutError, match="still on their way"):
            await producer.close(timeout_s=0.01)

    asyncio.run(main())


def test_kill_9_loses_nothing_doubles_nothing_and_keeps_the_order(broker):
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks", partitions=3)

    def kill_now_and_then():
        for _ in range(3):
            wait_for_offset(broker.bootstrap, lambda end, start: end > start + 2_000)
            broker.kill()
            broker.restart()

    killer = threading.Thread(target=kill_now_and_then)

    async def main():
        async with barnabas.AsyncProducer(
            broker.bootstrap, batch_size=4096, linger_ms=1, retry_backoff_max_ms=200
        ) as producer:
            await producer.partitions_for("clicks")
            killer.start()
            deliveries = []
            while killer.is_alive():
                number = len(deliveries)
                deliveries.append(await producer.send("clicks", b"%d" % number, partition=number % 3))
                if number >= 1_000 and number % 100 == 0:
                    await deliveries[number - 1_000]  # always some under way, never all at once
            await producer.flush(60)
            return [await delivery for delivery in deliveries]

    results = asyncio.run(main())
    killer.join()
    values = read_all(broker.bootstrap, "clicks")
    for partition in range(3):
        assert values[partition] == [b"%d" % number for number in range(partition, len(results), 3)]
    assert [result.offset for result in results] == [number // 3 for number in range(len(results))]


def test_the_end_of_a_program_that_forgot_to_close_says_what_is_lost(broker):
    program = f"""
import asyncio, barnabas

async def main():
    producer = barnabas.AsyncProducer({broker.bootstrap!r})
    await producer.partitions_for("clicks")
    for number in range(3):
        await producer.send("clicks", b"%d" % number)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "3 records were not acknowledged and may be lost" in done.stderr
