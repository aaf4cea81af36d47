"""The lines of the log: one a thing, for people or as JSON for what collects logs, and which partition each is about.

A line is about a partition if the `TopicPartition` is among the arguments of its message, as in
`log.warning("%s: an append failed", partition)`, if it was logged with `extra=about(partition)`, or within
`lines_about(partition)`. So nobody has to find it in the text.

A line that an operator acts on has an event: `extra=event(LogEvent.LOG_OFFLINE)`. Its name stays the same over
releases, so alerts go by the event, and not by the text.
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
    """The events of log lines that an operator acts on.

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
    """Return the fields, for `extra`, of a line with an event, which may be about a partition or a topic.

    >>> event(LogEvent.LOG_OFFLINE, "clicks")
    {'event': 'log.offline', 'topic': 'clicks'}
    """
    return {"event": what.value, **({} if subject is None else about(subject))}


def about(what: TopicPartition | str) -> dict[str, str | int]:
    """Return the fields, for `extra`, of a line that is about a partition, or about a topic as a whole.

    >>> about(TopicPartition("clicks", 3)), about("clicks")
    ({'topic': 'clicks', 'partition': 3}, {'topic': 'clicks'})
    """
    return {"topic": what} if isinstance(what, str) else {"topic": what.topic, "partition": what.partition}


@contextmanager
def lines_about(partition: TopicPartition) -> Iterator[None]:
    """Whatever is logged inside, on this thread, is about a partition unless it says otherwise."""
    token = _subject.set(partition)
    try:
        yield
    finally:
        _subject.reset(token)


def lines_about_partition(
    method: Callable[Concatenate[Owner, TopicPartition, Given], Outcome],
) -> Callable[Concatenate[Owner, TopicPartition, Given], Outcome]:
    """Decorate a method whose first argument is a partition: what it logs is about that one (`lines_about`)."""

    @functools.wraps(method)
    def do(owner: Owner, partition: TopicPartition, /, *arguments: Given.args, **named: Given.kwargs) -> Outcome:
        with lines_about(partition):
            return method(owner, partition, *arguments, **named)

    return do


class Lines(logging.Formatter):
    """A form of the lines.

    :ivar broker: the id of the broker whose lines these are, once it is known; only JSON tells it.
    """

    broker: int | None = None


class PlainLines(Lines):
    """Time, level and message; the message on one line, whatever is in it. A traceback follows on its own lines."""

    def __init__(self) -> None:
        super().__init__(_PLAIN)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        return super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")


class JsonLines(Lines):
    """One JSON object a line: `timestamp` (ISO 8601, UTC), `level`, `logger`, `message`; `broker`; `event` where an
    operator acts on the line; `topic` and `partition` where the line is about one, and `exception` with the whole
    traceback where there is one.
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
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        import json  # noqa: PLC0415  plain lines do without

        return json.dumps(line)


def _event_of(record: logging.LogRecord) -> str | None:
    """Return the event of a line. An error with a traceback is an unexpected one, unless the line says otherwise."""
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
    """Write all that this process logs from now on to standard error; return the form, to tell it which broker this is.

    As JSON also warnings of Python, and errors that end a thread or the process: nothing else may stand between the
    lines.

    :param level: what is less important is not written.
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
        log.critical("%s was ended by an error: %r", what, error, exc_info=error)
