"""Settings of other clients that have no counterpart here: those that change nothing, and those that are missing.

A program that moves here brings its settings along. One that would change nothing is taken; one that would is refused,
for a setting that is silently ignored is a trap. The names are those of Kafka's Java client, and the commonest ones of
librdkafka and kafka-python.
"""

from __future__ import annotations

from barnabas.errors import ConfigurationError

WITHOUT_EFFECT = frozenset(
    {
        "api_version",
        "api_version_auto_timeout_ms",
        "api_version_fallback_ms",
        "api_version_request",
        "auto_include_jmx_reporter",
        "broker_version_fallback",
        "client_dns_lookup",
        "connections_max_idle_ms",
        "enable_metrics_push",
        "log_connection_close",
        "metadata_recovery_rebootstrap_trigger_ms",
        "metadata_recovery_strategy",
        "metric_reporters",
        "metrics_num_samples",
        "metrics_recording_level",
        "metrics_sample_window_ms",
        "partitioner_adaptive_partitioning_enable",
        "partitioner_availability_timeout_ms",
        "receive_buffer_bytes",
        "reconnect_backoff_max_ms",
        "reconnect_backoff_ms",
        "send_buffer_bytes",
        "socket_connection_setup_timeout_max_ms",
        "socket_keepalive_enable",
        "socket_nagle_disable",
        "transaction_timeout_ms",
    }
)
"""They tune what is measured or tuned here by itself, or not at all."""

SOLE_VALUES = {
    "client_rack": ("",),
    "enable_auto_offset_store": ("true",),
    "enable_partition_eof": ("false",),
    "exclude_internal_topics": ("true",),
    "group_protocol": ("classic",),
    "interceptor_classes": ("",),
    # Without transactions both read the same.
    "isolation_level": ("read_uncommitted", "read_committed"),
    "partitioner_ignore_keys": ("false",),
    "security_protocol": ("plaintext",),
    "statistics_interval_ms": ("0",),
}
"""Settings of which there is but one way yet, and how it is called."""

NOT_YET = frozenset(
    {
        "compression_gzip_level",
        "compression_level",
        "compression_lz4_level",
        "compression_zstd_level",
        "group_remote_assignor",
        "partitioner_class",
        "security_providers",
        "transactional_id",
        "transaction_two_phase_commit_enable",
    }
)
FAMILIES_NOT_YET = ("sasl_", "ssl_")

FUNCTIONS = frozenset({"key_serializer", "value_serializer", "key_deserializer", "value_deserializer"})
"""They are arguments of a client, and no settings: a function has no place in a properties file."""


def changes_nothing(given: str, value: object) -> bool:
    """Return whether a name that is no setting here is one elsewhere, with a value that changes nothing.

    :raises ConfigurationError: it would change something, and is not supported yet.

    >>> changes_nothing("security.protocol", "PLAINTEXT"), changes_nothing("linger", 5)
    (True, False)
    """
    name = given.replace(".", "_")
    if name in WITHOUT_EFFECT:
        return True
    ways = SOLE_VALUES.get(name)
    if ways is not None:
        if ("" if value is None else str(value).strip().lower()) in ways:
            return True
        usual = " or ".join(way or "nothing" for way in ways)
        raise ConfigurationError(f"{given}={value!r} is not supported yet; it must be {usual}, or be left out")
    if name in NOT_YET or name.startswith(FAMILIES_NOT_YET):
        raise ConfigurationError(f"{given!r} is not supported yet; leave it out")
    if name in FUNCTIONS:
        raise ConfigurationError(f"give {name} as a keyword argument of the client, as a function")
    return False
