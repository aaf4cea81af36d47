"""Readiness: a broker is ready when it is registered, its groups are loaded, and its replicas are in sync."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.readiness import Readiness
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import PartitionState
from barnabas.errors import ErrorCode

OWN = 2


def readiness(*isrs: tuple[int, ...], is_member: bool = True, loading: int = 0, out_of_sync_max: int = 0) -> Readiness:
    """Return the readiness of broker 2, in a topic with replicas on the brokers 1, 2 and 3."""
    partitions = tuple(PartitionInfo((1, 2, 3), PartitionState(1, 0, isr), 0) for isr in isrs)
    image = MetadataImage().with_topics(TopicInfo("clicks", bytes(16), partitions))
    errors = [ErrorCode.NONE, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * loading]
    runtime = SimpleNamespace(shards=[SimpleNamespace(error=error) for error in errors])
    return Readiness(
        OWN,
        cast("Any", SimpleNamespace(is_member=is_member)),
        cast("Any", SimpleNamespace(image=image)),
        cast("Any", SimpleNamespace(runtime=runtime)),
        out_of_sync_max,
    )


def test_broker_is_ready_with_all_replicas_in_sync() -> None:
    assert readiness((1, 2, 3), (2, 1)).reasons_against() == []


def test_replicas_of_other_brokers_do_not_count() -> None:
    assert readiness((2,), (1, 2)).reasons_against() == []


def test_each_reason_has_a_line() -> None:
    assert readiness((1, 3), (1,), (1, 2), is_member=False, loading=2).reasons_against() == [
        "this broker is not registered in the metadata store, and leads no partitions",
        "2 partitions of groups are still loading",
        "2 replicas of this broker are out of sync, more than 0",
    ]


def test_some_replicas_may_be_out_of_sync() -> None:
    assert readiness((1, 3), (1,), out_of_sync_max=2).reasons_against() == []
    assert len(readiness((1, 3), (1,), (3,), out_of_sync_max=2).reasons_against()) == 1
