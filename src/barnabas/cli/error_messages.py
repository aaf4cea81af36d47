"""The error line of a failed command: the cause and the next step."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click

from barnabas.cli.terminal_text import escaped
from barnabas.errors import (
    ApiError,
    BarnabasError,
    ConfigurationError,
    DisconnectedError,
    ErrorCode,
    TimedOutError,
)
from barnabas.exit_codes import EXIT_FAILED, EXIT_WRONG_SETTINGS

_ADVICE = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic name has 1 to 249 of the characters a-z A-Z 0-9 . _ -",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor cannot exceed the number of brokers",
    ErrorCode.INVALID_PARTITIONS: "a topic has at least one partition, and never fewer than before",
    ErrorCode.MESSAGE_TOO_LARGE: "the topic's max.message.bytes sets the limit",
}

NAMES_ALIKE = 0.65
SETTINGS_ALIKE = 0.75
"""The minimum similarity (difflib's ratio) between a misspelled setting and a suggested one.

It is higher than `NAMES_ALIKE`, because the long names of settings resemble each other.
"""


def exit_code_of(error: BarnabasError | OSError) -> int:
    """Return the exit code for an error that ends a command.

    >>> exit_code_of(ConfigurationError("unknown setting num.partition")), exit_code_of(TimedOutError("no answer"))
    (2, 1)
    """
    own: object = getattr(error, "exit_code", None)
    if isinstance(own, int):
        return own
    is_wrong = isinstance(error, ConfigurationError) and not error.retriable
    return EXIT_WRONG_SETTINGS if is_wrong else EXIT_FAILED


def explain(error: BarnabasError | OSError) -> str:
    """Return the error line without the program name.

    >>> explain(ApiError(ErrorCode.INVALID_PARTITIONS, subject="topic 'clicks'"))
    "topic 'clicks': invalid partitions; a topic has at least one partition, and never fewer than before"
    """
    return escaped(_explain(error))


def _explain(error: BarnabasError | OSError) -> str:
    if isinstance(error, ApiError):
        return _explain_code(error)
    if isinstance(error, OSError) and error.strerror is not None:
        reason = error.strerror[:1].lower() + error.strerror[1:]
        return reason if error.filename is None else f"{error.filename}: {reason}"
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, DisconnectedError | TimedOutError) and "barnabas up" not in text:
        return f"{text}; is the broker running? start one with: barnabas up"
    return text


def _explain_code(error: ApiError) -> str:
    """Return the reason that the broker gave. If the broker gave none, return the name of the error code, and
    advice."""
    if error.reason:
        return error.message
    name = error.code.name.lower().removesuffix("_exception").replace("_", " ")
    text = f"{error.subject}: {name}" if error.subject else name
    advice = _ADVICE.get(error.code)
    return f"{text}; {advice}" if advice else text


def unknown_topic(name: str, known: Iterable[str]) -> click.ClickException:
    """Return the error for a missing topic, with similar names of existing topics.

    >>> unknown_topic("clikcs", ["clicks", "views"]).message
    "no topic 'clikcs'; did you mean 'clicks'?"
    """
    return _unknown("topic", name, known, NAMES_ALIKE, "see: barnabas topic list")


def unknown_group(name: str, known: Iterable[str]) -> click.ClickException:
    """Return the error for a missing group, with similar names of existing groups.

    >>> unknown_group("crt", ["ctr"]).message
    "no group 'crt'; did you mean 'ctr'?"
    """
    return _unknown("group", name, known, NAMES_ALIKE, "see: barnabas group list")


def unknown_setting(name: str, known: Iterable[str], kind: str, owner: str) -> click.ClickException:
    """Return the error for an unknown setting, with the similar names among the settings of the topic or broker.

    >>> unknown_setting("retention", ["retention.ms", "segment.ms"], "topic", "clicks").message
    "no setting 'retention'; did you mean 'retention.ms'?"
    >>> unknown_setting("colour", ["retention.ms", "segment.ms"], "topic", "clicks").message
    "no setting 'colour'; see: barnabas config show topic clicks"
    """
    return _unknown("setting", name, known, SETTINGS_ALIKE, f"see: barnabas config show {kind} {owner}")


def _unknown(kind: str, name: str, known: Iterable[str], cutoff: float, else_see: str) -> click.ClickException:
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=cutoff)
    advice = f"did you mean {' or '.join(map(repr, near))}?" if near else else_see
    return click.ClickException(f"no {kind} {name!r}; {advice}")
