"""`barnabas mirror`: mirrors topics of one cluster to another until Ctrl-C, SIGTERM or SIGHUP."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.http_options import HttpPages, http_and_metrics_port_options
from barnabas.cli.options import client_properties_option, named_connection
from barnabas.cli.terminal_text import escaped, with_noun
from barnabas.cli.times import parse_interval_s, show_time_ms
from barnabas.clock import SYSTEM_CLOCK
from barnabas.stop_signals import stop_on_signals

if TYPE_CHECKING:
    from barnabas.mirror.metrics import Sums
    from barnabas.mirror.mirror import Mirror, MirrorConfig

EXIT_STOPPED = 1
LINE_S = 1.0
"""The interval in seconds between two updates of the status line on a terminal."""


def _interval(_context: click.Context, option: click.Parameter, given: str) -> float:
    try:
        return parse_interval_s(given)
    except ValueError as error:
        raise click.BadParameter(str(error), param=option) from None


@click.command()
@click.option("--from", "source", metavar="HOST:PORT[,...]", help="Brokers of the source cluster.")
@click.option("--to", "target", metavar="HOST:PORT[,...]", help="Brokers of the target cluster.")
@click.option("--from-profile", "source_profile", metavar="NAME", help="Profile with the settings for the source.")
@click.option("--to-profile", "target_profile", metavar="NAME", help="Profile with the settings for the target.")
@click.option(
    "--topics",
    metavar="PATTERN",
    required=True,
    multiple=True,
    help="Regular expression for whole topic names; repeatable.",
)
@click.option("--groups", metavar="PATTERN", multiple=True, help="The same for groups whose offsets to mirror.")
@click.option("--prefix", metavar="TEXT", default="", help="Prefix of the topic names in the target.")
@click.option(
    "--replication-factor",
    metavar="N",
    type=click.IntRange(1, 32767),
    help="Replication factor of new topics in the target.  [default: the brokers' setting]",
)
@click.option(
    "--refresh",
    metavar="INTERVAL",
    default="5s",
    show_default=True,
    callback=_interval,
    help="Interval of synchronizing topics, settings and groups: 0.5s, 5s or 1m.",
)
@click.option(
    "--audit/--no-audit",
    default=None,
    help="Report mirrored records to the audit.  [default: if any producer of the source reports]",
)
@click.option(
    "--settings",
    "settings_follow",
    metavar="WHICH",
    type=click.Choice(["in-force", "topic", "none"]),
    default="in-force",
    show_default=True,
    help="Settings to mirror: the topics' own settings and all effective retention settings (in-force), "
    "only the topics' own settings (topic), or none.",
)
@click.option(
    "--leave-setting",
    "left_settings",
    metavar="NAME",
    multiple=True,
    help="Setting to leave unchanged in the target; repeatable.",
)
@click.option("--once", is_flag=True, help="Stop when all existing records are mirrored.")
@click.option(
    "--status",
    metavar="INTERVAL",
    default="10s",
    show_default=True,
    callback=_interval,
    help="Interval of status lines.",
)
@http_and_metrics_port_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@client_properties_option
def mirror(
    source: str | None,
    target: str | None,
    source_profile: str | None,
    target_profile: str | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    prefix: str,
    replication_factor: int | None,
    refresh: float,
    audit: bool | None,
    settings_follow: str,
    left_settings: tuple[str, ...],
    once: bool,
    status: float,
    http: HttpPages | None,
    as_json: bool,
    properties: dict[str, str],
) -> int:
    """Mirror topics of one cluster to another: records, partitions, settings, and offsets of groups.

    The log on the target shows which records are already mirrored. So a mirror that is killed and restarted neither
    loses nor duplicates records. Ctrl-C, SIGTERM or SIGHUP stops it. The exit code is 1 if some records could not be
    mirrored.

    \b
    barnabas mirror --from a:9092 --to b:9092 --topics 'clicks|shop-.*' --groups '.*'
    """
    from barnabas.mirror.mirror import MirrorConfig
    from barnabas.mirror.topic_config_rules import SettingsFilter, SyncRule

    config = MirrorConfig(
        source=_side("--from", source, source_profile, properties),
        target=_side("--to", target, target_profile, properties),
        topics=topics,
        groups=groups,
        prefix=prefix,
        replication_factor=replication_factor,
        refresh_s=refresh,
        groups_s=refresh,
        audit=audit,
        settings=SettingsFilter(SyncRule(settings_follow), frozenset(left_settings)),
    )
    return _run(config, _Output(as_json, status), http, once=once)


def _side(option: str, bootstrap: str | None, profile: str | None, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the client settings of one cluster.

    :raises click.UsageError: neither an address nor a profile is given.
    """
    if bootstrap is None and profile is None:
        raise click.UsageError(f"the mirror needs {option} HOST:PORT or {option}-profile NAME")
    return named_connection(profile, bootstrap, properties).settings()


class _Output:
    """Prints the events of the mirror, and a status line that is updated in place on a terminal."""

    def __init__(self, as_json: bool, status_s: float) -> None:
        self._as_json = as_json
        self._is_live = sys.stderr.isatty() and not as_json
        self._has_line = False
        self.status_s = min(status_s, LINE_S) if self._is_live else status_s
        self._before: tuple[float, Sums] | None = None

    def report(self, event: Mapping[str, object]) -> None:
        """Print an event."""
        time = show_time_ms(SYSTEM_CLOCK.time_ms())
        if self._as_json:
            click.echo(json.dumps({"time": time, **event}, ensure_ascii=False))
            return
        self.end_line()
        about, kind = event.get("about", ""), event.get("event", "")
        more = [_plain(name, value) for name, value in event.items() if name not in ("about", "event")]
        click.echo(escaped(f"{time} {about}: {kind}{': ' if more else ''}{', '.join(more)}"))

    def status(self, sums: Sums, refused_settings: Sequence[str]) -> None:
        """Print the progress of the mirror."""
        now_s = SYSTEM_CLOCK.monotonic()
        before_s, before = self._before or (now_s, sums)
        rate = (sums.bytes - before.bytes) / max(now_s - before_s, 0.001)
        self._before = now_s, sums
        if self._as_json:
            progress = {"event": "status", "partitions": sums.partitions, "stopped": sums.stopped}
            progress |= {"missing": sums.missing} if sums.missing else {}
            refused = {"refused_settings": list(refused_settings)} if refused_settings else {}
            self.report({**progress, "records": sums.records, "bytes": sums.bytes, "lag": sums.lag, **refused})
            return
        lag = "not known" if sums.lag is None else f"{sums.lag:,}"
        text = f"{with_noun(sums.records, 'record')} mirrored, {rate / 1e6:.1f} MB/s, lag {lag}"
        text += f", {with_noun(sums.partitions, 'partition')}"
        if sums.stopped:
            text += f", {sums.stopped} stopped"
        if sums.missing:
            text += f", {with_noun(sums.missing, 'offset')} deleted before being mirrored"
        if refused_settings:
            text += f", {with_noun(len(refused_settings), 'setting')} refused"
        if self._is_live:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
            self._has_line = True
        else:
            click.echo(f"{show_time_ms(SYSTEM_CLOCK.time_ms())} {text}")

    def end_line(self) -> None:
        """Clear the status line."""
        if self._has_line:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._has_line = False


def _plain(name: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if name == "reason" else f"{name.replace('_', ' ')} {text}"


def _run(config: MirrorConfig, output: _Output, http: HttpPages | None, *, once: bool) -> int:
    from barnabas.client.client_lifecycle import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_mirror(config, output, http, once=once))


async def _mirror(config: MirrorConfig, output: _Output, http: HttpPages | None, *, once: bool) -> int:
    from barnabas.mirror.mirror import Mirror
    from barnabas.net.status_server import LoopProbe, serving_status

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    stop_on_signals(loop, stop.set)
    mirror = Mirror(config, output.report)
    watching: asyncio.Task[None] | None = None
    try:
        address, prove = (None, None) if http is None else (http.http, http.prover(config.target))
        is_alive = LoopProbe(loop).is_alive
        with serving_status(address, mirror.collect, mirror.not_ready, is_alive, prove) as server:
            if await _starts(mirror, stop):
                place = {} if server is None else {"metrics": f"{server.url}/metrics"}
                output.report({"about": "mirror", "event": "ready", **place})
                watching = asyncio.create_task(_watch(mirror, output, stop, once=once))
                await mirror.run_until(stop)
    finally:
        if watching is not None:
            watching.cancel()
        await mirror.stop()
        output.end_line()
    sums = mirror.final
    troubles = {"stopped": sums.stopped, "missing": sums.missing}
    more = {name: count for name, count in troubles.items() if count}
    output.report({"about": "mirror", "event": "ended", "records": sums.records, "lag": sums.lag, **more})
    return EXIT_STOPPED if sums.stopped or sums.missing or mirror.current_problems else 0


async def _starts(mirror: Mirror, stop: asyncio.Event) -> bool:
    """Start the mirror, waiting for unavailable clusters; return False if `stop` is set before it has started."""
    tasks = [asyncio.create_task(mirror.start()), asyncio.create_task(stop.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            await tasks[0]
        return tasks[0].done()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(mirror: Mirror, output: _Output, stop: asyncio.Event, *, once: bool) -> None:
    """Print the progress, and stop a `--once` mirror when it has caught up."""
    due_s = SYSTEM_CLOCK.monotonic() + output.status_s
    while True:
        await asyncio.sleep(0.1 if once else output.status_s)
        if once and mirror.has_caught_up and await mirror.follow_groups():
            # The last synchronization of groups may have run before the last records arrived, and could not map their
            # offsets. Run it once more.
            stop.set()
            return
        if SYSTEM_CLOCK.monotonic() >= due_s:
            due_s += output.status_s
            output.status(mirror.sums, mirror.refused_settings)
