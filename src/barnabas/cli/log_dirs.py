"""`barnabas cluster log-dirs` and `topic move-log`: show log directories of brokers, and move logs between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import Connection
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import confirm, connect, connection_options, json_option, require_topics, yes_option
from barnabas.cli.progress_bar import byte_progress
from barnabas.cli.table_output import show_json, show_table
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin
    from barnabas.client.admin.brokers import LogDir

LOOK_S = 0.5
"""The interval in seconds between two queries for the progress of moves."""
IDLE_LOOKS_MAX = 20
"""The number of consecutive queries without progress after which the command regards the moves as failed."""


@click.command("log-dirs")
@click.option("--broker", type=int, help="Show only this broker.")
@click.option("--logs", "with_logs", is_flag=True, help="Show each log instead of each log directory.")
@json_option
@connection_options
def log_dirs(broker: int | None, with_logs: bool, as_json: bool, connection: Connection) -> None:
    """Show the log directories of the brokers, and the logs that are moving between them.

    The logs of an offline log directory are not shown.
    """
    with connect(connection) as admin:
        folders = admin.log_dirs(broker)
    if as_json:
        show_json([_as_json(folder) for folder in folders])
    elif with_logs:
        _show_logs(folders)
    else:
        show_table(
            ["broker", "folder", "logs", "bytes", "coming", "free bytes", "state"],
            [
                [
                    folder.broker,
                    folder.path,
                    len(folder.sizes),
                    folder.size_bytes,
                    len(folder.coming),
                    folder.usable_bytes,
                    "offline" if folder.error else "online",
                ]
                for folder in folders
            ],
        )


def _show_logs(folders: Sequence[LogDir]) -> None:
    show_table(
        ["broker", "folder", "log", "bytes", "lag"],
        [
            [folder.broker, folder.path, str(tp), folder.sizes.get(tp), folder.coming.get(tp)]
            for folder in folders
            for tp in sorted({*folder.sizes, *folder.coming})
        ],
    )


def _as_json(folder: LogDir) -> dict[str, object]:
    return {
        "broker": folder.broker,
        "folder": folder.path,
        "online": not folder.error,
        "total_bytes": folder.total_bytes,
        "free_bytes": folder.usable_bytes,
        "logs": [
            {"topic": tp.topic, "partition": tp.partition, "bytes": size} for tp, size in sorted(folder.sizes.items())
        ],
        "coming": [
            {"topic": tp.topic, "partition": tp.partition, "lag": lag} for tp, lag in sorted(folder.coming.items())
        ],
    }


@click.command("move-log")
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Move only this partition."
)
@click.option("--broker", type=int, required=True, help="Broker that has the logs.")
@click.option(
    "--to", "folder", metavar="FOLDER", required=True, help="Target log directory, as shown by cluster log-dirs."
)
@click.option("--no-wait", is_flag=True, help="Start the move and return.")
@yes_option
@connection_options
def move_log(
    name: str, partitions: tuple[int, ...], broker: int, folder: str, no_wait: bool, yes: bool, connection: Connection
) -> None:
    """Move logs of the topic NAME to another log directory of their broker.

    Without --partition, move all partitions of the topic on the broker. The partitions stay available. Ctrl-C ends the
    command, but not the move.
    """
    with connect(connection) as admin:
        require_topics(admin, [name])
        folders = admin.log_dirs(broker)
        target = _target(folders, broker, folder)
        moving = _to_move(folders, target, name, partitions)
        if not moving:
            click.echo(f"there is nothing of {name} to move", err=True)
            return
        what = f"{len(moving)} log{'' if len(moving) == 1 else 's'}"
        confirm(f"move {what} of {name} to {folder} of broker {broker}?", yes=yes, otherwise="nothing was moved")
        answers = admin.alter_replica_log_dirs(broker, dict.fromkeys(moving, folder))
        for tp in moving:
            _raise_refusal(tp, broker, answers.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR))
        again = f"barnabas cluster log-dirs --broker {broker}"
        if no_wait:
            click.echo(f"started to move {what}; see: {again}")
            return
        try:
            _wait(admin, broker, folder, {tp: size for tp, size in _sizes(folders).items() if tp in moving})
        except KeyboardInterrupt:
            click.echo(f"the move continues; see: {again}", err=True)
            raise
        click.echo(f"moved {what}")


def _target(folders: Sequence[LogDir], broker: int, folder: str) -> LogDir:
    found = next((each for each in folders if each.path == folder), None)
    if found is None:
        there = ", ".join(each.path for each in folders)
        raise click.UsageError(f"broker {broker} has no log directory {folder}; it has {there}")
    if found.error:
        raise click.ClickException(f"{folder} of broker {broker} is offline")
    return found


def _to_move(folders: Sequence[LogDir], target: LogDir, name: str, partitions: Sequence[int]) -> list[TopicPartition]:
    there = [tp for tp in _sizes(folders) if tp.topic == name]
    wanted = [TopicPartition(name, each) for each in partitions] or sorted(there)
    lacking = [str(tp) for tp in wanted if tp not in there]
    if lacking:
        raise click.UsageError(f"broker {target.broker} has no log of {', '.join(lacking)}")
    return [tp for tp in wanted if tp not in target.sizes]


def _raise_refusal(tp: TopicPartition, broker: int, code: ErrorCode) -> None:
    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        raise click.ClickException(f"{tp} of broker {broker} is offline")
    if code == ErrorCode.POLICY_VIOLATION:
        raise click.ClickException(f"broker {broker} has too many pending moves; wait for some of them to finish")
    if code:
        raise click.ClickException(f"broker {broker} cannot move {tp}: {code.name}")


def _wait(admin: Admin, broker: int, folder: str, moving: dict[TopicPartition, int]) -> None:
    done = idle = 0
    with byte_progress(f"moving {len(moving)} logs", sum(moving.values())) as advance:
        while True:
            folders = admin.log_dirs(broker)
            target = _target(folders, broker, folder)
            if lost := moving.keys() - _sizes(folders).keys():
                raise click.ClickException(
                    f"broker {broker} no longer has a log of {', '.join(map(str, sorted(lost)))}"
                )
            now = sum(size for tp, size in moving.items() if tp in target.sizes)
            advance(max(0, now - done))
            done = max(done, now)
            if moving.keys() <= target.sizes.keys():
                return
            idle = 0 if any(each.coming for each in folders) else idle + 1
            if idle > IDLE_LOOKS_MAX:
                raise click.ClickException(f"broker {broker} has stopped moving logs; its log has the reason")
            SYSTEM_CLOCK.sleep(LOOK_S)


def _sizes(folders: Sequence[LogDir]) -> dict[TopicPartition, int]:
    return {tp: size for folder in folders for tp, size in folder.sizes.items()}
