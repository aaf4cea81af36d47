"""What applications hand over, checked where it comes in: a wrong type must not surface in the background."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.client.config import ConsumerConfig, make_config
from barnabas.errors import ConfigurationError
from barnabas.model import OffsetAndMetadata, TopicPartition


def consumer_config(bootstrap: Any, group: str | None, settings: Mapping[str, Any]) -> ConsumerConfig:
    """Return the settings of a consumer.

    :raises ConfigurationError: see `make_config`; and topics where the addresses belong, as other clients take them.
    """
    if "bootstrap_servers" in settings and bootstrap is not None and not isinstance(bootstrap, Mapping):
        raise ConfigurationError(
            f"the first argument, {bootstrap!r}, is the bootstrap address, which bootstrap_servers= gives as well; "
            "to read topics call subscribe(topics)"
        )
    if group is not None:
        settings = {**settings, "group": group}
    return make_config(ConsumerConfig, bootstrap, settings)


def topic_names(topics: object) -> frozenset[str]:
    """Return names given as one string or several.

    :raises TypeError: something else.

    >>> sorted(topic_names(["b", "a"])), sorted(topic_names("ab"))
    (['a', 'b'], ['ab'])
    """
    names = [topics] if isinstance(topics, str) else topics
    if not isinstance(names, Iterable) or isinstance(names, (bytes, bytearray)):
        raise TypeError(f"topics must be a name or a list of names, not {topics!r}")
    found = frozenset(names)
    for name in found:
        if not isinstance(name, str):
            raise TypeError(f"a topic's name must be a str, not {name!r}")
    return found


def partition(tp: object) -> TopicPartition:
    """Return a partition given as a pair.

    :raises TypeError: something else.

    >>> partition(("clicks", 3))
    TopicPartition(topic='clicks', partition=3)
    """
    if isinstance(tp, tuple | list) and len(tp) == 2 and isinstance(tp[0], str) and isinstance(tp[1], int):
        return TopicPartition(*tp)
    raise TypeError(f"a partition is a pair of topic and number, for example ('clicks', 0), not {tp!r}")


def single_partition(tps: object) -> TopicPartition | None:
    """Return the partition where one was given as a pair; None where several were given.

    >>> single_partition(("clicks", 3)), single_partition([("clicks", 3)])
    (TopicPartition(topic='clicks', partition=3), None)
    """
    is_pair = isinstance(tps, tuple | list) and len(tps) == 2 and isinstance(tps[0], str)
    return partition(tps) if is_pair else None


def partitions(tps: object) -> list[TopicPartition]:
    """Return partitions given as pairs.

    :raises TypeError: something else.
    """
    if not isinstance(tps, Iterable) or isinstance(tps, (str, bytes)):
        raise TypeError(f"partitions must be a list of pairs, for example [('clicks', 0)], not {tps!r}")
    return [partition(tp) for tp in tps]


def offset(given: object) -> int:
    """Return an offset.

    :raises TypeError: it is no whole number.
    :raises ConfigurationError: it is negative.
    """
    try:
        number = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"an offset must be a whole number, not {given!r}") from None
    if number < 0:
        raise ConfigurationError(f"offset {number} is negative; see seek_to_beginning and seek_to_end")
    return number


def offsets_to_commit(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets given by partition, with metadata or without.

    :raises TypeError: something else.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be a dict of partitions and offsets, {{('clicks', 0): 5}}, not {offsets!r}")
    return {partition(tp): _with_metadata(each) for tp, each in offsets.items()}


def _with_metadata(given: object) -> OffsetAndMetadata:
    if isinstance(given, tuple) and 1 <= len(given) <= 3:
        return OffsetAndMetadata(offset(given[0]), *given[1:])
    return OffsetAndMetadata(offset(given))
