"""What a person reads when a command fails: one line that says what is wrong and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click

from barnabas.errors import BarnabasError, DisconnectedError, ErrorCode, KafkaError, TimedOutError

_ADVICE = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "see it with: barnabas topic describe NAME",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a name has 1 to 249 of the characters a-z A-Z 0-9 . _ -",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there cannot be more replicas than brokers",
    ErrorCode.INVALID_PARTITIONS: "a topic has at least one partition, and never shrinks",
    ErrorCode.INVALID_CONFIG: "see what there is with: barnabas config show topic NAME",
    ErrorCode.MESSAGE_TOO_LARGE: "the topic's max.message.bytes is the limit",
}


def explain(error: BarnabasError | OSError) -> str:
    """Return the line for an error, without the program's name.

    >>> explain(KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'clicks'"))
    "topic 'clicks': topic already exists; see it with: barnabas topic describe NAME"
    """
    if isinstance(error, KafkaError):
        return _explain_code(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, DisconnectedError | TimedOutError) and "barnabas up" not in text:
        return f"{text}; is the broker running? start one with: barnabas up"
    return text


def _explain_code(error: KafkaError) -> str:
    name = error.code.name.lower().removesuffix("_exception").replace("_", " ")
    text = f"{error.message}: {name}" if error.message else name
    advice = _ADVICE.get(error.code)
    return f"{text}; {advice}" if advice else text


def unknown_topic(name: str, known: Iterable[str]) -> click.ClickException:
    """Return the error for a topic that does not exist, with the nearest names that do.

    >>> unknown_topic("clikcs", ["clicks", "views"]).message
    "no topic 'clikcs'; did you mean 'clicks'?"
    """
    near = difflib.get_close_matches(name, list(known), n=3)
    if near:
        return click.ClickException(f"no topic {name!r}; did you mean {' or '.join(map(repr, near))}?")
    return click.ClickException(f"no topic {name!r}; create it with: barnabas topic create {name} --partitions 6")


def unknown_group(name: str, known: Iterable[str]) -> click.ClickException:
    """Return the error for a group that does not exist, with the nearest names that do.

    >>> unknown_group("crt", ["ctr"]).message
    "no group 'crt'; did you mean 'ctr'?"
    """
    near = difflib.get_close_matches(name, list(known), n=3)
    advice = f"did you mean {' or '.join(map(repr, near))}?" if near else "see: barnabas group list"
    return click.ClickException(f"no group {name!r}; {advice}")


def unknown_setting(name: str, known: Iterable[str]) -> click.ClickException:
    """Return the error for a setting that does not exist, with the nearest names that do.

    >>> unknown_setting("retention", ["retention.ms", "segment.ms"]).message
    "no setting 'retention'; did you mean 'retention.ms'?"
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=3)
    advice = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(known)}"
    return click.ClickException(f"no setting {name!r}; {advice}")
