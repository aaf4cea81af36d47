"""Generate docs/reference/errors.md: log events, exit codes, error codes and exceptions, each with its remedy.

`python tools/errors_reference.py` writes the page. The log events come from `barnabas.log_lines`. The other tables are
in this module.
"""

from __future__ import annotations

import sys
from pathlib import Path

from barnabas.errors import ErrorCode
from barnabas.log_lines import LogEvent

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"

HEAD = """\
# Errors

This page lists the log events, exit codes, error codes and exceptions, with the remedy for each.
`python tools/errors_reference.py` generates it.

## Log events

With `--log-format json`, each log line that may require an operator's action has the field `event`. Base alerts on the
event: its name stays the same in later releases, while the text of the line may change. Each line with the level
`ERROR` or `CRITICAL` has an event. A `WARNING` has an event if an operator may have to act. All lines of the
[security log](../how-to/secure.md#read-the-security-log) have an event.

| event | meaning and remedy |
|---|---|
"""
EXIT_CODES = {
    0: ("The command succeeded.", ""),
    1: (
        "The command failed, or it found a fault (`audit`, `cluster status`, `log dump`).",
        "Read the last line of standard error.",
    ),
    2: ("An option, an argument or a setting is wrong.", "Correct it. A supervisor must not restart the process."),
    3: ("A load found no new records (`--fail-when-empty`).", "Run it again when there are new records."),
    4: ("Another process is writing the table.", "Run the load again. A scheduler retries."),
    5: (
        "The brokers, the schema registry, the catalog or the storage did not answer (`load`, `table maintain`).",
        "Run the load again. A scheduler retries.",
    ),
    6: (
        "A load found more bad records than `--max-bad-records` allows.",
        "Look at the records in the message, or raise the limit.",
    ),
    130: ("Ctrl-C ended the command.", ""),
    141: ("The reader of standard output has gone, as in `barnabas consume clicks \\| head`.", ""),
}
"""The exit codes of the command, with meaning and remedy."""

CODES = {
    "CLUSTER_AUTHORIZATION_FAILED": (
        "The principal lacks a permission on the cluster. Without ACLs, only `super.users` manage users and quotas.",
        "Use the credentials of an administrator, or grant the permission with `barnabas acl allow`.",
    ),
    "GROUP_AUTHORIZATION_FAILED": (
        "The principal lacks a permission on the group.",
        "The error names it, and the command that grants it. `barnabas acl why` names the deciding rule.",
    ),
    "TOPIC_AUTHORIZATION_FAILED": (
        "The principal lacks a permission on the topic.",
        "The error names it, and the command that grants it. `barnabas acl why` names the deciding rule.",
    ),
    "DUPLICATE_RESOURCE": ("The request names a user twice.", "Name each user and mechanism once."),
    "ILLEGAL_SASL_STATE": (
        "The listener does not use SASL, or a SASL request came at the wrong time.",
        "Check `security_protocol` and the port of the listener.",
    ),
    "RESOURCE_NOT_FOUND": ("The user has no SCRAM credentials.", "Check the name with `barnabas user list`."),
    "SASL_AUTHENTICATION_FAILED": (
        "The user name, the password or the token is not valid.",
        "Check the credentials. The broker's log has the reason.",
    ),
    "UNACCEPTABLE_CREDENTIAL": (
        "A user name, a salt or a number of iterations is out of bounds.",
        "Use a printable name and 4096 to 16384 iterations.",
    ),
    "UNSUPPORTED_SASL_MECHANISM": (
        "The listener does not offer the SASL mechanism.",
        "Use a mechanism that the message lists, or add it to `sasl.enabled.mechanisms`.",
    ),
    "BROKER_NOT_AVAILABLE": (
        "A broker that the request names is not registered.",
        "Start the broker, or name another one.",
    ),
    "COORDINATOR_LOAD_IN_PROGRESS": (
        "The group coordinator reads the groups of its partition.",
        "Clients retry by themselves.",
    ),
    "COORDINATOR_NOT_AVAILABLE": (
        "The group coordinator has no leader, or its log cannot be written.",
        "Clients retry by themselves. If it persists, check `__consumer_offsets` with `barnabas topic describe`.",
    ),
    "CORRUPT_MESSAGE": (
        "A record batch has a wrong CRC or structure.",
        "Check the network and the producer's library.",
    ),
    "ELECTION_NOT_NEEDED": ("The partition has the elected leader already.", "No action is needed."),
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": ("No in-sync replica is registered.", "Start a broker of the in-sync replicas."),
    "FENCED_INSTANCE_ID": (
        "Another group member uses the same `group.instance.id`.",
        "Give each member an id of its own.",
    ),
    "FENCED_LEADER_EPOCH": ("The client's metadata is older than the leader epoch.", "Clients refresh their metadata."),
    "FETCH_SESSION_ID_NOT_FOUND": (
        "The broker dropped the fetch session.",
        "Clients open a new session by themselves.",
    ),
    "FETCH_SESSION_TOPIC_ID_ERROR": ("A fetch session mixes topic names and ids.", "Clients open a new session."),
    "GROUP_ID_NOT_FOUND": ("The group does not exist.", "Check the name with `barnabas group list`."),
    "GROUP_MAX_SIZE_REACHED": ("The group or the coordinator has its maximum of members.", "Raise `group.max.size`."),
    "GROUP_SUBSCRIBED_TO_TOPIC": (
        "The group has members that read the topic.",
        "Stop the members before you delete offsets.",
    ),
    "ILLEGAL_GENERATION": (
        "The member missed a rebalance.",
        "Clients rejoin by themselves. Process records faster if it recurs.",
    ),
    "INCONSISTENT_GROUP_PROTOCOL": (
        "The members of a group have no assignor in common.",
        "Configure one `partition.assignment.strategy` for all members.",
    ),
    "INVALID_COMMIT_OFFSET_SIZE": ("The metadata of a commit is too large for a record.", "Commit less metadata."),
    "INVALID_CONFIG": (
        "A setting does not exist or cannot have the value.",
        "Correct the setting that the message names.",
    ),
    "INVALID_FETCH_SESSION_EPOCH": (
        "The broker and the client disagree about a fetch session.",
        "Clients open a new session.",
    ),
    "INVALID_GROUP_ID": ("The group id is empty or too long.", "Choose another `group.id`."),
    "INVALID_PARTITIONS": ("The number of partitions is not allowed.", "The message names the limit."),
    "INVALID_PRODUCER_EPOCH": ("A newer producer has the same producer id.", "Stop the older producer."),
    "INVALID_RECORD": ("Records of a batch are not valid for the topic.", "The message names the record and the rule."),
    "INVALID_REPLICATION_FACTOR": (
        "The cluster has too few brokers.",
        "Add brokers, or create the topic with fewer replicas.",
    ),
    "INVALID_REPLICA_ASSIGNMENT": (
        "The assignment of replicas is not valid.",
        "The message names the broker or partition.",
    ),
    "INVALID_REQUEST": (
        "A request breaks a rule of the protocol.",
        "The message names the rule. Update the client's library.",
    ),
    "INVALID_REQUIRED_ACKS": ("`acks` is not 0, 1 or all.", "Correct the setting of the producer."),
    "INVALID_SESSION_TIMEOUT": (
        "`session.timeout.ms` is outside of the broker's limits.",
        "Stay between `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.",
    ),
    "INVALID_TIMESTAMP": (
        "A timestamp is too far from the broker's clock.",
        "Check the clocks, or `message.timestamp.*.max.ms`.",
    ),
    "INVALID_TOPIC_EXCEPTION": ("The topic name is not valid, or the topic is internal.", "Choose another name."),
    "INVALID_TXN_STATE": (
        "The request belongs to a transaction.",
        "Brokers have no transactions yet: use an idempotent producer.",
    ),
    "INVALID_UPDATE_VERSION": ("A feature level cannot be changed.", "Brokers have no feature levels."),
    "KAFKA_STORAGE_ERROR": (
        "The log of the partition is offline because its disk failed.",
        "Look for `log.offline` in the broker's log. Repair the disk and restart the broker.",
    ),
    "LEADER_NOT_AVAILABLE": (
        "The partition has no leader now.",
        "Clients retry. Start the brokers of the in-sync replicas.",
    ),
    "LOG_DIR_NOT_FOUND": (
        "The broker does not have this log directory, or it is offline.",
        "`barnabas cluster log-dirs` lists them.",
    ),
    "MEMBER_ID_REQUIRED": ("A new member of a group must join again with its new id.", "Clients do so by themselves."),
    "MESSAGE_TOO_LARGE": (
        "A record batch is larger than the topic allows.",
        "Raise `max.message.bytes` of the topic, or lower `batch.size` and `max.request.size` of the producer.",
    ),
    "MISMATCHED_ENDPOINT_TYPE": (
        "The client expects a controller.",
        "Use `--bootstrap-server`: brokers have no controller endpoints.",
    ),
    "NON_EMPTY_GROUP": ("The group has members.", "Stop its consumers first."),
    "NOT_COORDINATOR": ("Another broker coordinates the group.", "Clients look up the coordinator again."),
    "NOT_ENOUGH_REPLICAS": (
        "The in-sync replicas are fewer than `min.insync.replicas`; the batch is not stored.",
        "Producers retry. Start the missing brokers.",
    ),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": (
        "The in-sync replicas became fewer than `min.insync.replicas` after the append.",
        "Producers retry. Start the missing brokers.",
    ),
    "NOT_LEADER_OR_FOLLOWER": ("Another broker leads the partition.", "Clients refresh their metadata and retry."),
    "NO_REASSIGNMENT_IN_PROGRESS": ("The partition is not being moved.", "There is nothing to cancel."),
    "OFFSET_METADATA_TOO_LARGE": (
        "The metadata of a commit exceeds `offset.metadata.max.bytes`.",
        "Commit less metadata.",
    ),
    "OFFSET_NOT_AVAILABLE": ("A new leader does not know its high watermark yet.", "Clients retry by themselves."),
    "OFFSET_OUT_OF_RANGE": (
        "The offset was deleted by retention, or does not exist yet.",
        "Consumers apply `auto.offset.reset`. Raise `retention.ms` if consumers fall behind it.",
    ),
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (
        "A batch of an idempotent producer is missing before this one.",
        "Records were lost between producer and broker. The producer reports which; compare with `barnabas audit`.",
    ),
    "POLICY_VIOLATION": ("A limit of the cluster refuses the request.", "The message names the limit."),
    "PREFERRED_LEADER_NOT_AVAILABLE": (
        "The preferred replica is not in sync.",
        "Wait until it is in sync, then elect again.",
    ),
    "REBALANCE_IN_PROGRESS": ("The group rebalances.", "Clients rejoin by themselves."),
    "RECORD_LIST_TOO_LARGE": ("A batch is larger than a segment.", "Lower `batch.size`, or raise `segment.bytes`."),
    "REPLICA_NOT_AVAILABLE": (
        "The broker has no replica of the partition.",
        "`barnabas topic describe` lists the replicas.",
    ),
    "REQUEST_TIMED_OUT": (
        "The request took longer than its time limit.",
        "Clients retry. Check the in-sync replicas and ZooKeeper.",
    ),
    "SECURITY_DISABLED": (
        "The brokers do not check ACLs, because `authorizer.class.name` is empty.",
        "Set it ([secure.md](../how-to/secure.md#switch-acls-on-in-a-running-cluster)).",
    ),
    "STALE_BROKER_EPOCH": (
        "The request comes from an earlier registration of a broker.",
        "The broker registers again by itself.",
    ),
    "TELEMETRY_TOO_LARGE": (
        "Pushed metrics exceed `telemetry.max.bytes`.",
        "Push fewer metrics, or raise the setting.",
    ),
    "THROTTLING_QUOTA_EXCEEDED": (
        "A client changes more partitions than its quota allows, or pushes metrics too often.",
        "Clients wait and retry. Raise `controller_mutation_rate` with `barnabas quota set`.",
    ),
    "TOPIC_ALREADY_EXISTS": ("A topic with this name exists.", "Choose another name, or use `--if-not-exists`."),
    "TOPIC_DELETION_DISABLED": ("`delete.topic.enable` is false.", "Change the setting and restart the brokers."),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "The producer has a `transactional.id`.",
        "Brokers have no transactions yet: remove the setting.",
    ),
    "UNKNOWN_LEADER_EPOCH": ("The client knows a newer leader epoch than the broker.", "Clients retry by themselves."),
    "UNKNOWN_MEMBER_ID": (
        "The group removed the member.",
        "Clients rejoin. Poll more often than `max.poll.interval.ms`.",
    ),
    "UNKNOWN_SERVER_ERROR": (
        "The broker met an error that it does not foresee.",
        "Look for `broker.unexpected-error` in its log, and report the traceback.",
    ),
    "UNKNOWN_SUBSCRIPTION_ID": (
        "The client pushes metrics for an old subscription.",
        "Clients ask for the new subscription.",
    ),
    "UNKNOWN_TOPIC_ID": ("The topic was deleted, perhaps created again.", "Clients refresh their metadata."),
    "UNKNOWN_TOPIC_OR_PARTITION": ("The topic or partition does not exist.", "Create it, or check the name."),
    "UNSUPPORTED_COMPRESSION_TYPE": (
        "The client cannot read zstd.",
        "Update the client, or change `compression.type` of the topic.",
    ),
    "UNSUPPORTED_ENDPOINT_TYPE": ("The client asks for the controllers.", "Use `--bootstrap-server`."),
    "UNSUPPORTED_VERSION": (
        "The broker does not serve this API or version.",
        "protocol.md lists the versions. Update the client.",
    ),
}
"""The error codes that brokers return, with meaning and remedy; `NONE` is no error."""

EXCEPTIONS = {
    "ApiError": ("A broker returned an error code.", "See the table above."),
    "AuthenticationError": (
        "A broker rejects the credentials of the client, or the client does not accept the certificate of the broker.",
        "Check user name, password or token, and `ssl_cafile`.",
    ),
    "BufferFullError": (
        "The producer's memory was full for `max_block_ms`.",
        "Raise `buffer_memory`, or send more slowly.",
    ),
    "ClosedError": ("The client is closed.", "Create a new client."),
    "ConfigurationError": ("A setting does not exist or cannot have the value.", "The message names the setting."),
    "CorruptBatchError": (
        "A fetched batch has a wrong CRC or structure.",
        "Check the broker's disk with `barnabas log dump`; `next_offset` continues after the batch.",
    ),
    "DeserializationError": ("A deserializer raised an error.", "Correct it, or skip the record with `seek`."),
    "DisconnectedError": (
        "The connection ended before the response.",
        "Retry. An idempotent producer retries by itself.",
    ),
    "FencedError": ("Another producer or group member replaced this one.", "Create a new client."),
    "spark.MissingExtraError": ("A package of an extra is missing.", "Run the command in the message."),
    "SchemaRegistryError": ("The schema registry returned an error.", "`code` is Confluent's error code."),
    "SerializationError": ("A value does not fit its schema.", "Correct the value or the schema."),
    "TimedOutError": ("A call took longer than its time limit.", "Retry, or raise the timeout."),
    "UnsupportedVersionError": ("The broker is too old for a request.", "Update the broker."),
    "spark.CommitUnknownError": (
        "The load does not know whether its commit succeeded.",
        "Run the load again: it looks at the table.",
    ),
    "spark.DataLossError": (
        "Retention deleted records before a load read them.",
        "Load more often, or raise `retention.ms`. `--no-fail-on-data-loss` continues without them.",
    ),
    "spark.HistoryExpiredError": (
        "The snapshot with the offsets of the last load has expired.",
        "The message has the command that continues.",
    ),
    "spark.JavaNotFoundError": ("Spark found no Java runtime.", "Install Java 17 or later, or set `JAVA_HOME`."),
    "spark.LoadConflictError": (
        "Another load committed to the table.",
        "Run the load again. Let one load at a time write a table.",
    ),
    "spark.LoadError": (
        "A load stopped. The table is unchanged unless the message says otherwise.",
        "Read the message.",
    ),
    "spark.LoadsFailedError": ("Some of several tables were not loaded.", "`failures` has the error of each table."),
    "spark.RecreatedTopicError": ("The topic was deleted and created again.", "Load it into a new table."),
    "spark.SourceUnavailableError": (
        "The brokers or the schema registry did not answer during a load.",
        "Run the load again.",
    ),
    "spark.SparkFailedError": ("Spark did not start, or a job failed.", "The message has the last error of Spark."),
    "spark.UnknownTopicError": ("A topic to load does not exist.", "Check the name with `barnabas topic list`."),
    "spark.WarehouseAccessError": (
        "The catalog or the storage rejects the credentials, or they permit too little.",
        "Correct the secret or the permissions.",
    ),
    "spark.WarehouseError": (
        "The warehouse is not writable or full, or the table is not a loaded table.",
        "The message names the table and the reason.",
    ),
    "spark.WarehouseLockedError": ("Another process has locked the catalog.", "Run the load again."),
    "spark.WarehouseUnavailableError": ("The catalog or the storage did not answer.", "Run the load again."),
}
"""The public exceptions, by their names within the package `barnabas`, with meaning and remedy."""


def rows_of(table: dict[str, tuple[str, str]]) -> str:
    """Return the rows of a Markdown table, sorted by name."""
    return "".join(f"| `{name}` | {meaning} | {remedy} |\n" for name, (meaning, remedy) in sorted(table.items()))


def page() -> str:
    events = "".join(f"| `{each.value}` | {each.advice} |\n" for each in sorted(LogEvent))
    exits = "".join(f"| {code} | {meaning} | {remedy} |\n" for code, (meaning, remedy) in EXIT_CODES.items())
    codes = "".join(
        f"| {ErrorCode[name].value} | `{name}` | {meaning} | {remedy} |\n"
        for name, (meaning, remedy) in sorted(CODES.items())
    )
    return (
        f"{HEAD}{events}\n## Exit codes of the command\n\n| exit code | meaning | remedy |\n|---:|---|---|\n{exits}\n"
        "## Error codes of responses\n\nBrokers return these error codes of the Kafka protocol. The error message "
        "of a response contains the topic or the group.\n\n"
        f"| code | name | meaning | remedy |\n|---:|---|---|---|\n{codes}\n"
        "## Exceptions\n\nAll exceptions are subclasses of `barnabas.BarnabasError`. "
        "`error.retriable` is true if the same call may succeed later.\n\n"
        f"| exception | meaning | remedy |\n|---|---|---|\n{rows_of(EXCEPTIONS)}"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
