"""The settings of the clients as keyword arguments, for type checkers and editors.

`python tools/client_settings.py` generates this file from the declarations in `config.py`; edit the declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypedDict


class ClientSettings(TypedDict, total=False):
    """The settings of every client, and all settings of `Admin` and `AsyncAdmin`."""

    bootstrap_servers: str | Iterable[str]
    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    connect_timeout_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    enable_metrics_push: bool
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    ssl_verify: bool
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    sasl_username: str | None
    sasl_password: str | None
    sasl_oauth_token: Callable[[], str] | str | None
    sasl_jaas_config: str | None


class ProducerSettings(ClientSettings, total=False):
    """The settings of `Producer` and `AsyncProducer`."""

    acks: Literal["all", -1, 0, 1]
    enable_idempotence: bool
    linger_ms: int
    batch_size: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: int
    retries: int
    partitioner: Callable[[str, bytes | None, int], int] | None
    allow_auto_create_topics: bool
    audit: bool
    audit_window_ms: int


class ConsumerSettings(ClientSettings, total=False):
    """The settings of `Consumer` and `AsyncConsumer`, without `group`."""

    coordination: str | None
    offsets_storage: Literal["zookeeper", "kafka"]
    zookeeper_auth: str | None
    zookeeper_set_acl: bool | None
    zookeeper_ssl_client_enable: bool
    zookeeper_ssl_cafile: str | None
    zookeeper_ssl_certfile: str | None
    zookeeper_ssl_keyfile: str | None
    zookeeper_ssl_password: str | None
    zookeeper_ssl_check_hostname: bool
    group_instance_id: str | None
    auto_offset_reset: Literal["earliest", "latest", "none"]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    partition_assignment_strategy: str | Iterable[str]
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int | None
    fetch_buffer_bytes: int
    check_crcs: bool
    client_rack: str
    allow_auto_create_topics: bool
    audit: bool
