"""The topic of a run: the user's own topic, or a new topic that the run deletes afterwards. The module also counts the
stored records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from barnabas.client.admin import Admin
from barnabas.clock import Clock
from barnabas.errors import BarnabasError
from barnabas.laboratory.perf.pipelined_workload import Leader
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)

STORED_PATIENCE_S = 10.0
"""The maximum time without growth of the log, in seconds. Records that are still missing after this time are regarded
as lost."""

STORED_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The topic to use, with the settings for its creation.

    :param name: the name of the topic; None for a new topic, which is deleted after the run unless `keep` is set. A
        named topic is never deleted.
    """

    name: str | None = None
    partitions: int = 6
    replication_factor: int = 1
    config: Mapping[str, str] = field(default_factory=dict)
    keep: bool = False


@dataclass(frozen=True, slots=True)
class RunTopic:
    """An existing topic."""

    name: str
    partitions: int


@contextmanager
def run_topic(admin: Admin, plan: TopicSpec, new_name: Callable[[], str]) -> Iterator[RunTopic]:
    """Create the topic of a run if necessary, and delete a new topic at the end.

    :param new_name: returns the name of a topic that does not exist yet.
    """
    name = plan.name or new_name()
    exists = plan.name is not None and name in admin.list_topics()
    if not exists:
        admin.create_topic(name, plan.partitions, plan.replication_factor, plan.config)
    try:
        yield RunTopic(name, len(partitions_of(admin, name)))
    finally:
        if plan.name is None and not plan.keep:
            _delete(admin, name)


def _delete(admin: Admin, name: str) -> None:
    """Delete a topic. An error is only logged, because it must not discard the measurement."""
    try:
        admin.delete_topic(name)
    except BarnabasError as error:
        log.warning("cannot delete topic %s: %s; delete it yourself", name, error)


def partitions_of(admin: Admin, topic: str) -> list[TopicPartition]:
    (found,) = admin.describe_topics([topic])
    return [TopicPartition(topic, each.partition) for each in found.partitions]


def leaders_of(admin: Admin, topic: str) -> tuple[Leader, ...]:
    """Return the leaders of a topic, each with the partitions that it leads."""
    (found,) = admin.describe_topics([topic])
    led: dict[int, list[int]] = {}
    for each in found.partitions:
        led.setdefault(each.leader, []).append(each.partition)
    addresses = {node.id: (node.host, node.port) for node in admin.brokers()}
    return tuple(Leader(*addresses[broker], tuple(partitions)) for broker, partitions in sorted(led.items()))


def ends_of(admin: Admin, topic: str) -> dict[int, int]:
    """Return the end offset of each partition."""
    return {tp.partition: offset for tp, offset in admin.end_offsets(partitions_of(admin, topic)).items()}


def beginnings_of(admin: Admin, topic: str) -> dict[int, int]:
    """Return the first offset of each partition."""
    return {tp.partition: offset for tp, offset in admin.beginning_offsets(partitions_of(admin, topic)).items()}


def await_stored(offsets_sum: Callable[[], int], expected: int, clock: Clock, pause: Callable[[float], object]) -> int:
    """Wait until the log has all records, or has not grown for `STORED_PATIENCE_S`. Return the sum of its end offsets.

    :param offsets_sum: returns the current sum of the end offsets.
    :param expected: the expected sum.
    :param pause: a function that sleeps for a number of seconds.
    """
    stored = offsets_sum()
    grown_at_s = clock.monotonic()
    while stored < expected and clock.monotonic() - grown_at_s < STORED_PATIENCE_S:
        pause(STORED_INTERVAL_S)
        before, stored = stored, offsets_sum()
        if stored > before:
            grown_at_s = clock.monotonic()
    return stored
