"""Completes names of topics, groups and settings in the shell. If the broker is slow, there are no completions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from barnabas.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas import Admin

COMPLETION_TIMEOUT_MS = 1_000
"""The request timeout in ms; It is short, because the user waits after pressing the Tab key."""


def complete_topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the topics whose names begin with `incomplete`."""
    return _complete(context, incomplete, lambda admin: admin.list_topics())


def complete_groups(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the groups whose names begin with `incomplete`."""
    return _complete(context, incomplete, lambda admin: [listed.group for listed in admin.list_groups()])


def complete_settings(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the settings of the named topic, broker or group that begin with `incomplete`."""
    kind, name = context.params.get("kind"), context.params.get("name")

    def names(admin: Admin) -> list[str]:
        if kind == "broker":
            return list(admin.describe_config(broker=int(name))) if name and name.isdigit() else []
        if not name:
            return []
        return list(admin.describe_config(group=name) if kind == "group" else admin.describe_config(name))

    return _complete(context, incomplete, names)


def complete_acl_words(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the operations and the types of resources of ACLs, and the names of topics and groups after their type.

    Bash ends words at colons, and replaces only the part after the colon: the words of `topic:cl` are `topic`, `:` and
    `cl`.
    """
    from barnabas.cli.acl_words import OPERATIONS, TYPES

    before: list[str] = list(context.params.get("words") or ())
    if len(before) > 1 and before[-1] == ":" and before[-2] in TYPES:
        kind, colon, name, shown = before[-2], ":", incomplete, ""
    elif before and incomplete == ":" and before[-1] in TYPES:
        kind, colon, name, shown = before[-1], ":", "", ":"
    else:
        kind, colon, name = incomplete.partition(":")
        shown = f"{kind}:"
    if not colon:
        words = [*OPERATIONS, *(each if each == "cluster" else f"{each}:" for each in TYPES)]
        return [CompletionItem(each) for each in words if each.startswith(incomplete)]
    completed = {"topic": complete_topics, "group": complete_groups}.get(kind)
    if completed is None:
        return []
    return [CompletionItem(f"{shown}{each.value}") for each in completed(context, _parameter, name)]


def _complete(context: click.Context, incomplete: str, ask: Callable[[Admin], list[str]]) -> list[CompletionItem]:
    from barnabas import Admin
    from barnabas.cli.options import connection_of

    logging.disable()  # suppress log lines, which would corrupt the command line that the user is typing
    try:
        with Admin(connection_of(context).admin_settings, default_api_timeout_ms=COMPLETION_TIMEOUT_MS) as admin:
            return [CompletionItem(name) for name in ask(admin) if name.startswith(incomplete)]
    except BarnabasError:
        return []
    finally:
        logging.disable(logging.NOTSET)
