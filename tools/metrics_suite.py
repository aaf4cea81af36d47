"""Let Prometheus scrape a cluster under load, and check the dashboards and the alert rules in docs/grafana/.

    JAVA_HOME=$(tools/java_home.sh) .venv/bin/python tools/metrics_suite.py

The program starts three brokers with ZooKeeper, a single broker, a mirror to it, a load, an audit, a registry, and
clients. It then checks:

1. `promtool` accepts the rules.
2. Each dashboard expression has a result. Each alert rule also has a result if its comparison is omitted.
3. No alert fires.
4. After a broker is killed, exactly the alerts of `AT_A_KILL` fire. After its restart no alert fires.

The program uses Prometheus from the path, or from Debian's package, unpacked into the cache directory.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from published_tests import CACHE_FOLDER

import barnabas

ROOT = Path(__file__).parents[1]
GRAFANA = ROOT / "docs" / "grafana"
BARNABAS = (sys.executable, "-m", "barnabas.cli.main")
BROKERS = (1, 2, 3)
KILLED = 3
AT_A_KILL = {"BarnabasBrokerDown", "BarnabasUnderReplicated", "BarnabasUnderMinIsr", "BarnabasPartitionsOffline"}
OF_THE_MACHINE = {"BarnabasEventLoopSlow", "BarnabasFsyncSlow"}
"""Alerts that a slow or busy machine may cause at any time."""
COMPARISON = re.compile(r"\s(?:==|!=|>|<)\s[\d.]+$")
VARIABLES = {"$broker": ".*", "$topic": ".*", "$group": ".*", "$__rate_interval": "1m"}
FOR = re.compile(r"^( +for: ).*$", re.MULTILINE)
LIMIT_S = 180.0
LOOK_S = 0.5


class Prometheus:
    """A Prometheus server that scrapes every second.

    :param targets: the addresses of each job.
    """

    def __init__(self, programs: Path, folder: Path, port: int, targets: Mapping[str, Sequence[str]]) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"
        rules = folder / "alerts.yaml"
        # shorten the `for` duration of all rules, so that alerts fire within seconds
        rules.write_text(FOR.sub(r"\g<1>3s", (GRAFANA / "alerts.yaml").read_text(encoding="utf-8")), encoding="utf-8")
        jobs = [{"job_name": job, "static_configs": [{"targets": [*each]}]} for job, each in targets.items()]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        self.command = [
            str(programs / "prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of a response of the HTTP API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def has_result(self, expression: str) -> bool:
        """Return whether an expression has a result now."""
        try:
            return bool(self.ask("query", query=expression)["result"])
        except urllib.error.HTTPError as error:
            raise SystemExit(f"Prometheus rejects {expression}: {error.read().decode()}") from None

    def firing(self) -> set[str]:
        """Return the firing alerts, except the alerts in `OF_THE_MACHINE`."""
        alerts = self.ask("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"} - OF_THE_MACHINE

    def rules(self) -> list[str]:
        """Return the expressions of the alert rules without their comparisons."""
        groups = self.ask("rules")["groups"]
        return [COMPARISON.sub("", rule["query"]) for group in groups for rule in group["rules"]]


def find_programs() -> Path:
    """Return the folder with `prometheus` and `promtool`."""
    if (found := shutil.which("promtool")) is not None:
        return Path(found).parent
    folder = CACHE_FOLDER / "prometheus"
    if not (folder / "usr" / "bin" / "promtool").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, check=True)
        (package,) = folder.glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", package.name, "."], cwd=folder, check=True)
    return folder / "usr" / "bin"


def wait_until(is_so: Callable[[], object], what: Callable[[], str]) -> None:
    """Wait until a condition is true, at most `LIMIT_S` seconds.

    :param what: returns the description of the condition for the error message.
    """
    due_s = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() >= due_s:
            raise SystemExit(f"the condition was not met within {LIMIT_S:g} s: {what()}")
        time.sleep(LOOK_S)


@contextmanager
def running(
    command: Sequence[str], log: Path, ready: str = "", environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the block ends.

    :param ready: the beginning of the line that the program prints when it is ready; "" to skip the wait.
    :param environment: variables in addition to the environment of this process.
    """
    variables = os.environ | (environment or {})
    with (
        log.open("a") as written,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written, text=True, env=variables) as process,
    ):
        try:
            assert process.stdout
            if ready and not process.stdout.readline().startswith(ready):
                raise SystemExit(f"{' '.join(command)} did not start:\n{log.read_text()}")
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


class System:
    """All processes of the check, with their data below one directory."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        sys.path.insert(0, str(ROOT))
        # this module is checked by pytest, not by mypy
        zookeeper = importlib.import_module("tests.support.zookeeper_servers")
        self._free_port: Callable[[], int] = importlib.import_module("tests.support.ports").free_port
        servers = zookeeper.start_servers(folder / "zookeeper")
        stack.callback(servers.stop)
        self.zookeeper: str = servers.address
        self._settings = {
            "zookeeper_connect": self.zookeeper,
            "zookeeper_session_timeout_ms": "6000",
            "offsets_topic_replication_factor": str(len(BROKERS)),
            "default_replication_factor": str(len(BROKERS)),
        }
        self.ports = {number: (self._free_port(), self._free_port()) for number in (*BROKERS, 0)}
        """The ports for clients and for metrics. Broker 0 is a separate cluster."""
        self.others = {name: self._free_port() for name in ("mirror", "load", "registry", "audit")}
        """The ports for metrics."""
        self._brokers: dict[int, subprocess.Popen[str]] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[number][0]}" for number in BROKERS)

    @property
    def targets(self) -> dict[str, list[str]]:
        """The addresses of metrics by job."""
        brokers = [f"127.0.0.1:{self.ports[number][1]}" for number in BROKERS]
        return {"barnabas": brokers, "pipeline": [f"127.0.0.1:{port}" for port in self.others.values()]}

    def start_broker(self, number: int) -> None:
        """Start or restart a broker."""
        port, http = self.ports[number]
        command = [*BARNABAS, "up", "--id", str(number), "--port", str(port), "--http", str(http)]
        command += ["--data", str(self._folder / f"broker-{number}")]
        settings = self._settings if number else {}
        variables = {f"BARNABAS_{name.upper()}": value for name, value in settings.items()}
        log = self._folder / f"broker-{number}.log"
        self._brokers[number] = self._stack.enter_context(running(command, log, "ready", variables))

    def start_brokers(self) -> None:
        for number in self.ports:
            self.start_broker(number)

    def kill_broker(self, number: int) -> None:
        """Kill a broker with SIGKILL."""
        self._brokers[number].kill()
        self._brokers[number].wait()

    def readiness(self, number: int) -> str:
        """Return the response of a broker's `/readyz`."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[number][1]}/readyz", timeout=30) as answer:
                return str(answer.read().decode().strip())
        except urllib.error.HTTPError as error:
            return error.read().decode().strip()

    def start(self) -> None:
        """Start all processes and clients."""
        self.start_brokers()
        with barnabas.Admin(self.bootstrap) as admin:
            admin.create_topic("clicks", 6)
            admin.create_topic("strict", 3, config={"min.insync.replicas": "3"})
            admin.create_topic("single", 3, replication_factor=1)
        single, every = f"127.0.0.1:{self.ports[0][0]}", ("--every", "5s", "--format", "json")
        warehouse = str(self._folder / "warehouse")
        self._run("mirror", "--from", self.bootstrap, "--to", single, "--topics", "clicks")
        registry = self._free_port()
        self._run("registry", "--bootstrap", single, "--port", str(registry))
        self._run("load", "clicks", "--bootstrap", self.bootstrap, "--warehouse", warehouse, *every)
        self._run("audit", "clicks", "--bootstrap", self.bootstrap, "--watch", "2")
        stop = threading.Event()
        threads = [threading.Thread(target=work, args=(self.bootstrap, stop)) for work in (_produce, _consume)]
        threads.append(threading.Thread(target=_ask_registry, args=(registry, stop)))
        for thread in threads:
            thread.start()
        for thread in threads:
            self._stack.callback(thread.join)
        self._stack.callback(stop.set)

    def _run(self, name: str, *arguments: str) -> None:
        command = [*BARNABAS, name, *arguments, "--http", str(self.others[name])]
        self._stack.enter_context(running(command, self._folder / f"{name}.log"))


def _produce(bootstrap: str, stop: threading.Event) -> None:
    """Produce to all topics until `stop` is set."""
    with barnabas.Producer(bootstrap, acks="all", delivery_timeout_ms=2_000, audit=True) as producer:
        number = 0
        while not stop.wait(0.005):
            number += 1
            with contextlib.suppress(barnabas.BarnabasError):
                producer.send(("clicks", "strict", "single")[number % 3], b'{"n": %d}' % number)


def _consume(bootstrap: str, stop: threading.Event) -> None:
    with barnabas.Consumer(bootstrap, group="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["clicks", "single"])
        while not stop.is_set():
            with contextlib.suppress(barnabas.BarnabasError):
                consumer.poll(timeout_s=0.2)
                consumer.commit()


def _ask_registry(port: int, stop: threading.Event) -> None:
    while not stop.wait(LOOK_S):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/subjects", timeout=5):
            pass


def expressions_of_dashboards() -> list[str]:
    """Return the expressions of all dashboards, with their variables replaced by values."""
    tool = runpy.run_path(str(ROOT / "tools" / "dashboards.py"))
    found = []
    for name in tool["DASHBOARDS"]:
        for panel in json.loads((GRAFANA / f"{name}.json").read_text(encoding="utf-8"))["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for variable, value in VARIABLES.items():
                    expression = expression.replace(variable, value)
                found.append(expression)
    return found


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def check(prometheus: Prometheus, system: System) -> None:
    """Run the checks 2 to 4."""
    expressions = expressions_of_dashboards()
    rules = prometheus.rules()
    left = [*expressions, *rules]

    def look() -> bool:
        left[:] = [each for each in left if not prometheus.has_result(each)]
        return not left

    wait_until(look, lambda: "these have no result:\n" + "\n".join(left))
    say(f"{len(expressions)} expressions of dashboards and {len(rules)} rules have results")
    wait_until(lambda: not prometheus.firing(), lambda: f"these alerts fire: {prometheus.firing()}")
    say("no alert fires")
    system.kill_broker(KILLED)
    wait_until(lambda: prometheus.firing() >= AT_A_KILL, lambda: f"these alerts fire: {prometheus.firing()}")
    if others := prometheus.firing() - AT_A_KILL:
        raise SystemExit(f"unexpected alerts are firing: {others}")
    say(f"broker {KILLED} was killed, and {', '.join(sorted(AT_A_KILL))} fire")
    system.start_broker(KILLED)
    wait_until(lambda: system.readiness(KILLED) == "ok", lambda: f"broker {KILLED}: {system.readiness(KILLED)}")
    wait_until(lambda: not prometheus.firing(), lambda: f"these alerts fire: {prometheus.firing()}")
    say(f"broker {KILLED} is back and ready, and no alert fires")


def main() -> int:
    """Run all checks."""
    programs = find_programs()
    subprocess.run([str(programs / "promtool"), "check", "rules", str(GRAFANA / "alerts.yaml")], check=True)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        system = System(folder, stack)
        system.start()
        port: int = importlib.import_module("tests.support.ports").free_port()
        prometheus = Prometheus(programs, folder, port, system.targets)
        stack.enter_context(running(prometheus.command, folder / "prometheus.log"))
        wait_until(lambda: _answers(prometheus), (folder / "prometheus.log").read_text)
        check(prometheus, system)
    return 0


def _answers(prometheus: Prometheus) -> bool:
    with contextlib.suppress(OSError):
        return bool(prometheus.rules())
    return False


if __name__ == "__main__":
    sys.exit(main())
