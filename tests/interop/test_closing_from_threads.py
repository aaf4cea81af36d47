"""Real clients that several threads close at once: each call returns when the client has ended, and no sooner."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import barnabas

THREADS = 3
WAIT_S = 120


def close_at_once(close: Callable[[], None], has_ended: Callable[[], bool]) -> list[bool | BaseException]:
    """Call `close` from several threads; return what each found when that had returned."""
    barrier, found = threading.Barrier(THREADS), []

    def end() -> None:
        try:
            barrier.wait(WAIT_S)
            close()
            found.append(has_ended())
        except BaseException as error:  # noqa: BLE001 - what it was is what the test asks
            found.append(error)

    threads = [threading.Thread(target=end) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    return found


def test_a_producer_that_is_closed_from_several_threads_delivers_all(bootstrap: str, topic: str) -> None:
    producer = barnabas.Producer(bootstrap, linger_ms=1_000)
    deliveries = producer.send_many(topic, [b"%d" % number for number in range(5_000)])
    assert close_at_once(producer.close, deliveries.done) == [True] * THREADS
    deliveries.check(0)
    with pytest.raises(barnabas.ClosedError, match="closed"):
        producer.send(topic, b"late")


@pytest.mark.parametrize("polls", [False, True])
def test_a_consumer_that_is_closed_from_several_threads_commits_and_leaves_once(
    bootstrap: str, topic: str, group: str, polls: bool
) -> None:
    with barnabas.Producer(bootstrap) as producer:
        producer.send_many(topic, [b"v"] * 10, partition=0).check(WAIT_S)
    consumer = barnabas.Consumer(bootstrap, group=group, auto_offset_reset="earliest", auto_commit_interval_ms=600_000)
    consumer.subscribe(topic)
    handed_out = 0
    while handed_out < 10:
        handed_out += len(consumer.poll())
    ended: list[type[BaseException]] = []

    def poll() -> None:
        try:
            while True:
                consumer.poll(timeout_s=WAIT_S)
        except barnabas.ClosedError as error:
            ended.append(type(error))

    polling = threading.Thread(target=poll)
    if polls:
        polling.start()
    with barnabas.Admin(bootstrap) as admin:

        def has_left() -> bool:
            return not admin.describe_group(group).members

        assert close_at_once(consumer.close, has_left) == [True] * THREADS
        assert {tp: at.offset for tp, at in admin.group_offsets(group).items() if at.offset} == {(topic, 0): 10}
    if polls:
        polling.join(WAIT_S)
        assert ended == [barnabas.ClosedError]
