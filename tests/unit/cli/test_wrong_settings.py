"""Wrong settings end each long-running command with exit code 2, so that a supervisor does not restart it for ever.

No broker runs here: a command finds these faults before it connects. For `barnabas up`, see
`tests/interop/test_broker_process.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.commands import run
from barnabas.exit_codes import EXIT_WRONG_SETTINGS

NOWHERE = "127.0.0.1:1"
REGISTRY = ("registry", "-b", NOWHERE, "--port", "0")
CONSOLE = ("console", "-b", NOWHERE, "--port", "0")
MIRROR = ("mirror", "--from", NOWHERE, "--to", "127.0.0.1:2", "--topics", "x")
LOAD = ("load", "clicks", "-b", NOWHERE, "--every", "1h")
AUDIT = ("audit", "clicks", "-b", NOWHERE, "--watch", "60")
BROKERS = ("up", "--brokers-here", "2", "--zookeeper", NOWHERE)


@pytest.fixture(autouse=True)
def _no_logging_is_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "garbage.pem").write_text("this is no certificate\n")


@pytest.mark.parametrize(
    "arguments",
    [
        *((*command, "-X", "no.such.setting=1") for command in (REGISTRY, CONSOLE, MIRROR, LOAD, AUDIT, BROKERS)),
        *(
            (*command, "-X", "security.protocol=SSL", "-X", "ssl.cafile=none")
            for command in (REGISTRY, CONSOLE, MIRROR)
        ),
        *(("--profile", "none.toml", *command) for command in (REGISTRY, CONSOLE, LOAD)),
        (*REGISTRY, "--host", "0.0.0.0"),
        (*REGISTRY, "--topic", "a/b"),
        (*REGISTRY, "--super-users", "nobody"),
        (*REGISTRY, "--http-certfile", "none.pem", "--http-auth", "none"),
        (*CONSOLE, "--host", "0.0.0.0"),
        (*CONSOLE, "--http-certfile", "none.pem"),
        (*CONSOLE, "--http-certfile", "garbage.pem"),
        (*CONSOLE, "--registry", "nonsense"),
        (*CONSOLE[:1], "-b", "nonsense:x"),
        (*MIRROR, "--topics", "("),
        (*MIRROR, "--http", "0.0.0.0:0"),
        ("mirror", "--from", "nonsense:x", "--to", NOWHERE, "--topics", "x"),
        (*LOAD, "--format", "nonsense"),
        (*LOAD, "--http", "0.0.0.0:0"),
        (*AUDIT, "--http", "0.0.0.0:0"),
        (*BROKERS, "--config", "none.toml"),
    ],
    ids=" ".join,
)
def test_wrong_settings_end_a_command_with_exit_code_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(list(arguments)) == EXIT_WRONG_SETTINGS
    error = capsys.readouterr().err
    assert error.startswith("barnabas: ")
    assert "Traceback" not in error
