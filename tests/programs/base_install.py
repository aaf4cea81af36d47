"""Runs commands and imports public modules as after `pip install barnabas`, without any extra.

The packages of this environment that are not dependencies of the base install are hidden from imports.

    python -m tests.programs.base_install        prints a JSON object for each command, module and name
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import json
import re
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
UNREACHABLE = "127.0.0.1:1"
PUBLIC = (
    "barnabas",
    "barnabas.laboratory.clickstream",
    "barnabas.laboratory.history",
    "barnabas.serialization",
    "barnabas.spark",
    "barnabas.spark.reports",
    "barnabas.spark.streams",
    "barnabas.sql",
    "barnabas.testing",
)
EXTRA_ARGUMENTS: dict[str, list[list[str]]] = {
    "sql": [["select 1", "--engine", "duckdb"], ["select 1", "--engine", "spark"], ["select 1", "--format", "avro"]],
    "consume": [["clicks", "-s", "avro", "-r", "http://h"], ["clicks", "-s", "protobuf", "-r", "http://h"]],
    "produce": [["clicks", "-s", "avro", "-r", "http://h"]],
    "load": [["clicks", "-w", "w", "--every", "1s"], ["clicks", "-w", "w", "--table-format", "delta"]],
    "report": [["popularity", "clicks", "-w", "w", "--png", "p.png"]],
    "audit": [["clicks", "-w", "w"], ["clicks", "-w", "w", "--table-format", "delta"]],
}
"""Command lines besides the plain one, which has what a command cannot do without."""


def name_of(requirement: str) -> str:
    """Return the normal form of the name with which a requirement begins."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def base_distributions() -> set[str]:
    """Return the names of the distributions that a base install brings."""
    wanted = list(map(name_of, tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]))
    found = {"barnabas"}
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        found.add(name)
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            wanted += [name_of(each) for each in importlib.metadata.requires(name) or () if "extra ==" not in each]
    return found


class BaseInstallFinder:
    """Finds modules on the path, but for those of other distributions than a base install has."""

    find_distributions = staticmethod(PathFinder.find_distributions)
    invalidate_caches = staticmethod(PathFinder.invalidate_caches)

    def __init__(self) -> None:
        allowed = base_distributions()
        self.hidden = {
            package
            for package, distributions in importlib.metadata.packages_distributions().items()
            if not allowed.intersection(map(name_of, distributions))
        }

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module; None where it is hidden."""
        return None if name.partition(".")[0] in self.hidden else PathFinder.find_spec(name, path, target)


def hide_extras() -> None:
    """Let this process import nothing that a base install lacks."""
    finder = BaseInstallFinder()
    loaded = finder.hidden.intersection(sys.modules) - {"_distutils_hack"}  # which setuptools loads at each start
    assert not loaded, f"imported before they were hidden: {loaded}"
    sys.meta_path[sys.meta_path.index(PathFinder)] = finder  # type: ignore[call-overload]


def command_lines() -> Iterator[list[str]]:
    """Yield a command line for each command, with the arguments and options that it cannot do without, and more."""
    import click  # noqa: PLC0415

    from barnabas.cli.commands import command  # noqa: PLC0415

    def below(path: list[str], each: click.Command) -> Iterator[list[str]]:
        if not isinstance(each, click.Group):
            yield [*path, *needed(each)]
            yield from ([*path, *more] for more in EXTRA_ARGUMENTS.get(" ".join(path), ()))
            return
        with click.Context(each) as context:
            for name in each.list_commands(context):
                found = each.get_command(context, name)
                assert found is not None
                yield from below([*path, name], found)

    def needed(each: click.Command) -> Iterator[str]:
        for parameter in each.params:
            if parameter.name == "bootstrap":
                yield from ("-b", UNREACHABLE)
            elif parameter.name == "warehouse":
                yield from ("-w", "warehouse")
            elif isinstance(parameter, click.Argument) or parameter.required:
                if isinstance(parameter, click.Option):
                    yield parameter.opts[-1]
                    if parameter.is_flag:
                        continue
                yield value_of(parameter)

    def value_of(parameter: click.Parameter) -> str:
        if isinstance(parameter.type, click.Choice):
            return str(parameter.type.choices[0])
        if parameter.name == "zookeeper":
            return "not:a:server"  # the command would wait for a server
        if parameter.name in ("source", "target"):
            return UNREACHABLE
        return "select 1" if parameter.name == "statement" else "1"

    return below([], command)


def outcome_of_command(line: list[str]) -> dict[str, object]:
    """Run a command in this process; return its exit code and what it said."""
    from barnabas.cli.main import main  # noqa: PLC0415

    code: object = None
    with tempfile.TemporaryFile("w+") as said, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            code = main(line)
        except SystemExit as ended:
            code = ended.code
        except BaseException:  # noqa: BLE001  the test looks for tracebacks
            said.write(traceback.format_exc())
        said.seek(0)
        return {"command": line, "code": code, "said": said.read()}


def reach_no_broker() -> None:
    """Let every client of the commands fail at once."""
    import barnabas  # noqa: PLC0415

    def no_client(*_arguments: object, **_settings: object) -> None:
        raise barnabas.DisconnectedError("no broker")

    for name in ("Admin", "Consumer", "Producer"):
        setattr(barnabas, name, no_client)


def outcomes_of_modules() -> Iterator[dict[str, object]]:
    """Import each public module and get each of its names; yield the error of each, None where there is none."""
    for name in PUBLIC:
        try:
            module = importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  its kind is the outcome
            yield {"name": name, "error": type(error).__name__, "said": str(error)}
            continue
        for each in getattr(module, "__all__", ()):
            try:
                getattr(module, each)
            except Exception as error:  # noqa: BLE001
                yield {"name": f"{name}.{each}", "error": type(error).__name__, "said": str(error)}
            else:
                yield {"name": f"{name}.{each}", "error": None, "said": ""}


def main() -> None:
    """Print what happens."""
    hide_extras()
    outcomes = list(outcomes_of_modules())
    reach_no_broker()
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for line in command_lines():
            if line[:1] in (["up"], ["mirror"]) or line[:2] == ["cluster", "up"]:
                continue  # they need no extra, and serve or wait
            sys.stdout.write(json.dumps(outcome_of_command(line)) + "\n")
            sys.stdout.flush()
    for outcome in outcomes:
        sys.stdout.write(json.dumps(outcome) + "\n")


if __name__ == "__main__":
    main()
