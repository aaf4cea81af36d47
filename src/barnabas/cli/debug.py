"""`barnabas debug bundle`: collects facts about a cluster and this machine in one file, without secrets."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

import barnabas
from barnabas.cli.connection import Connection
from barnabas.cli.debug_bundle import Bundle
from barnabas.cli.options import connection_options
from barnabas.cli.redaction import Redactor, is_secret_name
from barnabas.cli.signals import end_on_sigterm
from barnabas.cli.terminal_text import escaped, with_noun
from barnabas.cli.times import show_time_ms
from barnabas.cli.version import codec_in_use
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.security.secrets import HIDDEN

if TYPE_CHECKING:
    from barnabas import Admin

ADDRESS_TIMEOUT_MS = 3_000
CALL_TIMEOUT_MS = 5_000
HTTP_TIMEOUT_S = 5.0
ADDRESSES_MAX = 10
BROKERS_MAX = 50
TOPICS_MAX = 5_000
GROUPS_MAX = 500
FILES_MAX = 20_000
SMALL_FILES_MAX = 2_000
SMALL_FILE_BYTES_MAX = 256 * 1024
TAIL_BYTES_DEFAULT = 1024 * 1024
TAIL_BYTES_MAX = 8 * 1024 * 1024
PAGES = ("/metrics", "/healthz", "/readyz")
SMALL_FILES = frozenset({"cluster.json", "meta.properties"})
"""The files of data folders that the bundle contains, besides checkpoints. None of them has secrets or records."""
KERNEL_FILES = (
    *("/proc/meminfo", "/proc/loadavg", "/proc/self/limits", "/proc/self/cgroup", "/proc/version"),
    *("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/pids.max", "/etc/os-release"),
)
SHOWN_VARIABLES = ("BARNABAS_", "PYTHON", "LANG", "LC_", "TZ", "KUBERNETES_", "container", "JAVA_HOME", "SPARK_HOME")
"""The beginnings of the names of environment variables that the bundle contains."""


@click.group()
def debug() -> None:
    """Collect facts for a problem report."""


def _http_url(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    named = (f"127.0.0.1:{each}" if each.isdecimal() else each for each in texts)
    urls = tuple(each if "://" in each else f"http://{each}" for each in named)
    for url in urls:
        try:
            parts = urlsplit(url)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
        except ValueError:
            is_url = False
        if not is_url or "@" in url:
            raise click.BadParameter(f"{url.rpartition('@')[2]!r} is not [HOST:]PORT or http[s]://HOST:PORT")
    return urls


@debug.command()
@click.option("-o", "--output", metavar="FILE.zip", type=click.Path(path_type=Path), help="File to create.")
@click.option(
    "--data",
    "folders",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Log directory of a broker on this machine, for a list of its files; repeatable.",
)
@click.option("--config", metavar="FILE", help="Settings file of a broker.")
@click.option(
    "--log",
    "logs",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Log file of which to include the end; repeatable.",
)
@click.option(
    "--tail",
    "tail_bytes",
    metavar="BYTES",
    type=click.IntRange(1, TAIL_BYTES_MAX),
    default=TAIL_BYTES_DEFAULT,
    show_default=True,
    help="Size of the end of each log file.",
)
@click.option(
    "--http",
    "urls",
    metavar="[HOST:]PORT",
    multiple=True,
    callback=_http_url,
    help="Status pages (--http) of which to include metrics and health; repeatable.",
)
@connection_options
def bundle(
    output: Path | None,
    folders: tuple[Path, ...],
    config: str | None,
    logs: tuple[Path, ...],
    tail_bytes: int,
    urls: tuple[str, ...],
    connection: Connection,
) -> None:
    """Write a ZIP file with settings, versions, the state of the cluster, metrics and logs, without secrets.

    The command also works while brokers do not respond; the file then lists what is missing.

    \b
    barnabas debug bundle -b localhost:9092
    barnabas debug bundle -o bundle.zip --data /var/lib/barnabas --config broker.toml --log broker.log --http 9644
    """
    end_on_sigterm()
    logging.basicConfig(format="barnabas: %(message)s", level=logging.ERROR)  # `missing.json` has the reasons
    now_ms = SYSTEM_CLOCK.time_ms()
    path = output or Path(f"barnabas-debug-{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%d-%H%M%S}.zip")
    redactor = Redactor()
    try:
        made = Bundle(path, redactor, now_ms)
    except FileExistsError:
        raise click.ClickException(f"{path} exists already; choose another file with -o") from None
    with made:
        # The secrets come first, so that all later texts lose them.
        client = {
            "settings": redactor.settings({**connection.properties, "bootstrap.servers": connection.bootstrap}),
            "registry": redactor.settings(connection.registry),
        }
        variables = redactor.settings(dict(os.environ))
        if config is not None:
            made.collect("broker-settings.json", lambda: _broker_settings(config, redactor))
        made.add("client.json", client)
        made.collect("environment.json", lambda: _environment(now_ms, variables))
        for number, url in enumerate(urls):
            _add_pages(made, f"status-pages/{number}", url)
        for number, log in enumerate(logs):
            made.collect(f"logs/{number}-{log.name}", partial(_tail, log, tail_bytes))
        for number, folder in enumerate(folders):
            _add_folder(made, f"data/{number}", folder)
        _add_cluster(made, connection)
    for name, reason in made.missing.items():
        click.echo(f"missing: {name}: {escaped(reason)}", err=True)
    click.echo(str(path))


def _broker_settings(config: str, redactor: Redactor) -> dict[str, Any]:
    """Return the settings of a broker's file without secrets. The file need not be valid for a broker."""
    from barnabas.broker.settings.loading import read_settings_file

    return {"file": config, "settings": redactor.settings(read_settings_file(Path(config)))}


# --- this machine -------------------------------------------------------------------------------------------------


def _environment(now_ms: int, variables: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in sorted(variables.items()) if name.startswith(SHOWN_VARIABLES)}
    return {
        "created": show_time_ms(now_ms),
        "barnabas": barnabas.__version__,
        "codec": codec_in_use(),
        "python": sys.version,
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "encodings": [sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.stdout.encoding],
        "variables": shown,
        "packages": _packages(),
        "kernel": {name: text for name in KERNEL_FILES if (text := _small_text(Path(name))) is not None},
        "in_container": [name for name in ("/.dockerenv", "/run/.containerenv") if Path(name).exists()],
    }


def _packages() -> dict[str, str]:
    found = {each.name: each.version for each in importlib.metadata.distributions()}
    return dict(sorted(found.items())[:FILES_MAX])


def _small_text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(SMALL_FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return None


def _tail(path: Path, tail_bytes: int) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - tail_bytes))
        data = file.read(tail_bytes)
    if size > tail_bytes:  # a secret in half a line would not be recognized
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "backslashreplace")


def _add_folder(made: Bundle, name: str, folder: Path) -> None:
    made.collect(f"{name}/disk.json", lambda: {"folder": str(folder), **shutil.disk_usage(folder)._asdict()})
    made.collect(f"{name}/files.txt", lambda: "".join(_listing(folder)))
    files = (each for each in sorted((*folder.glob("*"), *folder.glob("*/*"))) if _is_small_file(each))
    for file in islice(files, SMALL_FILES_MAX):
        made.collect(f"{name}/{file.relative_to(folder)}", partial(_small_text, file))


def _is_small_file(path: Path) -> bool:
    return (path.name in SMALL_FILES or path.name.endswith("-checkpoint")) and path.is_file() and not path.is_symlink()


def _listing(folder: Path) -> Iterator[str]:
    count = 0
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            try:
                found = path.stat(follow_symlinks=False)
            except OSError as error:
                yield f"? {path.relative_to(folder)}: {error.strerror}\n"
                continue
            count += 1
            if count > FILES_MAX:
                yield f"... more than {FILES_MAX:,} files\n"
                return
            yield f"{found.st_size:>14} {show_time_ms(found.st_mtime_ns // 1_000_000)} {path.relative_to(folder)}\n"


def _add_pages(made: Bundle, name: str, url: str) -> None:
    from barnabas.serialization.http_calls import UntrustedServerError, call

    def page(path: str) -> str:
        try:
            status, body, _ = call(f"{url.rstrip('/')}{path}", "GET", None, {}, HTTP_TIMEOUT_S)
        except UntrustedServerError as error:
            raise ConfigurationError(f"{url}: {error}") from None
        return f"{url}{path}: status {status}\n{body.decode('utf-8', 'replace')}"

    for path in PAGES:
        made.collect(f"{name}{path}.txt", partial(page, path))


# --- the cluster --------------------------------------------------------------------------------------------------


def _add_cluster(made: Bundle, connection: Connection) -> None:
    from barnabas import Admin

    found = [_at_address(made, connection, each.strip()) for each in connection.bootstrap.split(",")[:ADDRESSES_MAX]]
    reached = [each for each in found if each is not None]
    if not reached:
        made.missing["cluster/..."] = "no broker responds"
        return
    settings = {**connection.admin_settings, "bootstrap.servers": ",".join(reached)}
    with Admin(settings, default_api_timeout_ms=CALL_TIMEOUT_MS) as admin:
        cluster = made.collect("cluster/cluster.json", lambda: asdict(admin.describe_cluster()))
        if cluster is None:
            return
        brokers = [each["id"] for each in cluster["brokers"]][:BROKERS_MAX]
        for broker in brokers:
            made.collect(f"cluster/brokers/{broker}-settings.json", partial(_settings_of, admin, broker))
            made.collect(f"cluster/brokers/{broker}-log-dirs.json", partial(_log_dirs_of, admin, broker))
        made.collect("cluster/dynamic-settings.json", lambda: _all_brokers(admin))
        topics = made.collect("cluster/topics.json", lambda: _topics(admin))
        if topics:
            made.collect("cluster/topic-settings.json", lambda: _topic_settings(admin, topics))
        made.collect("cluster/reassignments.json", lambda: _reassignments(admin))
        made.collect("cluster/groups.json", lambda: _groups(admin, topics or {}))


def _in_file_name(address: str) -> str:
    return "".join(each if each.isalnum() or each in ".-" else "_" for each in address.strip())


def _at_address(made: Bundle, connection: Connection, address: str) -> str | None:
    """Add the brokers that the broker at an address knows; return the address, or None if it does not respond."""
    from barnabas import Admin

    def brokers() -> list[dict[str, Any]]:
        settings = {**connection.admin_settings, "bootstrap.servers": address}
        with Admin(settings, default_api_timeout_ms=ADDRESS_TIMEOUT_MS) as admin:
            return [asdict(each) for each in admin.brokers()]

    is_there = made.collect(f"cluster/addresses/{_in_file_name(address)}.json", brokers) is not None
    return address if is_there else None


def _shown_settings(settings: Mapping[str, Any], *, with_defaults: bool) -> dict[str, Any]:
    return {
        name: {
            "value": HIDDEN if each.is_sensitive or (each.value and is_secret_name(name)) else each.value,
            "source": each.source.label,
        }
        for name, each in sorted(settings.items())
        if with_defaults or not each.is_default
    }


def _settings_of(admin: Admin, broker: int) -> dict[str, Any]:
    return _shown_settings(admin.describe_config(broker=broker), with_defaults=True)


def _all_brokers(admin: Admin) -> dict[str, Any]:
    return _shown_settings(admin.describe_config(all_brokers=True), with_defaults=True)


def _log_dirs_of(admin: Admin, broker: int) -> list[dict[str, Any]]:
    return [
        {
            "path": each.path,
            "error": each.error.name,
            "total_bytes": each.total_bytes,
            "usable_bytes": each.usable_bytes,
            "sizes": _by_partition(each.sizes),
            "coming": _by_partition(each.coming),
        }
        for each in admin.log_dirs(broker)
    ]


def _by_partition(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(tp): value for tp, value in sorted(values.items())[:FILES_MAX]}


def _topics(admin: Admin) -> dict[str, Any]:
    found = admin.describe_topics(include_internal=True)
    return {
        each.name: {
            "id": each.id,
            "error": each.error.name if each.error else None,
            "partitions": [
                {"partition": part.partition, "leader": part.leader, "replicas": part.replicas, "isr": part.isr}
                for part in each.partitions
            ],
        }
        for each in _first(found, TOPICS_MAX)
    }


def _topic_settings(admin: Admin, topics: Iterable[str]) -> dict[str, Any]:
    return {
        name: _shown_settings(admin.describe_config(name), with_defaults=False)
        for name in _first(list(topics), GROUPS_MAX)
    }


def _reassignments(admin: Admin) -> dict[str, Any]:
    return {str(tp): asdict(each) for tp, each in admin.list_partition_reassignments().items()}


def _groups(admin: Admin, topics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the groups with their members and lags."""
    from barnabas.cli.group_lag import lags, total_lag

    led = {
        TopicPartition(name, part["partition"])
        for name, topic in topics.items()
        for part in topic["partitions"]
        if part["leader"] >= 0
    }
    listed = _first(admin.list_groups(), GROUPS_MAX)
    described = {each.group: each for each in admin.describe_groups([each.group for each in listed])}
    committed = admin.offsets_of_groups(described)
    ends = admin.end_offsets(led & {tp for each in committed.values() for tp in each})
    shown = []
    for each in listed:
        found = described[each.group]
        rows = lags(committed[each.group], ends, found.members)
        shown.append(
            {
                "group": each.group,
                "type": each.type,
                "state": found.state,
                "members": [
                    {"id": member.member_id, "host": member.host, "partitions": list(map(str, member.partitions))}
                    for member in found.members
                ],
                "lag": total_lag(rows),
                "partitions": [[row.topic, row.partition, row.committed, row.end] for row in rows],
            }
        )
    return shown


def _first(found: list[Any], count: int) -> list[Any]:
    if len(found) > count:
        click.echo(f"the bundle contains only {count:,} of {with_noun(len(found), 'entry')}", err=True)
    return found[:count]
