"""The administrator that programs use: topics, brokers, offsets of partitions and of groups."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.client.administration import TopicDescription, create_topic, delete_topics, describe
from barnabas.client.cluster import Cluster
from barnabas.client.config import AdminConfig, make_config
from barnabas.client.dialing import dial_with
from barnabas.client.loop_thread import LoopThread
from barnabas.client.offset_queries import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    commit_offsets,
    committed_offsets,
    list_offsets,
)
from barnabas.clock import SYSTEM_CLOCK
from barnabas.model import Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

T = TypeVar("T")


class Admin:
    """Creates and describes topics, and asks for offsets. Safe to use from several threads.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    :param settings: see `barnabas.client.config.AdminConfig`.
    :raises ConfigurationError: a setting that does not exist or cannot be.

    Every call raises KafkaError where a broker refuses, and TimedOutError where none answers within
    `default_api_timeout_ms`.

        with barnabas.Admin("localhost:9092") as admin:
            admin.create_topic("clicks", partitions=6)
    """

    def __init__(self, bootstrap: str | Iterable[str] | Mapping[str, Any] | None = None, **settings: Any) -> None:
        self._config = make_config(AdminConfig, bootstrap, settings)
        self._closed = False
        self._cluster: Cluster
        self._thread = LoopThread("barnabas-admin")
        self._thread.call(self._start())

    async def _start(self) -> None:
        self._cluster = Cluster(self._config, dial=dial_with(self._config), clock=SYSTEM_CLOCK, random=random.random)

    # --- topics -----------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; `config` has Kafka's names, for example `{"retention.ms": "86400000"}`.

        :raises KafkaError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_CONFIG ...
        """
        self._call(
            create_topic(
                self._cluster,
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                config=config or {},
                timeout_ms=self._config.request_timeout_ms,
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records.

        :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION ...
        """
        self._call(delete_topics(self._cluster, [name], timeout_ms=self._config.request_timeout_ms))

    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted; internal ones are left out."""
        return [topic.name for topic in self._describe(None) if not topic.is_internal]

    def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """Return the partitions of topics, of all if no names are given.

        :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION for a name that does not exist.
        """
        return [describe(topic) for topic in self._describe(names)]

    def _describe(self, names: Iterable[str] | None) -> list[Any]:
        wanted = None if names is None else list(names)
        cluster = self._cluster
        return self._call(cluster.retrying(lambda: cluster.describe(wanted), what="topics are not known"))

    def brokers(self) -> list[Node]:
        """Return the live brokers."""
        cluster = self._cluster
        self._call(cluster.retrying(lambda: cluster.describe([]), what="brokers are not known"))
        return sorted(cluster.view.brokers.values(), key=lambda node: node.id)

    # --- offsets ----------------------------------------------------------------------------------------

    def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._ends(tps, EARLIEST_TIMESTAMP)

    def end_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return self._ends(tps, LATEST_TIMESTAMP)

    def _ends(self, tps: Iterable[tuple[str, int]], which: int) -> dict[TopicPartition, int]:
        found = self.offsets_for_times(dict.fromkeys(tps, which))
        return {tp: at.offset for tp, at in found.items() if at is not None}

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition the first offset with a timestamp of at least the one given, or None."""
        wanted = {TopicPartition(*tp): at_ms for tp, at_ms in timestamps_ms.items()}
        return self._call(list_offsets(self._cluster, wanted)) if wanted else {}

    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all offsets that a group has committed."""
        return self._call(committed_offsets(self._cluster, group, None))

    def set_group_offsets(self, group: str, offsets: Mapping[tuple[str, int], OffsetAndMetadata | int]) -> None:
        """Commit offsets for a group that has no members now.

        :raises KafkaError: UNKNOWN_MEMBER_ID: the group has members; stop them first.
        """
        given = {
            TopicPartition(*tp): OffsetAndMetadata(each) if isinstance(each, int) else each
            for tp, each in offsets.items()
        }
        self._call(commit_offsets(self._cluster, group, given))

    # --- finishing --------------------------------------------------------------------------------------

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(coroutine)

    def close(self) -> None:
        """End the connections and the background thread. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._thread.call(self._disconnect())
        self._thread.stop()

    async def _disconnect(self) -> None:
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
