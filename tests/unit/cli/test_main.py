"""Exit codes, and the one line that goes with them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click import ClickException

import barnabas
from barnabas.cli.main import COMMANDS, main
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


def test_version(run) -> None:
    assert run("--version").out.startswith(f"barnabas {barnabas.__version__} ({CODEC} record codec")


@pytest.mark.parametrize("arguments", [["fly"], ["topic", "fly"], ["topic", "list", "--fly"]])
def test_wrong_usage_is_code_2_and_one_line(run, arguments) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("barnabas: no such ")
    assert outcome.err.count("\n") == 1


def test_no_broker_is_one_line_that_says_how_to_start_one(cluster, run) -> None:
    cluster.is_down = True
    outcome = run("topic", "list", "--bootstrap", "localhost:1")
    assert outcome.code == 1
    assert outcome.err.startswith("barnabas: no broker answers at localhost:1; ")
    assert "barnabas up" in outcome.err
    assert outcome.err.count("\n") == 1


def test_bootstrap_comes_from_the_environment(cluster, run, monkeypatch) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "elsewhere:9")
    run("topic", "list")
    assert cluster.bootstrap == "elsewhere:9"


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
