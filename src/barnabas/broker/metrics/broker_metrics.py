"""Collects all metrics of a running broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from barnabas.broker.client_telemetry import ClientTelemetry
from barnabas.broker.group_service import GroupService
from barnabas.broker.handlers.fetch import FetchSessions
from barnabas.broker.isr_updates import IsrUpdates
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.loop_watch import LoopWatch
from barnabas.broker.membership import Membership
from barnabas.broker.metrics.group_lag import EndOffsets
from barnabas.broker.metrics.groups import collect_groups
from barnabas.broker.metrics.internals import collect_loop, collect_replication, collect_storage
from barnabas.broker.metrics.partitions import collect_partitions
from barnabas.broker.metrics.requests import (
    FETCH_SESSIONS,
    collect_authentications,
    collect_connections,
    collect_requests,
    collect_throttles,
)
from barnabas.broker.pipeline.scheduler import RequestPipeline
from barnabas.broker.quotas.enforcement import ThrottleCounts
from barnabas.broker.topics import Topics
from barnabas.metrics.metric import Sample
from barnabas.net.listener import Listener
from barnabas.storage.data_folders import DataFolders
from barnabas.storage.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """Collects the metrics of the components of a broker. Any thread may call `collect`.

    :param pipelines: the request pipelines of all listeners.
    :param listeners: the listeners, by name.
    """

    broker_id: int
    topics: Topics
    membership: Membership
    isr_updates: IsrUpdates
    groups: GroupService
    ends: EndOffsets
    fetch_sessions: FetchSessions
    pipelines: Sequence[RequestPipeline]
    listeners: Mapping[str, Listener]
    folders: DataFolders
    filesystem: FileSystem
    telemetry: ClientTelemetry
    throttles: ThrottleCounts
    cleaner: LogCleaner | None
    loop_watch: LoopWatch | None

    def collect(self) -> Iterator[Sample | None]:
        """Yield all metrics of the broker (`barnabas.metrics.metric.Collect`)."""
        yield from collect_partitions(self.broker_id, self.topics)
        yield from collect_groups(self.groups, lambda: self.topics.image, self.ends)
        yield from collect_requests(self.pipelines)
        yield from collect_throttles(self.throttles)
        yield from collect_connections(self.listeners)
        yield from collect_authentications(self.pipelines, self.listeners)
        yield FETCH_SESSIONS.sample(len(self.fetch_sessions))
        yield from collect_replication(self.topics.replicas, self.topics.election, self.isr_updates, self.membership)
        yield from collect_storage(self.folders, self.filesystem, self.cleaner)
        yield from collect_loop(self.loop_watch)
        yield from self.telemetry.collect()
