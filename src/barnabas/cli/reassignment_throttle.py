"""The throttle of a reassignment (KIP-73), set before the moves and removed after them.

As in `kafka-reassign-partitions --throttle`, topic settings list the throttled replicas, and broker settings contain
the rate. Here, the rate is a setting of all brokers. An interrupted command leaves the throttles, because its moves
continue. The next reassignment command removes the throttles of partitions that are no longer moving, even if it sets
no throttle itself. Lists with the wildcard `*` do not come from these commands, and stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin

LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RATES = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
ALL = "*"

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Targets = Mapping[TopicPartition, Sequence[int]]


def throttle_option(function: Decorated) -> Decorated:
    """Add `--throttle`."""
    return click.option(
        "--throttle",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="Limit copying to this many bytes per second, to and from each broker.",
    )(function)


def set_throttle(admin: Admin, before: Targets, targets: Targets, rate: int) -> None:
    """Throttle the moves of partitions.

    :param before: the current replicas.
    :param rate: the limit in bytes per second.
    """
    lists = _lists(admin, {tp.topic for tp in targets})
    for tp, replicas in targets.items():
        of_topic = lists[tp.topic]
        of_topic[LEADERS] |= dict.fromkeys(f"{tp.partition}:{each}" for each in before[tp])
        of_topic[FOLLOWERS] |= dict.fromkeys(f"{tp.partition}:{each}" for each in replicas if each not in before[tp])
    admin.alter_config(all_brokers=True, to_set=dict.fromkeys(RATES, str(rate)))
    for topic, of_topic in lists.items():
        admin.alter_config(topic, to_set={name: ",".join(each) for name, each in of_topic.items() if ALL not in each})


def remove_throttles(admin: Admin, topics: Collection[str]) -> set[TopicPartition]:
    """Remove the throttles of partitions that are not moving; if no throttle remains, also remove the rates.

    :returns: the partitions that are still moving with a throttle.
    """
    found = {topic: lists for topic, lists in _lists(admin, topics).items() if _without_star(lists)}
    if not found:
        return set()
    moving = admin.list_partition_reassignments()
    throttled: set[TopicPartition] = set()
    for topic, lists in found.items():
        kept = {name: [each for each in lists[name] if _where(topic, each) in moving] for name in _without_star(lists)}
        throttled.update(_where(topic, each) for replicas in kept.values() for each in replicas)
        to_set = {name: ",".join(each) for name, each in kept.items() if each}
        admin.alter_config(topic, to_set=to_set, to_unset=[name for name, each in kept.items() if not each])
        # Remember the change, because the next request may go to a broker whose metadata do not have it yet.
        lists.update({name: dict.fromkeys(each) for name, each in kept.items()})
    left = {**_lists(admin, admin.list_topics(include_internal=True)), **found}
    if not any(each for lists in left.values() for each in lists.values()):
        configured = admin.describe_config(all_brokers=True)
        admin.alter_config(all_brokers=True, to_unset=[rate for rate in RATES if rate in configured])
    return throttled


def _lists(admin: Admin, topics: Iterable[str]) -> dict[str, dict[str, dict[str, None]]]:
    """Return the throttled replicas in the settings of topics, by topic and setting."""
    configured = admin.describe_topic_configs(sorted(topics), [LEADERS, FOLLOWERS])
    return {
        topic: {
            name: dict.fromkeys(part for each in (settings[name].value or "").split(",") if (part := each.strip()))
            for name in (LEADERS, FOLLOWERS)
        }
        for topic, settings in configured.items()
    }


def _without_star(lists: Mapping[str, Mapping[str, None]]) -> list[str]:
    """Return the throttle settings of a topic that list replicas. Settings with the wildcard `*` are omitted."""
    return [name for name, each in lists.items() if each and ALL not in each]


def _where(topic: str, replica: str) -> TopicPartition:
    return TopicPartition(topic, int(replica.partition(":")[0]))
