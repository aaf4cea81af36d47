"""The broker, which creates its components, starts them in order, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import barnabas
from barnabas.broker.authorization.cluster_acls import ClusterAcls
from barnabas.broker.authorization.rules import Rule
from barnabas.broker.authorization.stage import Authorization, check_complete
from barnabas.broker.authorization.table import RULES, rules_between_brokers, rules_by_key
from barnabas.broker.authorization.visible_topics import VisibleTopics
from barnabas.broker.background_tasks import BackgroundTasks, setter_for_threads
from barnabas.broker.broker_events import (
    Events,
    IsrChangeDue,
    IsrSettled,
    LeadershipChanged,
    LifeCountersDue,
    TopicsDeleted,
)
from barnabas.broker.client_telemetry import ClientTelemetry, requested_metrics
from barnabas.broker.cluster_watch import ClusterWatch, MetadataUpdate, Read
from barnabas.broker.commit_templates import CommitTemplates
from barnabas.broker.controlled_shutdown import ControlledShutdown
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.environment import Environment
from barnabas.broker.group_service import GroupService
from barnabas.broker.handlers import SERVED
from barnabas.broker.handlers.fetch import FetchSessions
from barnabas.broker.identity import Identity
from barnabas.broker.isr_updates import IsrUpdates
from barnabas.broker.life_counters import LifeCounters
from barnabas.broker.listeners import ALL_ADDRESSES, Listeners, explaining_address, inter_broker_security
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.log_moves import LogMoves
from barnabas.broker.loop_watch import LoopWatch
from barnabas.broker.membership import Membership
from barnabas.broker.metadata_image import MetadataDelta
from barnabas.broker.metrics.broker_metrics import BrokerMetrics
from barnabas.broker.metrics.group_lag import EndOffsets
from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.open_files import OpenFiles, open_files_limit
from barnabas.broker.partition_reassignment import PartitionReassignment
from barnabas.broker.parts import Parts
from barnabas.broker.pipeline.call import ServedApis
from barnabas.broker.pipeline.chain import Stage
from barnabas.broker.pipeline.scheduler import CooperativeScheduler, RequestPipeline
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.quotas.client_quotas import ClientQuotas
from barnabas.broker.quotas.enforcement import QuotaEnforcement
from barnabas.broker.readiness import STARTING, STOPPING, Readiness
from barnabas.broker.replica_logs import log_configs
from barnabas.broker.replication import Replication
from barnabas.broker.sasl_mechanisms import SaslMechanisms
from barnabas.broker.security_log import SecurityLog
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import default_log_config
from barnabas.broker.status_authentication import StatusAuthentication
from barnabas.broker.super_users import SuperUsers
from barnabas.broker.throttles import Throttles
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.broker.user_credentials import UserCredentials
from barnabas.clock import GuardedClock
from barnabas.coordination import topic_deletions, topic_metadata_store
from barnabas.coordination.client_quotas import is_quota_path
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.life_counters import read_life_counters
from barnabas.coordination.renewable_metadata_store import RenewableMetadataStore
from barnabas.coordination.values import BROKER_LISTENER, BrokerRegistration
from barnabas.errors import BarnabasError, DataFolderError, UnavailableError, reason_of
from barnabas.metrics.metric import Sample
from barnabas.net.server_connection import Limits
from barnabas.security.authorizer import Authorizer
from barnabas.security.http_authentication import HttpCredentials, HttpIdentity
from barnabas.security.principal import Principal
from barnabas.storage.data_folders import DataFolders
from barnabas.storage.filesystem import make_folder_to_stay
from barnabas.storage.folder_identity import known_cluster_id, lock_folder, newest_modified_ms
from barnabas.storage.log_manager import LogManager
from barnabas.storage.reserve import Reserve
from barnabas.storage.segment_list import OpenSegments

if TYPE_CHECKING:
    from barnabas.broker.zookeeper_listener import ZooKeeperListener

TREE_FILE = "tree.sqlite"
FINISH_S = 5.0
"""The time in seconds that a stopping broker waits for requests in progress."""
log = logging.getLogger(__name__)


class Broker:
    """A broker.

    All methods except `collect` and `not_ready` must be called on the thread of the event loop that started it.

    The constructor of each component takes its collaborators. A component publishes events for components that are
    created later (`barnabas.broker.broker_events`). `_start` and `stop` contain the order of all steps.

    :param served: the APIs for clients.
    :param on_failed: called with the reason if no usable log directory is left. It may be called on any thread.
    :param with_status: True if the caller uses `collect` and `not_ready`.
    :param out_of_sync_max: see `Readiness`.
    """

    identity: Identity
    users: UserCredentials
    client_quotas: ClientQuotas
    settings: DynamicSettings
    membership: Membership
    topics: Topics
    topic_admin: TopicAdmin
    groups: GroupService
    offsets: OffsetStore
    producer_ids: ProducerIds
    parts: Parts
    requests: RequestPipeline
    _tree: RenewableMetadataStore
    _logs: DataFolders
    _work: DiskWork
    _watch: ClusterWatch
    _replication: Replication
    _readiness: Readiness
    _metrics: BrokerMetrics
    _status_authentication: StatusAuthentication

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment | None = None,
        served: ServedApis = SERVED,
        on_failed: Callable[[str], object] = lambda _reason: None,
        *,
        with_status: bool = False,
        out_of_sync_max: int = 0,
    ) -> None:
        self.config = config
        self._with_status = with_status
        self._out_of_sync_max = out_of_sync_max
        self._served = served
        self._on_failed = on_failed
        environment = self._environment = environment or Environment()
        self.clock = GuardedClock(environment.clock)
        self.host, self.port = "", 0
        self.scheduler = CooperativeScheduler(self.clock.monotonic)
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, environment.random_source.random_below
        )
        self.security_log = SecurityLog(self.clock.monotonic)
        self.telemetry = self._new_telemetry()
        self.quotas = QuotaEnforcement(lambda: self.config, self.clock.monotonic)
        self._events = Events()
        self._zookeeper: ZooKeeperListener | None = None
        self._stopping = contextlib.ExitStack()
        self._threads = environment.threads()
        self._tasks: list[asyncio.Task[None]] = []
        self.pipelines: list[RequestPipeline] = []
        self._is_started = False
        self._takes_telemetry = False
        self._is_leaving = False
        self._has_missed_changes = True
        self._is_stopping = False
        self._cleaner: LogCleaner | None = None
        self._loop_watch: LoopWatch | None = None
        self._log_count: Callable[[], int] = lambda: 0

    # -- the order of start and stop -------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the broker. Afterwards `port` contains the port on which it listens.

        :raises UnavailableError: the address cannot be bound, or another broker with this id is alive.
        :raises DataFolderError: a log directory cannot be used.
        :raises CoordinationError: the metadata store is unreachable.
        """
        try:
            await self._start()
        except BaseException:
            await self._end_tasks()
            self._stopping.close()
            raise

    async def _start(self) -> None:
        """Run the startup steps.

        Each step adds its shutdown step to `_stopping`, which runs the shutdown steps in reverse order.
        """
        self._open_files = OpenFiles(open_files_limit(), self.config.max_connections, self._count_logs)
        # Bind the listeners first. If an address is in use, the start fails before any log changes. Early clients wait
        # in the backlog, so their connections are not refused.
        self._listen()
        self._listen_to_zookeeper_clients()
        await self._open_tree()
        await self._open_logs()
        await self._register()
        await self._load_users()  # after the registration, which fails first if this broker cannot join
        await self._load_topics()
        await self._load_acls()
        self._begin_replication()
        await self._make_coordinators()
        await self._begin_background()
        await self._load_telemetry()
        self._serve_clients()
        self._serve_brokers()
        self._serve_zookeeper_clients()
        if self._with_status:
            self._offer_status()
        self._is_started = True

    def collect(self) -> Iterator[Sample | None]:
        """Yield the metrics (see `Collect`). Before the start there are no metrics. Any thread may call this method."""
        return self._metrics.collect() if self._is_started else iter(())

    def not_ready(self) -> list[str]:
        """Return the reasons why this broker is not ready. Any thread may call this method."""
        if self._is_stopping:
            return [STOPPING]
        return self._readiness.reasons_against() if self._is_started else [STARTING]

    def prove(self, credentials: HttpCredentials) -> HttpIdentity:
        """Return the identity of a client of the status pages. Any thread may call this method.

        :raises AuthenticationError: the credentials are wrong.
        :raises UnavailableError: the broker is starting, and does not know its users yet.
        """
        if not self._is_started:
            raise UnavailableError(STARTING)
        return self._status_authentication.prove(credentials)

    def may_see_metrics(self, principal: Principal, host: str) -> bool:
        """Return whether a principal at an address may see the metrics. Any thread may call this method."""
        return self._is_started and self._status_authentication.may_describe(principal, host)

    async def stop(self) -> None:
        """Stop the broker: finish requests, flush the logs, and write the clean-shutdown marker."""
        self._is_stopping = True
        if self._is_started:
            await self._shut_down_leadership()
        self._replication.close()
        await self._listeners.finish_clients(FINISH_S)
        if self._zookeeper:
            await self._zookeeper.finish(FINISH_S)
        await self._end_tasks()
        # Complete the changes that clients have requested, even if these clients have disconnected.
        await self.settings.end_changes()
        await self.topics.end_changes()
        # This closes the listeners, groups, replication, disk threads, logs, and the metadata store with its thread.
        self._stopping.close()

    # -- startup steps ------------------------------------------------------------------------------

    def _listen(self) -> None:
        limits = self._new_limits()
        self._listeners = Listeners(self.config, self._environment, limits, self.clock, self.security_log)
        self._stopping.callback(self._listeners.close)
        self._listeners.listen()
        main = self._listeners.clients[0]
        self.host, self.port = main.config.host or ALL_ADDRESSES, main.port

    def _listen_to_zookeeper_clients(self) -> None:
        if not self.config.zookeeper_listener:
            return
        # Import this module only here, because few brokers have a ZooKeeper listener.
        from barnabas.broker.zookeeper_listener import ZooKeeperListener  # noqa: PLC0415

        zookeeper = self._zookeeper = ZooKeeperListener(
            self.config.zookeeper_listener,
            self._environment.listen,
            self.clock,
            self.config.zookeeper_listener_max_client_cnxns,
        )
        self._stopping.callback(zookeeper.close)
        with explaining_address(zookeeper.host, zookeeper.port, "--zookeeper-listener"):
            zookeeper.listen()

    async def _open_tree(self) -> None:
        self._reserve = Reserve(self._environment.filesystem, self.config.folders[0])
        tree = self._tree = self._new_tree(self.config.folders[0])
        self._stopping.callback(tree.close)
        self._stopping.callback(self._threads.close_metadata)
        self.identity = Identity(
            self.config.broker_id,
            await self._in_metadata_thread(
                topic_metadata_store.prepare,
                tree,
                _cluster_id_of(self._environment.random_source.new_id()),
                known_cluster_id(self._environment.filesystem, self.config.folders),
            ),
            tuple(each.endpoint for each in self._listeners.open),
            self.config.rack,
        )
        self.settings = DynamicSettings(self.config, tree, self._in_metadata_thread, self._put_into_force)
        self.config = self.settings.broker.config
        self.client_quotas = ClientQuotas(tree, self._in_metadata_thread, self.quotas.put_into_force)

    async def _open_logs(self) -> None:
        self._throttles = Throttles(self.config, self.clock.monotonic)
        self._open_files.allow_connections(self.config.max_connections)
        self._flush_due = asyncio.Event()
        logs = self._logs = self._new_logs()
        self._stopping.callback(logs.close)
        self._log_count = logs.count
        self._open_files.log_limits()
        self._stopping.callback(self._threads.close_disk)
        self._work = self._threads.work()

    async def _register(self) -> None:
        self.membership = Membership(
            self._tree,
            self._in_metadata_thread,
            self._threads.beside_metadata,
            self.clock,
            self._registration,
            self._environment.random_source.new_broker_epoch,
        )
        await self.membership.register()

    async def _load_users(self) -> None:
        random_bytes = self._environment.random_source.random_bytes
        self.users = UserCredentials(self._tree, self._in_metadata_thread, random_bytes)
        await self.users.load(Path(self.config.bootstrap_users_file) if self.config.bootstrap_users_file else None)
        self._mechanisms = SaslMechanisms(self.config, self.users, self.clock, random_bytes)
        self._stopping.callback(self._mechanisms.close)

    async def _load_topics(self) -> None:
        tree, logs, events, broker_id = self._tree, self._logs, self._events, self.identity.node_id
        random_source, run = self._environment.random_source, self._in_metadata_thread
        topics = self.topics = Topics(self.config, tree, logs, run, events, self._work, self.clock, random_source)
        self.topic_admin = TopicAdmin(
            broker_id, topics, tree, run, events, self._open_files, random_source, self._reserve.check_room
        )
        self._moves = LogMoves(topics, logs, self._work, self._throttles.log_dirs)
        lag_s = self.config.replica_lag_time_max_ms / 1000
        isr_updates = self.isr_updates = IsrUpdates(topics, self.clock, lag_s, events)
        events.subscribe(IsrChangeDue, lambda event: isr_updates.update_soon(event.replica))
        reassignment = self.reassignment = PartitionReassignment(topics, self.topic_admin, broker_id)
        events.subscribe(MetadataDelta, lambda _event: reassignment.check_soon())
        events.subscribe(LeadershipChanged, lambda _event: reassignment.check_soon())
        events.subscribe(IsrSettled, lambda _event: reassignment.check_soon())
        watch = self._watch = ClusterWatch(tree, run, self._apply_update)
        await topics.load(await run(watch.read_everything), lost_memory=logs.lost_memory)
        life_counters = self._life_counters = LifeCounters(
            broker_id,
            logs,
            tree,
            run,
            self._work.in_order,
            self.clock,
            lambda: self.membership.is_member,
            lambda: topics.has_unread,
        )
        await life_counters.begin()
        events.subscribe(LifeCountersDue, lambda _event: life_counters.raise_soon())

    async def _load_acls(self) -> None:
        config = self.config
        self._super_users = SuperUsers(
            config.super_users,
            # With ACLs, the stage of authorization decides.
            restricts_users=not config.authorizer_class_name
            and (self._listeners.authenticates or bool(config.super_users.strip())),
        )
        self.authorizer = Authorizer(
            super_users=self._super_users.__contains__,
            allow_everyone_if_no_acl=config.allow_everyone_if_no_acl_found,
        )
        self.acls = ClusterAcls(
            self._tree,
            self._threads.in_acl_thread,
            self.topics.metadata,
            self.authorizer,
            self.scheduler,
            are_in_force=bool(config.authorizer_class_name),
        )
        await self.acls.load()

    def _stages(self, rules: Mapping[int, Rule]) -> list[Stage]:
        """Return the stages that requests pass before they are measured."""
        if not self.acls.are_in_force:
            return []
        visible = VisibleTopics(self.topics, self.settings)
        return [Authorization(self.authorizer, visible, rules, self.security_log.note_refusal)]

    def _begin_replication(self) -> None:
        self._replication = Replication(
            self.config,
            self.topics,
            self._events,
            self.scheduler,
            lambda: self.membership.epoch,
            self._environment,
            self._throttles,
            inter_broker_security(self.config),
        )
        self._stopping.callback(self._replication.close)
        self._replication.begin()
        self._reserve.make()

    async def _make_coordinators(self) -> None:
        groups = self.groups = GroupService(
            self.config,
            self.clock,
            self.topics,
            self.topic_admin,
            self.scheduler,
            self._environment.random_source.new_id,
        )
        self._stopping.callback(groups.close)
        self._events.subscribe(LeadershipChanged, lambda _event: groups.follow_topic())
        offsets = self.offsets = OffsetStore(groups, self.clock, self.scheduler)
        self._events.subscribe(TopicsDeleted, lambda event: groups.metadata.forget(event.names))
        self._events.subscribe(TopicsDeleted, lambda event: offsets.delete_topics(event.topic_ids, event.names))
        self.producer_ids = ProducerIds(
            self._tree, self.identity.node_id, self._in_metadata_thread, self.topics.replicas, self.scheduler
        )
        await self.producer_ids.raise_counter()

    async def _begin_background(self) -> None:
        tree, watch, logs = self._tree, self._watch, self._logs
        must_move = await self._in_metadata_thread(topic_metadata_store.must_move_offsets, tree)
        if not must_move:
            self.groups.start()
        background = BackgroundTasks(
            lambda: self.config,
            self.topics,
            self.groups,
            self.offsets,
            watch,
            self.clock,
            self._work,
            self._events,
            self._flush_due,
        )
        self._begin(
            watch.run(),
            self.acls.run(),
            self.membership.keep(self.topics.replicas, watch),
            self.isr_updates.run(),
            self.reassignment.run(),
            self.producer_ids.run(),
            self._life_counters.run(),
            self._listeners.run(),
            background.begin_with_groups(tree, self._in_metadata_thread, must_move=must_move),
            *background.all(logs, self._reserve),
        )
        if logs.has_several:
            self._begin(background.watch_folders(logs), self._moves.run())
        if self.config.log_cleaner_enable:
            environment = self._environment
            cleaner = self._cleaner = LogCleaner(
                self.topics.replicas,
                logs,
                self.clock,
                lambda: self.config,
                lambda: environment.new_cleaner(self.clock.monotonic),
                self._work,
                environment.new_threads,
            )
            self._begin(cleaner.run())
        if self._environment.watches_loop:
            loop_watch = self._loop_watch = LoopWatch(self.clock.monotonic)
            loop_watch.start()
            self._stopping.callback(loop_watch.stop)

    def _serve_clients(self) -> None:
        # `stop` closes the listeners first, so that requests end before `stop` closes their components.
        self._stopping.callback(self._listeners.close)
        self.parts = Parts(
            topics=self.topics,
            replicas=self.topics.replicas,
            topic_admin=self.topic_admin,
            folders=self._logs,
            elections=self._replication.elections,
            propagation=self._replication.propagation,
            membership=self.membership,
            moves=self._moves,
            groups=self.groups,
            offsets=self.offsets,
            commit_templates=CommitTemplates(self.topics, self.groups, self.settings, self.clock),
            producer_ids=self.producer_ids,
            fetch_sessions=self.fetch_sessions,
            settings=self.settings,
            identity=self.identity,
            scheduler=self.scheduler,
            clock=self.clock,
            telemetry=self.telemetry,
            users=self.users,
            super_users=self._super_users,
            security_log=self.security_log,
            client_quotas=self.client_quotas,
            cluster_acls=self.acls,
            mutations=self.quotas.mutations,
            served=self._served_here(),
        )
        served, rules = self.parts.bind_all(), rules_by_key(RULES)
        check_complete(rules, served)
        for each in self._listeners.clients:
            stages = [*self._stages(rules), *self._environment.stages]
            pipeline = self._listeners.serve(each, served, self.scheduler, self._mechanisms.servers, stages)
            self.quotas.enforce(pipeline)
            self.pipelines.append(pipeline)
        self.requests = self.pipelines[0]

    def _serve_brokers(self) -> None:
        for each in self._listeners.brokers:
            served = self._replication.served
            stages = self._stages(rules_between_brokers(served))
            self.pipelines.append(self._listeners.serve(each, served, self.scheduler, self._mechanisms.servers, stages))

    def _serve_zookeeper_clients(self) -> None:
        if self._zookeeper:
            self._stopping.callback(self._zookeeper.close)
            session = self._tree.session
            assert isinstance(session, EmbeddedMetadataStore), "zookeeper_listener requires the embedded metadata store"
            self._zookeeper.serve(session.store, self._in_metadata_thread)
            self._begin(self._zookeeper.run())

    def _offer_status(self) -> None:
        broker_id, topics = self.identity.node_id, self.topics
        ends = EndOffsets(self.groups, topics, self._replication.connect, self.scheduler, self.clock)
        self._begin(ends.run())
        self._readiness = Readiness(broker_id, self.membership, topics, self.groups, self._out_of_sync_max)
        self._status_authentication = StatusAuthentication(
            self.users, self._mechanisms, self.clock, self.authorizer if self.acls.are_in_force else None
        )
        self._metrics = BrokerMetrics(
            broker_id,
            topics,
            self.membership,
            self.isr_updates,
            self.groups,
            ends,
            self.fetch_sessions,
            self.pipelines,
            {each.config.name: each.listener for each in self._listeners.open},
            self._logs,
            self._environment.filesystem,
            self.telemetry,
            self.quotas.counts,
            self._cleaner,
            self._loop_watch,
        )

    def _begin(self, *loops: Coroutine[Any, Any, None]) -> None:
        self._tasks += [asyncio.create_task(each) for each in loops]

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- callbacks of the components ------------------------------------------------------------------------------

    async def _apply_update(self, read: Read) -> MetadataUpdate:
        """Read the metadata store, and apply the update to topics, settings and the registration."""
        update = await self.topics.apply_update(functools.partial(self._read_with_acls, read))
        changed = update.changed_settings
        # Settings, users and quotas were read before the broker began to follow change notifications. So the first
        # update reads them again; else a user that was deleted in between could log in until the next change.
        has_missed, self._has_missed_changes = self._has_missed_changes or update.is_everything, False
        if has_missed or changed:
            await self.settings.reread()
            await self.users.reread()
        if has_missed or any(map(is_quota_path, changed)):
            await self.client_quotas.reread()
        if update.brokers is not None:
            await self.membership.check_registration(update.brokers)
        return update

    async def _read_with_acls(self, read: Read) -> MetadataUpdate:
        """Read the metadata store. In a new session, put its ACLs into force before the elections: a broker leads no
        partition by ACLs from before the loss of its session.
        """
        update = await read()
        if update.is_everything:
            await self.acls.load()
        return update

    async def _shut_down_leadership(self) -> None:
        """Transfer leadership to other brokers, and leave all ISRs (controlled shutdown)."""
        if len(self.topics.image.brokers) < 2:
            return
        self._is_leaving = True
        try:
            async with asyncio.timeout(self.config.controlled_shutdown_timeout_ms / 1000):
                await self.membership.announce()
                await ControlledShutdown(self.topics, self.identity.node_id).transfer_all()
        except (BarnabasError, TimeoutError) as error:
            late = f"not done within controlled.shutdown.timeout.ms={self.config.controlled_shutdown_timeout_ms}"
            log.warning(
                "controlled shutdown is incomplete: %s; other brokers will elect the leaders of the remaining "
                "partitions",
                reason_of(error, late),
            )

    async def _put_into_force(self, config: BrokerConfig) -> None:
        self.config = config
        self._open_files.allow_connections(config.max_connections)
        self._throttles.configure(config)
        self._logs.set_file_delete_delay(config.file_delete_delay_ms)
        await self.topics.apply_defaults(config)

    def _new_limits(self) -> Limits:
        """Return the limits for client connections from the current settings."""
        config = self.config
        return Limits(
            # Kafka requires socket.request.max.bytes <= queued.max.request.bytes. Barnabas uses the smaller value.
            frame_bytes_max=min(config.socket_request_max_bytes, config.queued_max_request_bytes),
            queued_bytes_max=config.queued_max_request_bytes,
            connections_max=self._open_files.connections_max,
            connections_per_host_max=lambda: self.config.max_connections_per_ip,
            idle_s_max=config.connections_max_idle_ms / 1000,
            partial_frame_s_max=config.socket_partial_request_timeout_ms / 1000,
            authentication_s_max=config.authentication_timeout_ms / 1000,
            connections_per_s_max=lambda: self.config.max_connection_creation_rate,
            connections_per_s_of=self.quotas.connection_rate,
        )

    def _new_telemetry(self) -> ClientTelemetry:
        config = self.config
        return ClientTelemetry(
            metrics=requested_metrics(config.telemetry_metrics),
            interval_ms=config.telemetry_interval_ms,
            bytes_max=config.telemetry_max_bytes,
            clock=self.clock,
            new_id=self._environment.random_source.new_id,
        )

    async def _load_telemetry(self) -> None:
        """Prepare the telemetry APIs.

        They require the status server, the OpenTelemetry package, and a non-empty `telemetry.metrics`.
        """
        environment = self._environment
        if not (self._with_status and self.telemetry.metrics and environment.decodes_otlp()):
            return
        # Import the package now: the import takes about 60 ms, and would block the event loop during the first push.
        thread = environment.new_threads(1, "barnabas-otlp")
        try:
            await asyncio.get_running_loop().run_in_executor(thread, environment.load_otlp)
            self._takes_telemetry = True
        except Exception as error:  # noqa: BLE001 - a third-party package may raise any error
            log.warning("cannot import the OpenTelemetry messages: %s; clients cannot push metrics", error)
        finally:
            thread.shutdown(wait=False)

    def _served_here(self) -> ServedApis:
        """Return the APIs for clients, without the telemetry APIs if telemetry is not available."""
        if self._takes_telemetry:
            return self._served
        return {key: each for key, each in self._served.items() if "telemetry" not in each.parts}

    def _new_tree(self, folder: Path) -> RenewableMetadataStore:
        filesystem = self._environment.filesystem
        last_ms = newest_modified_ms(filesystem, self.config.folders)
        if last_ms is not None:
            self.clock.compare_with_last_life(last_ms)
        try:
            make_folder_to_stay(filesystem, folder)
            # Check the directory before SQLite opens it, because SQLite's errors are misleading. It reports "disk I/O
            # error" for a read-only file system. For a directory in use it reports "locked", without the process that
            # uses the directory.
            lock_folder(filesystem, folder).close()
        except OSError as error:
            # If the broker uses ZooKeeper, it can run with its other log directories.
            if not self.config.zookeeper_connect or len(self.config.folders) == 1:
                raise DataFolderError(f"{folder} cannot be used as a data folder: {error.strerror}") from None
        self._reserve.give_up_if_short()
        return RenewableMetadataStore(
            functools.partial(self._environment.open_metadata_store, self.config, folder / TREE_FILE, self.clock)
        )

    def _new_logs(self) -> DataFolders:
        tree, config, filesystem = self._tree, default_log_config(self.config), self._environment.filesystem
        open_segments, boot_id = OpenSegments(self._open_files.segments_max), self._environment.boot_id()
        on_flush_due = setter_for_threads(self._flush_due)
        process_id = self._environment.process_id()

        def open_folder(folder: Path) -> LogManager:
            return LogManager(
                folder,
                config,
                self.clock,
                filesystem,
                broker_id=self.identity.node_id,
                cluster_id=self.identity.cluster_id,
                boot_id=boot_id,
                process_id=process_id,
                new_id=self._environment.random_source.new_id,
                file_delete_delay_ms=self.config.file_delete_delay_ms,
                open_segments=open_segments,
                on_flush_due=on_flush_due,
                new_threads=self._environment.new_threads,
                loads=False,
            )

        return DataFolders(
            self.config.folders,
            filesystem,
            open_folder,
            lambda: log_configs(tree, self.config),
            functools.partial(read_life_counters, tree),
            self._on_failed,
        )

    def _count_logs(self) -> int:
        return self._log_count()

    def _registration(self) -> BrokerRegistration:
        own = self.identity
        replication = own.endpoint(BROKER_LISTENER)
        return BrokerRegistration(
            own.node_id,
            own.main.host,
            own.main.port,
            self.clock.time_ms(),
            replication_host=self.config.inter_broker_host,
            replication_port=0 if replication is None else replication.port,
            rack=own.rack,
            folder_id=self._logs.folder_id,
            is_leaving=self._is_leaving,
            release=barnabas.__version__,
            endpoints=() if own.has_usual_listeners else own.endpoints,
            machine=self.config.machine,
        )

    def _in_metadata_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        if function in {topic_deletions.note_deletion, topic_metadata_store.take_topic_back}:
            # A topic deletion frees disk space, so it must work even if the disk is full.
            self._reserve.give_up_if_short()
        return self._threads.in_metadata_thread(function, *arguments)


def _cluster_id_of(new_id: uuid.UUID) -> str:
    """Return a cluster id in Kafka's format: the 16 bytes of a UUID, encoded in base64 as 22 characters."""
    return base64.urlsafe_b64encode(new_id.bytes).decode().rstrip("=")
