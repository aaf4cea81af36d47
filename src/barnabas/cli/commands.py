"""Imports and runs the subcommands, and converts their errors to exit codes and error lines.

Only click is imported before the subcommand is known. So `barnabas --help` and `barnabas up` start fast, and no command
waits for the imports of another command.

Exit codes: 0 success, 1 failure, 2 wrong usage or settings, 129 stopped by SIGHUP, 130 by Ctrl-C, 143 by SIGTERM, 141
stopped because the reader of standard output closed the pipe (`barnabas consume clicks | head`).
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from barnabas.cli.error_messages import exit_code_of, explain
from barnabas.cli.options import global_connection_options
from barnabas.cli.signals import EXIT_INTERRUPTED
from barnabas.cli.standard_output import (
    EXIT_READER_GONE,
    STANDARD_OUTPUT,
    ReaderGoneError,
    give_up_standard_output,
)
from barnabas.cli.version import version_line
from barnabas.errors import BarnabasError
from barnabas.extras import missing_extra

if TYPE_CHECKING:
    from barnabas.broker.environment import Environment

COMMANDS = {
    "up": "Start a broker in the foreground.",
    "cluster": "Start a cluster on this machine; show, restart and balance a cluster.",
    "topic": "Create, list, describe, analyze, trim, delete, alter and move topics.",
    "group": "List, describe, reset and delete consumer groups.",
    "security": "Secure brokers: create a CA, certificates, broker settings and the first administrator.",
    "user": "Create, list and delete users, and change their passwords.",
    "acl": "Allow, deny, list and remove operations of users on resources; explain decisions.",
    "quota": "List, set and remove quotas of users, client ids and addresses.",
    "profile": "Create, list, show and delete profiles: client settings for clusters.",
    "config": "Show, set and unset the settings of topics, brokers and groups.",
    "produce": "Send lines from standard input or files to a topic.",
    "consume": "Print a topic's records and follow new ones.",
    "ship": "Ship log files to a topic and follow them.",
    "mirror": "Mirror topics of one cluster to another.",
    "load": "Load topics into warehouse tables with Spark.",
    "sql": "Query topics as tables with SQL, in DuckDB or Spark.",
    "report": "Show reports on loaded tables: popularity, trends, click-through rates, abuse ...",
    "audit": "Verify that no record was lost or duplicated.",
    "registry": "Start a schema registry with Confluent's REST interface.",
    "console": "Show web pages about a cluster.",
    "table": "Show loaded tables and maintain them.",
    "simulate": "Generate the activity of a web site and send it to a topic.",
    "perf": "Measure brokers and clients: throughput, latency, requests.",
    "log": "Show the contents of log files.",
    "debug": "Collect facts for a problem report, without secrets.",
    "completion": "Print the completion script for a shell.",
}
"""The subcommands with their help lines. Each subcommand has the same name as its module."""


EXTRAS = {
    "audit": "spark",
    "load": "spark",
    "registry": "registry",
    "console": "console",
    "report": "spark",
    "security": "security",
    "simulate": "activity",
    "sql": "sql",
    "table": "spark",
}
"""The extra (optional dependencies) that each command needs."""


class LazyGroup(click.Group):
    """A click group that imports a subcommand only when the user calls it, not when the help text lists it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"barnabas.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=line) for name, line in COMMANDS.items() if name.startswith(incomplete)]

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        with _noticing_reader_gone():  # click prints the help text here
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _noticing_reader_gone():
            outcome = super().invoke(ctx)
            sys.stdout.flush()
            return outcome


@contextmanager
def _noticing_reader_gone() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ReaderGoneError from None


VERSION_HELP = "Show the version and the record codec in use."


def _show_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    click.echo(version_line())
    ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="BARNABAS_BOOTSTRAP=HOST:PORT sets the broker, BARNABAS_PROFILE=NAME the profile; BARNABAS_DEBUG=1 prints"
    " tracebacks of errors.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help=VERSION_HELP)
@global_connection_options
def command() -> None:
    """Barnabas: a distributed log that speaks Kafka's protocol, and its pipeline on Spark."""


def run(arguments: list[str] | None = None, environment: Environment | None = None) -> int:
    """Run the command and return its exit code.

    :param arguments: the command line without the program name; None: the command line of this process.
    :param environment: clock, file system and network of a broker; None: the real ones of this machine.
    """
    try:
        outcome = command.main(arguments, prog_name="barnabas", standalone_mode=False, obj=environment)
    except click.Abort:
        return EXIT_INTERRUPTED
    except ReaderGoneError:
        give_up_standard_output()
        return EXIT_READER_GONE
    except (click.ClickException, BarnabasError, OSError) as error:
        return _report(error)
    except ModuleNotFoundError as error:
        missing = missing_extra(error, _extra_of(sys.argv[1:] if arguments is None else arguments))
        if missing is None:
            raise
        return _report(missing)
    return outcome if isinstance(outcome, int) else 0


def _extra_of(arguments: list[str]) -> str:
    """Return the extra (optional dependencies) that the subcommand of a command line needs."""
    return next((EXTRAS[each] for each in arguments if each in EXTRAS), "")


def _report(error: click.ClickException | BarnabasError | OSError) -> int:
    """Print the error; return the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.UsageError):
        where = "barnabas" if error.ctx is None else error.ctx.command_path
        message = _sentence(error.format_message())
        _say(message if message.endswith("?") else f"{message}; see: {where} --help")
        return error.exit_code
    if isinstance(error, click.ClickException):
        return _fail(error.format_message(), error, error.exit_code)
    if isinstance(error, OSError) and error.filename == STANDARD_OUTPUT:
        give_up_standard_output()
    return _fail(explain(error), error, exit_code_of(error))


def _fail(message: str, error: Exception, code: int) -> int:
    if os.environ.get("BARNABAS_DEBUG"):
        raise error
    _say(message)
    return code


def _say(message: str) -> None:
    click.echo(f"barnabas: {message}", err=True)


def _sentence(text: str) -> str:
    """Convert a message of click to the style of error lines: one line, lower-case first letter, no full stop."""
    text = re.sub(r"\. \(?Did you mean (.*\?)\)?$", r"; did you mean \1", " ".join(text.split()).rstrip("."))
    return text[:1].lower() + text[1:]
