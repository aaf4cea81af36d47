"""Run the recipes of deploy/schedulers with cron's and systemd's environment, Airflow and Dagster.

    make suites SUITE=schedulers
    .venv/bin/python tools/schedulers_suite.py airflow

Airflow and Dagster come from PyPI, into environments in the cache folder that do not contain Barnabas. A broker of this
machine has the topics. Each recipe loads once, repeats the run, and meets another load (exit code 4) and a stopped
broker (exit code 5).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import socket

from published_tests import CACHE_FOLDER
from versions_suite import uv

from barnabas import Admin, Producer

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "schedulers"
BARNABAS = Path(sys.executable).with_name("barnabas")
PACKAGES = {"airflow": "apache-airflow>=3.0,<4", "dagster": "dagster>=1.9,<2"}
TIMEOUT_S = 600
OUTPUT_MAX = 10_000
PERSONS = 12
"""The number of records in each topic at the start."""
DAYS = (datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))
SIGNS_OF_A_RETRY = ('"exit_code": 5', "STEP_UP_FOR_RETRY")
"""Texts in the output of Airflow and Dagster after a try without a broker."""
AIRFLOW_TRY = "[DAG TEST] starting task_id="
"""A text that `airflow dags test` prints for each try."""
SOMETIMES_BUSY = """#!/bin/sh
# Behave as if another load were running, until the file is gone.
if [ -e {marker} ]; then rm {marker}; echo '{{"exit_code": 4}}'; exit 4; fi
exec {barnabas} "$@"
"""


@dataclass
class Place:
    """A broker on a fixed port, and the folder of a recipe's tables.

    :param command: the program that the recipes run: Barnabas, once after another exit code if `marker` exists.
    """

    folder: Path
    port: int
    command: Path
    marker: Path

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    def environment(self) -> dict[str, str]:
        """Return the variables of the recipes for Airflow and Dagster."""
        return {
            "BARNABAS": str(self.command),
            "BARNABAS_BOOTSTRAP": self.bootstrap,
            "BARNABAS_WAREHOUSE": str(self.warehouse),
            "BARNABAS_RETRIES": "20",
            "BARNABAS_RETRY_DELAY_S": "1",
        }

    def rows(self, table: str = "clicks") -> int:
        """Return the number of rows of a table; 0 if it does not exist."""
        command = [str(BARNABAS), "table", "status", table, "--warehouse", str(self.warehouse), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return int(json.loads(done.stdout)["records"]) if done.returncode == 0 else 0


@contextmanager
def running_broker(place: Place) -> Iterator[None]:
    """Run the broker until the block ends."""
    command = [str(BARNABAS), "up", "--port", str(place.port), "--data", str(place.folder / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            check(process.stdout.readline().startswith("ready"), "the broker starts")
            yield
        finally:
            process.terminate()


def check(is_right: bool, what: str, output: str = "") -> None:
    """Print a passed check; end the program after a failed one.

    :param output: the output of the scheduler, which a failed check prints.
    """
    sys.stdout.write(f"{'ok' if is_right else f'{output[-OUTPUT_MAX:]}FAILED'}: {what}\n")
    sys.stdout.flush()
    if not is_right:
        raise SystemExit(1)


def produce(place: Place, topic: str, count: int) -> None:
    """Add records to a topic, spread evenly over `DAYS`."""
    with Admin({"bootstrap.servers": place.bootstrap}) as admin:
        if topic not in admin.list_topics():
            admin.create_topic(topic, 2)
    with Producer(place.bootstrap) as producer:
        for day in sorted(DAYS * (count // len(DAYS))):
            at_ms = int((day + timedelta(hours=1)).timestamp() * 1000)
            producer.send(topic, b'{"page": "/home"}', timestamp_ms=at_ms)
        producer.flush()


def run(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command with exactly this environment."""
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


# --- cron and systemd ---------------------------------------------------------------------------------------


def crontab() -> tuple[dict[str, str], str]:
    """Return the variables and the command of the crontab, as cron reads them: `\\%` is a `%`."""
    lines = [line for line in (FOLDER / "crontab").read_text().splitlines() if line and not line.startswith("#")]
    variables = dict(line.split("=", 1) for line in lines[:-1])
    return variables, lines[-1].split(maxsplit=6)[6].replace("\\%", "%")


def try_cron(place: Place) -> None:
    variables, command = crontab()
    environment = {
        **{"HOME": str(place.folder), "LOGNAME": "barnabas"},
        **variables,
        **{"BARNABAS": str(place.command), "BARNABAS_BOOTSTRAP": place.bootstrap},
        **{"WAREHOUSE": str(place.warehouse), "LOG": str(place.folder / "loads.log")},
    }

    def tick() -> subprocess.CompletedProcess[str]:
        return run([variables["SHELL"], "-c", command], environment)

    place.marker.touch()
    with running_broker(place):
        produce(place, "clicks", PERSONS)
        check(tick().stdout == "" and place.rows() == 0, "cron: another load sends no mail")
        check(tick().stdout == "" and place.rows() == PERSONS, "cron: the next run loads")
        check(tick().stdout == "" and place.rows() == PERSONS, "cron: a further run adds nothing")
    check(tick().stdout == "" and place.rows() == PERSONS, "cron: a stopped broker sends no mail")
    log = (place.folder / "loads.log").read_text().splitlines()
    codes = [json.loads(line)["exit_code"] for line in log]
    check(codes == [4, 0, 0, 5], f"cron: the log has a document for each run, with the exit codes {codes}")
    environment["WAREHOUSE"] = "/proc/none"
    with running_broker(place):
        mail = tick().stdout
    check("/proc/none" in mail, f"cron: any other failure sends mail: {mail.strip()}")


def try_systemd(place: Place) -> None:
    unit = (FOLDER / "barnabas-load@.service").read_text()
    local = unit.replace("/opt/barnabas/bin/barnabas", str(place.command))
    local = local.replace("/var/lib/barnabas-loads/warehouse", str(place.warehouse))
    settings = dict(line.split("=", 1) for line in local.splitlines() if "=" in line and not line.startswith("#"))
    if shutil.which("systemd-analyze"):
        for name, text in (
            ("barnabas-load@clicks.service", local),
            ("barnabas-load@clicks.timer", (FOLDER / "barnabas-load@.timer").read_text()),
        ):
            (place.folder / name).write_text(text)
        files = [str(place.folder / f"barnabas-load@clicks.{kind}") for kind in ("service", "timer")]
        done = run(["systemd-analyze", "verify", *files], dict(os.environ))
        check(done.returncode == 0 and not done.stderr, f"systemd: verify has no complaint {done.stderr}")
        calendar = re.search(r"OnCalendar=(.*)", (FOLDER / "barnabas-load@.timer").read_text())
        assert calendar
        done = run(["systemd-analyze", "calendar", calendar[1]], dict(os.environ))
        check(done.returncode == 0, "systemd: the calendar is valid")
    else:
        sys.stdout.write("systemd-analyze is missing: the units are not verified\n")
    lines = (FOLDER / "load.env").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    environment = {"PATH": "/usr/bin:/bin", **variables, "BARNABAS_BOOTSTRAP": place.bootstrap}
    command = shlex.split(settings["ExecStart"].replace("%i", "clicks"))
    retried = set(map(int, settings["RestartForceExitStatus"].split()))
    place.marker.touch()
    with running_broker(place):
        produce(place, "clicks", PERSONS)
        codes = [run(command, environment).returncode for _ in range(3)]
        check(codes == [4, 0, 0] and place.rows() == PERSONS, f"systemd: loads once, with the exit codes {codes}")
    code = run(command, environment).returncode
    check(code == 5 and {4, 5} == retried, "systemd: the service restarts after the exit codes 4 and 5")


# --- Airflow and Dagster ------------------------------------------------------------------------------------


def environment_of(name: str) -> Path:
    """Create the environment of a scheduler unless it exists; return its folder of programs."""
    folder = CACHE_FOLDER / f"schedulers-{name}"
    if not (folder / ".complete").exists():
        uv("venv", "--quiet", "--clear", "--python", sys.executable, folder)
        uv("pip", "install", "--quiet", "--python", folder / "bin" / "python", PACKAGES[name])
        (folder / ".complete").touch()
    return folder / "bin"


def through_stopped_broker(place: Place, command: list[str], environment: Mapping[str, str]) -> str:
    """Run a command without a broker, and start the broker when a first try has ended with exit code 5.

    :return: the output of the command.
    """
    lines = []
    merged = subprocess.STDOUT
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=merged, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            if any(sign in line for sign in SIGNS_OF_A_RETRY):
                break
        with running_broker(place):
            lines.extend(process.stdout)
            process.wait(TIMEOUT_S)
    return "".join(lines)


def environment_for(name: str, place: Place) -> dict[str, str]:
    """Return the environment of a scheduler: it has the variables of its recipe, and none of this program's."""
    home = place.folder / name
    home.mkdir(exist_ok=True)
    return {
        **{"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(place.folder), "LANG": "C.UTF-8"},
        **{f"{name.upper()}_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "false"},
        **place.environment(),
    }


def try_airflow(place: Place) -> None:
    program = str(environment_of("airflow") / "airflow")
    environment = environment_for("airflow", place)
    dags = place.folder / "airflow" / "dags"
    dags.mkdir()
    shutil.copy(FOLDER / "airflow_loads.py", dags)

    def test(dag: str, at: str, **changed: str) -> str:
        done = run([program, "dags", "test", dag, at], {**environment, **changed})
        return f"{done.stdout}{done.stderr}"

    check(run([program, "db", "migrate"], environment).returncode == 0, "airflow: the database is ready")
    place.marker.touch()
    with running_broker(place):
        produce(place, "clicks", PERSONS)
        produce(place, "views", PERSONS)
        output = test("load_clicks", "2026-03-01T10:00:00")
        check(place.rows() == PERSONS, "airflow: the task loads", output)
        check(output.count(AIRFLOW_TRY) == 2, "airflow: it needed a retry", output)
        check(not place.marker.exists(), "airflow: the first try met another load")
        produce(place, "clicks", PERSONS)
        output = test("load_clicks", "2026-03-01T10:00:00")
        check('"repeated"' in output, "airflow: a repeated run reports the first one", output)
        check(place.rows() == PERSONS, "airflow: a repeated run loads nothing")
        output = test("load_clicks", "2026-03-01T11:00:00")
        check(place.rows() == 2 * PERSONS, "airflow: the next run loads the new records", output)
        output = test("load_clicks", "2026-03-01T12:00:00", BARNABAS_WAREHOUSE="/proc/none")
        check('"exit_code": 1,' in output, "airflow: a failure of the warehouse fails the task", output)
        check(output.count(AIRFLOW_TRY) == 1, "airflow: no retry, as no retry helps", output)
        output = test("views", "2026-03-01T10:00:00")
        check(place.rows("views") == PERSONS, "airflow: the asset loads", output)
        output = test("views", "2026-03-02T10:00:00")
        check("no new records of views" in output, "airflow: the asset is skipped without new records", output)
        produce(place, "clicks", PERSONS)
    output = through_stopped_broker(place, [program, "dags", "test", "load_clicks", "2026-03-01T13:00:00"], environment)
    check(place.rows() == 3 * PERSONS, "airflow: a retry loads when the broker is back", output)


def try_dagster(place: Place) -> None:
    program = str(environment_of("dagster") / "dagster")
    environment = environment_for("dagster", place)
    file = str(FOLDER / "dagster_loads.py")

    def command(asset: str, *options: str) -> list[str]:
        return [program, "asset", "materialize", "-f", file, "--select", asset, *options]

    def materialize(asset: str, *options: str, **changed: str) -> tuple[int, str]:
        done = run(command(asset, *options), {**environment, **changed})
        return done.returncode, f"{done.stdout}{done.stderr}"

    place.marker.touch()
    days = [("--partition", f"{day:%Y-%m-%d}") for day in DAYS]
    with running_broker(place):
        produce(place, "clicks", PERSONS)
        code, output = materialize("clicks")
        check(code == 0 and place.rows() == PERSONS, "dagster: the asset loads, after a retry", output)
        check(not place.marker.exists(), "dagster: the first try met another load")
        code, output = materialize("clicks")
        check(code == 0 and place.rows() == PERSONS, "dagster: the asset has nothing new", output)
        for number, day in enumerate(reversed(days), 1):
            code, output = materialize("clicks_by_day", *day)
            rows = place.rows("clicks_by_day")
            check(code == 0 and rows == number * PERSONS // 2, "dagster: a partition is a day of the topic", output)
        code, output = materialize("clicks_by_day", *days[0])
        rows = place.rows("clicks_by_day")
        check(code == 0 and rows == PERSONS, "dagster: a repeated partition loads nothing", output)
        code, output = materialize("clicks", BARNABAS_WAREHOUSE="/proc/none")
        check(code != 0 and "exit code 1:" in output, "dagster: a failure of the warehouse fails the run", output)
        check("STEP_UP_FOR_RETRY" not in output, "dagster: no retry, as no retry helps", output)
        produce(place, "clicks", PERSONS)
    output = through_stopped_broker(place, command("clicks"), environment)
    check(place.rows() == 2 * PERSONS, "dagster: a retry loads when the broker is back", output)


RECIPES: Mapping[str, Callable[[Place], None]] = {
    "cron": try_cron,
    "systemd": try_systemd,
    "airflow": try_airflow,
    "dagster": try_dagster,
}


def main() -> int:
    """Run the recipes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", help=f"default: {' '.join(RECIPES)}")
    chosen = parser.parse_args().recipes or list(RECIPES)
    if unknown := set(chosen) - set(RECIPES):
        parser.error(f"there is no recipe {', '.join(sorted(unknown))}; there are {', '.join(RECIPES)}")
    for name in chosen:
        with tempfile.TemporaryDirectory() as work, socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            probe.close()
            place = Place(Path(work), port, Path(work) / "barnabas", Path(work) / "busy")
            place.command.write_text(SOMETIMES_BUSY.format(marker=place.marker, barnabas=BARNABAS))
            place.command.chmod(0o755)
            RECIPES[name](place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
