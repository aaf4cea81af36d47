"""The components ("parts") of a running broker that request handlers use.

Each handler declares the parts that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.broker.authorization.cluster_acls import ClusterAcls
from barnabas.broker.client_telemetry import ClientTelemetry
from barnabas.broker.commit_templates import CommitTemplates
from barnabas.broker.group_service import GroupService
from barnabas.broker.handlers.fetch import FetchSessions
from barnabas.broker.identity import Identity
from barnabas.broker.log_moves import LogMoves
from barnabas.broker.membership import Membership
from barnabas.broker.metadata_propagation import MetadataPropagation
from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.pipeline.call import ServedApis
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.quotas.client_quotas import ClientQuotas
from barnabas.broker.quotas.enforcement import MutationQuotas
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.requested_elections import RequestedElections
from barnabas.broker.security_log import SecurityLog
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.super_users import SuperUsers
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.broker.user_credentials import UserCredentials
from barnabas.clock import Clock
from barnabas.storage.data_folders import DataFolders


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a broker. Each parameter of a handler receives the part with the same name."""

    topics: Topics
    replicas: ReplicaManager
    topic_admin: TopicAdmin
    folders: DataFolders
    elections: RequestedElections
    propagation: MetadataPropagation
    membership: Membership
    moves: LogMoves
    groups: GroupService
    offsets: OffsetStore
    commit_templates: CommitTemplates
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    settings: DynamicSettings
    identity: Identity
    scheduler: CooperativeScheduler
    clock: Clock
    telemetry: ClientTelemetry
    users: UserCredentials
    super_users: SuperUsers
    security_log: SecurityLog
    client_quotas: ClientQuotas
    cluster_acls: ClusterAcls
    mutations: MutationQuotas
    served: ServedApis

    def bind_all(self) -> ServedApis:
        """Bind the handlers of the served APIs to these parts, and return the APIs."""
        return {key: each.bind(self) for key, each in self.served.items()}
