"""The metrics of leadership, ISRs, registration, storage, compaction and the event loop."""

from __future__ import annotations

from collections.abc import Iterator

import barnabas
from barnabas.broker.isr_updates import IsrUpdates
from barnabas.broker.leader_election import LeaderElection
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.loop_watch import LAG_BOUNDS_S, LoopWatch
from barnabas.broker.membership import Membership
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.metrics.metric import Observations, Sample, counter, gauge, histogram
from barnabas.storage.data_folders import DataFolders
from barnabas.storage.filesystem import FSYNC_BOUNDS_S, FileSystem, MeasuredFileSystem

# These metrics have the names of Strimzi's JMX exporter.
ISR_SHRINKS = counter(
    "kafka_server_replicamanager_isrshrinks_total", "ISR changes of this leader that removed replicas."
)
ISR_EXPANDS = counter("kafka_server_replicamanager_isrexpands_total", "ISR changes of this leader that added replicas.")
ISR_FAILURES = counter("kafka_server_replicamanager_failedisrupdates_total", "Failed attempts to write ISRs.")
UNCLEAN_ELECTIONS = counter(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "Elections that made this broker a leader although acknowledged records may be lost.",
)
OFFLINE_FOLDERS = gauge("kafka_log_logmanager_offlinelogdirectorycount", "Offline log directories.")
FSYNC_MS = histogram(
    "kafka_log_logflushstats_logflushrateandtimems",
    "Duration of each fsync of a file in milliseconds.",
    tuple(bound * 1000 for bound in FSYNC_BOUNDS_S),
)
UNCLEANABLE = gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count", "Logs that compaction skips because of an error."
)

BUILD = gauge("barnabas_build_info", "Always 1; the label has the version.", "version")
REGISTERED = gauge("barnabas_registered", "1 if this broker is registered in the metadata store, otherwise 0.")
REGISTRATIONS = counter("barnabas_registrations_total", "Registrations of this broker since its start.")
ELECTIONS = counter("barnabas_leader_elections_total", "Leader epochs that began with this broker as leader.")
LOOP_LAG = histogram(
    "barnabas_event_loop_lag_seconds",
    "Delay of the event loop's response, measured while the loop is busy, in seconds.",
    LAG_BOUNDS_S,
)
CLEANINGS = counter("barnabas_compactions_total", "Completed compactions.")
CLEANING_FAILURES = counter("barnabas_compaction_failures_total", "Failed compactions.")
CLEANING_READ = counter("barnabas_compaction_read_bytes_total", "Bytes that compactions read.")
CLEANING_REMOVED = counter("barnabas_compaction_removed_bytes_total", "Bytes that compactions removed.")
CLEANING_RECORDS = counter("barnabas_compaction_removed_records_total", "Records that compactions removed.")
CLEANING_NOW = gauge("barnabas_compactions_running", "Compactions in progress.")


def collect_replication(
    replicas: ReplicaManager, election: LeaderElection, isr_updates: IsrUpdates, membership: Membership
) -> Iterator[Sample]:
    """Yield the metrics of leadership, ISRs and the registration. Any thread may call this function."""
    yield BUILD.sample(1, barnabas.__version__)
    yield REGISTERED.sample(membership.is_member)
    yield REGISTRATIONS.sample(membership.registration_count)
    yield ELECTIONS.sample(replicas.roles.leader_count)
    yield UNCLEAN_ELECTIONS.sample(election.unclean_count)
    yield ISR_SHRINKS.sample(isr_updates.shrink_count)
    yield ISR_EXPANDS.sample(isr_updates.expand_count)
    yield ISR_FAILURES.sample(isr_updates.failure_count)


def collect_storage(folders: DataFolders, filesystem: FileSystem, cleaner: LogCleaner | None) -> Iterator[Sample]:
    """Yield the metrics of log directories, fsyncs and compaction. Any thread may call this function."""
    yield OFFLINE_FOLDERS.sample(sum(each.failure is not None for each in folders.states()))
    if isinstance(filesystem, MeasuredFileSystem):
        counts, total_s = filesystem.fsync_times()
        yield FSYNC_MS.sample(Observations(counts, total_s * 1000))
    if cleaner is not None:
        counts_of = cleaner.counts
        yield CLEANINGS.sample(counts_of.cleanings)
        yield CLEANING_FAILURES.sample(counts_of.failures)
        yield CLEANING_READ.sample(counts_of.bytes_read)
        yield CLEANING_REMOVED.sample(counts_of.bytes_removed)
        yield CLEANING_RECORDS.sample(counts_of.records_removed)
        yield CLEANING_NOW.sample(cleaner.busy_count)
        yield UNCLEANABLE.sample(cleaner.uncleanable_count)


def collect_loop(loop_watch: LoopWatch | None) -> Iterator[Sample]:
    """Yield the metrics of the event loop. Any thread may call this function."""
    if loop_watch is not None:
        yield LOOP_LAG.sample(loop_watch.lags.read())
