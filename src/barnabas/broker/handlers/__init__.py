"""The APIs that clients may use.

Importing a handler module adds its handlers to `SERVED`, and ApiVersions advertises the APIs in `SERVED`.
"""

# ruff: noqa: F401 - `SERVED` uses the handlers

from __future__ import annotations

from barnabas.broker.handlers.acls import create_acls, delete_acls, describe_acls
from barnabas.broker.handlers.alter_client_quotas import alter_client_quotas
from barnabas.broker.handlers.alter_configs import alter_configs
from barnabas.broker.handlers.alter_partition_reassignments import alter_partition_reassignments
from barnabas.broker.handlers.alter_replica_log_dirs import alter_replica_log_dirs
from barnabas.broker.handlers.alter_user_scram_credentials import alter_user_scram_credentials
from barnabas.broker.handlers.api_versions import api_versions
from barnabas.broker.handlers.create_partitions import create_partitions
from barnabas.broker.handlers.create_topics import create_topics
from barnabas.broker.handlers.delete_groups import delete_groups
from barnabas.broker.handlers.delete_records import delete_records
from barnabas.broker.handlers.delete_topics import delete_topics
from barnabas.broker.handlers.describe_client_quotas import describe_client_quotas
from barnabas.broker.handlers.describe_cluster import describe_cluster
from barnabas.broker.handlers.describe_configs import describe_configs
from barnabas.broker.handlers.describe_groups import describe_groups
from barnabas.broker.handlers.describe_log_dirs import describe_log_dirs
from barnabas.broker.handlers.describe_producers import describe_producers
from barnabas.broker.handlers.describe_quorum import describe_quorum
from barnabas.broker.handlers.describe_topic_partitions import describe_topic_partitions
from barnabas.broker.handlers.describe_user_scram_credentials import describe_user_scram_credentials
from barnabas.broker.handlers.elect_leaders import elect_leaders
from barnabas.broker.handlers.fetch import fetch
from barnabas.broker.handlers.find_coordinator import find_coordinator
from barnabas.broker.handlers.get_telemetry_subscriptions import get_telemetry_subscriptions
from barnabas.broker.handlers.heartbeat import heartbeat
from barnabas.broker.handlers.incremental_alter_configs import incremental_alter_configs
from barnabas.broker.handlers.init_producer_id import init_producer_id
from barnabas.broker.handlers.join_group import join_group
from barnabas.broker.handlers.leave_group import leave_group
from barnabas.broker.handlers.list_config_resources import list_config_resources
from barnabas.broker.handlers.list_groups import list_groups
from barnabas.broker.handlers.list_offsets import list_offsets
from barnabas.broker.handlers.list_partition_reassignments import list_partition_reassignments
from barnabas.broker.handlers.metadata import metadata
from barnabas.broker.handlers.offset_commit import offset_commit
from barnabas.broker.handlers.offset_delete import offset_delete
from barnabas.broker.handlers.offset_fetch import offset_fetch
from barnabas.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from barnabas.broker.handlers.produce import produce
from barnabas.broker.handlers.push_telemetry import push_telemetry
from barnabas.broker.handlers.sasl_authenticate import sasl_authenticate
from barnabas.broker.handlers.sasl_handshake import sasl_handshake
from barnabas.broker.handlers.sync_group import sync_group
from barnabas.broker.handlers.update_features import update_features
from barnabas.broker.pipeline.call import ServedApi

SERVED: dict[int, ServedApi] = {each.key: each for each in globals().values() if isinstance(each, ServedApi)}
