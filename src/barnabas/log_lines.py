"""The lines of the log: one a thing, for people or as JSON for what collects logs, and which partition each is about.

A line is about a partition if the `TopicPartition` is among the arguments of its message, as in
`log.warning("%s: an append failed", partition)`, if it was logged with `extra=about(partition)`, or within
`lines_about(partition)`. So nobody has to find it in the text.
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
    """One JSON object a line: `timestamp` (ISO 8601, UTC), `level`, `logger`, `message`; `broker`; `topic` and
    `partition` where the line is about one, and `exception` with the whole traceback where there is one.
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
        line.update(_subject_of(record))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        import json  # noqa: PLC0415  plain lines do without

        return json.dumps(line)


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
