"""Exit codes, and the one line that goes with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click import ClickException

import barnabas
from barnabas.cli.commands import COMMANDS
from barnabas.cli.main import main
from barnabas.errors import DisconnectedError
from barnabas.records import CODEC


def test_every_command_has_help(run) -> None:
    for name in COMMANDS:
        outcome = run(name, "--help")
        assert outcome.code == 0
        assert outcome.out.startswith(f"Usage: barnabas {name}")


def test_help_lists_every_command_without_importing_one() -> None:
    program = "import sys; from barnabas.cli.main import main; main(['--help']); print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert all(f"\n  {name} " in out for name in COMMANDS)
    loaded = set(out.splitlines()[-1].split())
    assert not loaded & {"rich", "asyncio", "pyspark", "pyarrow", "barnabas.client", "barnabas.cli.up"}


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a command has imported when it ends; it fails unless it imports what it is to run."""
    program = (
        "import atexit, sys; sys.argv[0] = 'barnabas'; "
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from barnabas.cli.main import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    return set(done.stderr.splitlines()[-1].split())


def test_queries_do_without_pandas() -> None:
    loaded = loaded_by("sql", "select 1", "-b", "127.0.0.1:1")
    assert "barnabas.sql.topics" in loaded
    assert "pandas" not in loaded


def test_neither_brokers_nor_spark_are_asked_what_is_no_query(run) -> None:
    outcome = run("sql", "drop table clicks", "--engine", "spark", "-b", "127.0.0.1:1")
    assert outcome.code == 1
    assert "only queries are allowed" in outcome.err


def test_version_imports_next_to_nothing() -> None:
    loaded = loaded_by("--version")
    assert "barnabas.cli.version" in loaded
    assert not loaded & {"click", "asyncio", "dataclasses", "barnabas.records", "barnabas.model", "barnabas.errors"}


def test_topic_list_imports_nothing_of_consumers_and_producers() -> None:
    loaded = loaded_by("topic", "list", "-b", "127.0.0.1:1")
    assert "barnabas.client.admin.admin" in loaded
    others = {"consumer", "producer", "range_reader", "streams"}
    assert not loaded & {f"barnabas.client.{name}" for name in others}
    messages = {"produce", "fetch", "join_group", "create_topics", "describe_configs", "describe_groups"}
    messages |= {"find_coordinator", "offset_commit", "offset_fetch"}
    assert not loaded & {f"barnabas.protocol.messages.{name}" for name in messages}
    assert not loaded & {"crc32c", "barnabas.records", "barnabas.groups", "barnabas.protocol.apis", "rich"}
    assert not loaded & {"uvloop", "pathlib", "json", "encodings.idna"}


@pytest.mark.parametrize("wanted", ["", "pure", CODEC])
def test_version_names_the_codec_without_importing_it(wanted: str) -> None:
    program = "from barnabas.cli.version import codec_in_use; from barnabas.records import CODEC; print(codec_in_use())"
    environment = {**os.environ, "BARNABAS_CODEC": wanted}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == (wanted or CODEC)


def test_version_says_what_is_wrong_with_the_codec() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", "--version"],
        capture_output=True,
        text=True,
        env={**os.environ, "BARNABAS_CODEC": "quick"},
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("barnabas: BARNABAS_CODEC='quick' must be ")


def test_brokers_and_producers_refuse_free_threaded_python() -> None:
    program = """
import sys
sys.version = "3.14.7 free-threading build (main)"
import barnabas
try:
    barnabas.Producer
except barnabas.ConfigurationError as error:
    print(error)
from barnabas.cli.main import main
sys.argv = ["barnabas", "up"]
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout.startswith("Barnabas does not run on free-threaded Python: ")
    assert done.stderr == f"barnabas: {done.stdout}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--config", "/nowhere.toml"],
        ["up", "-X", "num.partitions=many"],
        ["up", "--config", "/nowhere.toml", "--log-format", "json"],
        ["cluster", "up", "--config", "/nowhere.toml"],
        ["registry", "-X", "no.such.setting=1"],
        ["registry", "--host", "0.0.0.0"],
        ["up", "--http", "0.0.0.0:0"],
        ["mirror", "--from", "a:1", "--to", "b:1", "--topics", "x", "--http", "[::]:0"],
        ["mirror", "--from", "a:1", "--to", "b:1", "--topics", "("],
        ["load", "clicks", "--warehouse", "w", "--every", "1s", "--format", "lines:nothing", "-b", "127.0.0.1:1"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_wrong_settings_end_a_service_with_the_code_of_wrong_usage(arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "barnabas.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Traceback" not in done.stderr


def test_version(run) -> None:
    assert run("--version").out.startswith(f"barnabas {barnabas.__version__} ({CODEC} record codec")


@pytest.mark.parametrize("arguments", [["fly"], ["topic", "fly"], ["topic", "list", "--fly"]])
def test_wrong_usage_is_code_2_and_one_line(run, arguments) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("barnabas: no such ")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["topic", "lst"], "no such command 'lst'; did you mean 'list'?"),
        (["topic", "list", "--jsn"], "no such option '--jsn'; did you mean '--json'?"),
        (["consume", "t", "--exit-at"], "no such option '--exit-at'; did you mean '--exit-at-end'?"),
        (["consume", "clicks", "-g", ""], "the group name is empty; see: barnabas consume --help"),
        (["log", "dump", "/nope/x.log"], "/nope/x.log: no such file or directory"),
    ],
)
def test_message_reads_well(run, arguments, line) -> None:
    assert run(*arguments).err == f"barnabas: {line}\n"


def test_no_broker_is_one_line_that_says_how_to_start_one(cluster, run) -> None:
    cluster.is_down = True
    outcome = run("topic", "list", "--bootstrap", "localhost:1")
    assert outcome.code == 1
    assert outcome.err.startswith("barnabas: no broker responds at localhost:1 (connection refused); ")
    assert "barnabas up" in outcome.err
    assert outcome.err.count("\n") == 1


def test_bootstrap_comes_from_the_environment(cluster, run, monkeypatch) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "elsewhere:9")
    run("topic", "list")
    assert cluster.bootstrap == "elsewhere:9"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-b", "one:1", "topic", "list"],
        ["--bootstrap", "one:1", "topic", "list"],
        ["topic", "list", "-b", "one:1"],
        ["-b", "two:2", "topic", "list", "-b", "one:1"],
    ],
)
def test_bootstrap_stands_before_or_after_the_subcommand(cluster, run, monkeypatch, arguments) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "elsewhere:9")
    assert run(*arguments).code == 0
    assert cluster.bootstrap == "one:1"


def test_debug_shows_where_an_error_arose(cluster, monkeypatch) -> None:
    cluster.is_down = True
    monkeypatch.setenv("BARNABAS_DEBUG", "1")
    with pytest.raises(ClickException) as raised:
        main(["topic", "list"])
    assert isinstance(raised.value.__cause__, DisconnectedError)


def test_interrupt_is_code_130(cluster, monkeypatch) -> None:
    def interrupt(*_arguments: object, **_settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(barnabas, "Admin", interrupt)
    assert main(["topic", "list"]) == 130


INTERRUPTED_IMPORT = """
import importlib.abc, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "click":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["barnabas", "--help"]
from barnabas.cli.main import main
sys.exit(main())
"""


def test_interrupt_during_imports_ends_silently_with_code_130() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_interrupt_that_is_ignored_stays_so() -> None:
    program = INTERRUPTED_IMPORT.replace("signal.default_int_handler", "signal.SIG_IGN")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
