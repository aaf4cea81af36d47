"""The format of log lines, as text or JSON, and the partition and event of each line.

A line has a partition if a `TopicPartition` is among the arguments of its message, as in `log.warning("%s: an append
failed", partition)`. It also has one if the call has `extra=about(partition)`, or runs within `lines_about(partition)`.
Log collectors need not parse the text.

A line that an operator acts on has an event: `extra=event(LogEvent.LOG_OFFLINE)`. The name of an event stays the same
over releases, so alerts use the event instead of the text.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Concatenate, Literal, ParamSpec, TypeVar, get_args

from barnabas.model import TopicPartition

Given = ParamSpec("Given")
Outcome = TypeVar("Outcome")
Owner = TypeVar("Owner")

LogFormat = Literal["plain", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)

log = logging.getLogger(__name__)

_PLAIN = "%(asctime)s %(levelname)s %(message)s"
_subject: ContextVar[TopicPartition | None] = ContextVar("subject of log lines", default=None)


class LogEvent(StrEnum):
    """The events of log lines that require action by an operator.

    :ivar advice: the meaning of the event, and the remedy.
    """

    LOG_OFFLINE = (
        "log.offline",
        "A log cannot be read or written because its disk failed. Repair the disk, then restart the broker.",
    )
    LOG_UNUSABLE = (
        "log.unusable",
        "The broker cannot load a log and leaves its files unchanged. Repair the file that the line names.",
    )
    LOG_MISSING = (
        "log.missing",
        "Files of a log are missing. Restore them and restart, unless other replicas have all records.",
    )
    RECORDS_LOST = (
        "records.lost",
        "Records are missing on a disk. They are lost unless other replicas have them.",
    )
    RECORDS_IN_DOUBT = (
        "records.in-doubt",
        "The only in-sync replica may lack records. Restore a newer copy of its disk, or accept the loss.",
    )
    FOLDER_OFFLINE = (
        "folder.offline",
        "A log directory failed. Repair or replace the disk, then restart the broker.",
    )
    FOLDER_LOST = "folder.lost", "A log directory is missing. Restore it and restart, or accept the loss."
    FOLDER_COPIED = "folder.copied", "Two brokers use copies of one log directory. Stop one of them."
    DISK_SHORT = (
        "disk.short",
        "Disk space, open files or memory are exhausted. Free some; the broker retries by itself.",
    )
    PARTITION_OFFLINE = "partition.offline", "A partition has no leader. Start the brokers that the line names."
    UNCLEAN_ELECTION = (
        "partition.unclean-election",
        "The new leader may lack acknowledged records. The audit shows the lost records.",
    )
    REPLICA_NOT_FOLLOWING = (
        "replica.not-following",
        "A follower cannot fetch or append. The line gives the reason.",
    )
    REMOVAL_REFUSED = (
        "replica.removal-refused",
        "A broker keeps a replica that no reassignment removed. Check the partition directory.",
    )
    ISR_NOT_WRITTEN = "isr.not-written", "The leader cannot write the in-sync replicas and retries. Check ZooKeeper."
    NOT_LEADING = "broker.not-leading", "The broker lost its registration. Check ZooKeeper and the network."
    LOOP_STALLED = "broker.stalled", "The broker served no client for a while. Report it if it recurs."
    UNEXPECTED_ERROR = "broker.unexpected-error", "The broker has a defect. Report the traceback."
    CONNECTION_REFUSED = (
        "connection.refused",
        "Connections exceed a limit. Raise max.connections, or find the client that opens them.",
    )
    HANDSHAKE_FAILED = (
        "connection.handshake-failed",
        "A TLS handshake failed. The line gives the reason: most often the client does not trust the broker's CA, or"
        " presents no valid certificate.",
    )
    AUTHENTICATION_FAILED = (
        "connection.authentication-failed",
        "A client failed to authenticate. Check its user name, password or token, and the address in the line.",
    )
    REQUEST_REFUSED = (
        "security.request-refused",
        "A principal lacks a permission. `barnabas acl why` names the rule, and `barnabas acl allow` grants the"
        " permission.",
    )
    ACLS_CHANGED = "security.acls-changed", "An administrator changed ACLs. Check that the change was intended."
    USERS_CHANGED = "security.users-changed", "An administrator changed a user. Check that the change was intended."
    QUOTAS_CHANGED = "security.quotas-changed", "An administrator changed quotas. Check that the change was intended."
    KEYS_NOT_READ = (
        "tokens.keys-not-read",
        "The broker cannot read the key set for OAUTHBEARER. Check the URL and the identity provider.",
    )
    CERTIFICATE_NOT_RELOADED = (
        "tls.not-reloaded",
        "A changed certificate or key file is not valid. Connections use the previous one; replace the file.",
    )
    FILES_SHORT = "files.short", "The limit of open files is too low. Raise it (ulimit -n)."
    TREE_OLDER = (
        "tree.older",
        "The metadata store was restored from a backup. Follow `The tree from a backup` in operations.md.",
    )
    TREE_DAMAGED = "tree.damaged", "The data of a metadata node is damaged. Repair or delete the node."
    TREE_UNREACHABLE = (
        "tree.unreachable",
        "The metadata store does not respond, and the broker retries. Check ZooKeeper.",
    )
    TOPIC_NOT_IN_TREE = (
        "topic.not-in-tree",
        "A topic is missing in the metadata store without a deletion. The broker keeps its logs.",
    )
    TOPIC_NOT_UNDONE = (
        "topic.not-undone",
        "A topic was created without logs, and its deletion failed. Delete the topic later.",
    )
    COMPACTION_IMPOSSIBLE = "compaction.impossible", "The cleaner cannot compact a log. Change the setting in the line."
    COMPACTED_DAMAGED = (
        "compaction.damaged",
        "A compacted segment is damaged, and the broker keeps the old segments. Check the disk.",
    )
    GROUPS_UNREADABLE = (
        "groups.unreadable",
        "A part of __consumer_offsets is damaged. Groups lack the commits after the damaged position.",
    )

    advice: str

    def __new__(cls, name: str, advice: str) -> LogEvent:
        member = str.__new__(cls, name)
        member._value_ = name
        member.advice = advice
        return member


def event(what: LogEvent, subject: TopicPartition | str | None = None) -> dict[str, str | int]:
    """Return the `extra` argument for a log line with an event.

    :param subject: the partition or the topic of the line, if it has one.

    >>> event(LogEvent.LOG_OFFLINE, "clicks")
    {'event': 'log.offline', 'topic': 'clicks'}
    """
    return {"event": what.value, **({} if subject is None else about(subject))}


class LimitedLog:
    """Logs warnings that any client can cause: at most `lines_max` lines in `PERIOD_S`, and later the number of others.

    :param now_s: returns monotonic seconds.
    :param others: the text for the number of lines that were left out, such as `%d further TLS handshakes failed`.
    """

    PERIOD_S = 10.0
    LINES_MAX = 10

    def __init__(
        self, logger: logging.Logger, now_s: Callable[[], float], others: str, lines_max: int = LINES_MAX
    ) -> None:
        self._log = logger
        self._lines_max = lines_max
        self._now_s = now_s
        self._others = others
        self._period_ends_s = 0.0
        self._count = 0

    def warning(self, message: str, *arguments: object, extra: dict[str, str | int] | None = None) -> None:
        """Log a warning, or only count it."""
        if self.admits():
            self._log.warning(message, *arguments, extra=extra)

    def admits(self) -> bool:
        """Count a line, and return whether the caller may log it."""
        now_s = self._now_s()
        if now_s >= self._period_ends_s:
            if self._count > self._lines_max:
                self._log.warning(self._others, self._count - self._lines_max)
            self._period_ends_s, self._count = now_s + self.PERIOD_S, 0
        self._count += 1
        return self._count <= self._lines_max


def about(what: TopicPartition | str) -> dict[str, str | int]:
    """Return the `extra` argument for a log line that concerns a partition, or a whole topic.

    >>> about(TopicPartition("clicks", 3)), about("clicks")
    ({'topic': 'clicks', 'partition': 3}, {'topic': 'clicks'})
    """
    return {"topic": what} if isinstance(what, str) else {"topic": what.topic, "partition": what.partition}


@contextmanager
def lines_about(partition: TopicPartition) -> Iterator[None]:
    """Return a context manager that adds a partition to log lines.

    The log lines of this thread inside the context contain `partition`, unless a line names another partition.
    """
    token = _subject.set(partition)
    try:
        yield
    finally:
        _subject.reset(token)


def lines_about_partition(
    method: Callable[Concatenate[Owner, TopicPartition, Given], Outcome],
) -> Callable[Concatenate[Owner, TopicPartition, Given], Outcome]:
    """Decorate a method whose first argument is a partition, so that its log lines contain that partition (see
    `lines_about`).
    """

    @functools.wraps(method)
    def do(owner: Owner, partition: TopicPartition, /, *arguments: Given.args, **named: Given.kwargs) -> Outcome:
        with lines_about(partition):
            return method(owner, partition, *arguments, **named)

    return do


class Lines(logging.Formatter):
    """A formatter of log lines.

    :ivar broker: the id of this process's broker, once it is known; only JSON lines contain it.
    """

    broker: int | None = None


class PlainLines(Lines):
    """Formats a line as time, level and message.

    Line breaks in the message are escaped; a traceback follows on its own lines.
    """

    def __init__(self) -> None:
        super().__init__(_PLAIN)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        return super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")


class JsonLines(Lines):
    """Formats a line as one JSON object.

    The keys are `timestamp` (ISO 8601, UTC), `level`, `logger` and `message`. Further keys are `broker`, `event` (if an
    operator must act), `topic` and `partition` (if the line has them), and `exception` with the whole traceback. The
    attribute `fields` of a record adds keys.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        broker = getattr(record, "broker", self.broker)
        if broker is not None:
            line["broker"] = broker
        if (what := _event_of(record)) is not None:
            line["event"] = what
        line.update(_subject_of(record))
        line = {**getattr(record, "fields", {}), **line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        import json  # noqa: PLC0415 - only JSON log lines need this module

        return json.dumps(line)


def _event_of(record: logging.LogRecord) -> str | None:
    """Return the event of a line. An error with a traceback and without an event is an UNEXPECTED_ERROR."""
    said: str | None = getattr(record, "event", None)
    is_unexpected = said is None and record.exc_info and record.levelno >= logging.ERROR
    return LogEvent.UNEXPECTED_ERROR.value if is_unexpected else said


def _subject_of(record: logging.LogRecord) -> Mapping[str, object]:
    said = {name: value for name in ("topic", "partition") if (value := getattr(record, name, None)) is not None}
    if said:
        return said
    arguments = record.args if isinstance(record.args, tuple) else ()
    named = {each for each in arguments if isinstance(each, TopicPartition)}
    subject = named.pop() if len(named) == 1 else _subject.get()
    return {} if subject is None else about(subject)


def log_to_standard_error(log_format: LogFormat, level: int = logging.INFO) -> Lines:
    """Write the log lines of this process to standard error, and return the formatter.

    With JSON, Python warnings and uncaught errors of threads and of the process are log lines too: standard error then
    contains JSON lines only.

    :param level: lines below this level are not written.
    """
    lines = JsonLines() if log_format == "json" else PlainLines()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines)
    logging.basicConfig(level=level, handlers=[handler])
    if log_format == "json":
        logging.captureWarnings(True)
        sys.excepthook = lambda _kind, error, _where: _log_uncaught("the process", error)
        threading.excepthook = lambda end: _log_uncaught(f"thread {end.thread and end.thread.name}", end.exc_value)
    return lines


def _log_uncaught(what: str, error: BaseException | None) -> None:
    if error is not None and not isinstance(error, SystemExit):
        log.critical("%s ended with an uncaught error: %r", what, error, exc_info=error)
