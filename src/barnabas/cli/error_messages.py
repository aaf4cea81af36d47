"""Error messages of a failed command: one line with the cause and the next step."""

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
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a name has 1 to 249 of the characters a-z A-Z 0-9 . _ -",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there cannot be more replicas than brokers",
    ErrorCode.INVALID_PARTITIONS: "a topic has at least one partition, and never shrinks",
    ErrorCode.MESSAGE_TOO_LARGE: "the topic's max.message.bytes is the limit",
}

NAMES_ALIKE = 0.65
SETTINGS_ALIKE = 0.75
"""How alike a name must be to what was given, to be offered instead (difflib's ratio). The long names of settings have
much in common."""


def exit_code_of(error: BarnabasError | OSError) -> int:
    """Return the exit code of a command that an error ends.

    >>> exit_code_of(ConfigurationError("unknown setting num.partition")), exit_code_of(TimedOutError("no answer"))
    (2, 1)
    """
    own: object = getattr(error, "exit_code", None)
    if isinstance(own, int):
        return own
    is_wrong = isinstance(error, ConfigurationError) and not error.retriable
    return EXIT_WRONG_SETTINGS if is_wrong else EXIT_FAILED


def explain(error: BarnabasError | OSError) -> str:
    """Return the line for an error, without the program's name.

    >>> explain(ApiError(ErrorCode.INVALID_PARTITIONS, subject="topic 'clicks'"))
    "topic 'clicks': invalid partitions; a topic has at least one partition, and never shrinks"
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
    """Return what the error says; where it gives no reason, what is wrong by its code and what to do."""
    if error.reason:
        return error.message
    name = error.code.name.lower().removesuffix("_exception").replace("_", " ")
    text = f"{error.subject}: {name}" if error.subject else name
    advice = _ADVICE.get(error.code)
    return f"{text}; {advice}" if advice else text


def unknown_topic(name: str, known: Iterable[str]) -> click.ClickException:
    """Return the error for a topic that does not exist, with the nearest names that do.

    >>> unknown_topic("clikcs", ["clicks", "views"]).message
    "no topic 'clikcs'; did you mean 'clicks'?"
    """
    return _unknown("topic", name, known, NAMES_ALIKE, "see: barnabas topic list")


def unknown_group(name: str, known: Iterable[str]) -> click.ClickException:
    """Return the error for a group that does not exist, with the nearest names that do.

    >>> unknown_group("crt", ["ctr"]).message
    "no group 'crt'; did you mean 'ctr'?"
    """
    return _unknown("group", name, known, NAMES_ALIKE, "see: barnabas group list")


def unknown_setting(name: str, known: Iterable[str], kind: str, owner: str) -> click.ClickException:
    """Return the error for a setting that a topic or broker does not have, with the nearest names that it has.

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
