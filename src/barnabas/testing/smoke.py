"""A self-test of an installation. It needs no extra and no network.

    python -m barnabas.testing.smoke

The test starts a broker, produces and consumes records, commits the offsets of a group, stops and restarts the broker,
and continues the group. It prints a line for each step. The exit code is 0 if all steps work, otherwise 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import barnabas
from barnabas.clock import SYSTEM_CLOCK
from barnabas.testing.broker_process import BrokerProcess

RECORDS = 1_000
GROUP = "smoke"
TIMEOUT_S = 60.0


class SmokeTestError(barnabas.BarnabasError):
    """A step had another result than it should."""


def main() -> int:
    """Run all steps. Return the exit code."""
    broker = BrokerProcess()
    try:
        began_s = SYSTEM_CLOCK.monotonic()
        for line in _steps(broker):
            now_s = SYSTEM_CLOCK.monotonic()
            sys.stdout.write(f"ok  {line} ({(now_s - began_s) * 1000:.0f} ms)\n")
            sys.stdout.flush()
            began_s = now_s
    except (barnabas.BarnabasError, OSError) as error:
        sys.stdout.write(f"FAILED  {error}\n")
        sys.stdout.write(broker.log)
        return 1
    finally:
        broker.stop()
    sys.stdout.write(f"Barnabas {barnabas.__version__} works\n")
    return 0


def _steps(broker: BrokerProcess) -> Iterator[str]:
    """Run the steps; yield the description of each completed step."""
    broker.start()
    yield f"a broker started at {broker.bootstrap}"
    topic = broker.create_topic("smoke", partitions=3)
    yield "it created a topic with three partitions"
    _produce(broker, topic, 0)
    yield f"it stored {RECORDS} records"
    _consume(broker, topic, range(RECORDS))
    yield "a group consumed them, and committed its offsets"
    broker.restart()
    yield "the broker stopped, and started again"
    _produce(broker, topic, RECORDS)
    _consume(broker, topic, range(RECORDS, 2 * RECORDS))
    yield "the group continued at its offsets"
    broker.kill()
    broker.restart()
    _consume(broker, topic, range(2 * RECORDS), group=None)
    yield "no record was lost by kill -9"
    data = broker.data
    broker.stop()
    if data.parent.exists():
        raise SmokeTestError(f"{data.parent} still exists")
    yield "the broker stopped, and its files are removed"


def _produce(broker: BrokerProcess, topic: str, first: int) -> None:
    with barnabas.Producer(broker.bootstrap) as producer:
        for number in range(first, first + RECORDS):
            producer.send(topic, str(number).encode(), key=str(number).encode())
        producer.flush()


def _consume(broker: BrokerProcess, topic: str, expected: range, group: str | None = GROUP) -> None:
    """Consume records until all expected ones have arrived, and commit.

    :raises SmokeTestError: records are missing after `TIMEOUT_S`, or others arrived.
    """
    left = {str(number).encode() for number in expected}
    deadline_s = SYSTEM_CLOCK.monotonic() + TIMEOUT_S
    with barnabas.Consumer(broker.bootstrap, group=group, auto_offset_reset="earliest") as consumer:
        if group is None:
            consumer.assign([(topic, number) for number in range(3)])
        else:
            consumer.subscribe(topic)
        while left:
            for record in consumer.poll(timeout_s=0.5):
                if record.value not in left:
                    raise SmokeTestError(f"unexpected record {record.value!r} at {record.partition}:{record.offset}")
                left.discard(record.value)
            if left and SYSTEM_CLOCK.monotonic() > deadline_s:
                raise SmokeTestError(f"{len(left)} of {len(expected)} records did not arrive within {TIMEOUT_S:g} s")
        if group is not None:
            consumer.commit()


if __name__ == "__main__":
    sys.exit(main())
