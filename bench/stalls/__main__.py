"""The longest stall of a normal client while another client sends expensive requests.

    python -m bench.stalls                           every scenario, some minutes
    python -m bench.stalls roll-often create-topics  some scenarios
    python -m bench.stalls --list                    lists the scenarios
    python -m bench.stalls --json FILE               also writes the figures as data

Each scenario has its own broker in a separate process and folder. During the scenario, another process sends
ApiVersions to this broker every 5 ms. Its latency starts at the due time of the request. Afterwards, the same latency
is measured with an idle broker, for the same time but at most some seconds. This latency is the noise of the machine. A
scenario that exceeds its time limit is stopped and marked.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.arena import fresh_folder
from bench.broker_process import MeasuredBroker
from bench.figures import interruptible, parent_of, parser_of, refuse_unknown, show
from bench.processes import allow_open_files
from bench.progress import Progress
from bench.stalls import attacks, crowds, logs, report, scrapes
from bench.stalls.connection import ClosedError, Deadline, DeadlineError
from bench.stalls.pinger import Pinger
from bench.stalls.pings import Pings
from bench.stalls.report import Figures, Run
from bench.stalls.stage import Act, Scenario, Stage

SCENARIOS = {each.name: each for each in (*attacks.SCENARIOS, *logs.SCENARIOS, *crowds.SCENARIOS, *scrapes.SCENARIOS)}
DEADLINE_S = 30.0
PREPARE_LIMIT_S = 300.0
LEAD_S = 0.3
TAIL_S = 0.5
"""The time in seconds for which pings are sent before and after the scenario."""
IDLE_S_MAX = 5.0
DEAD_LIMIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Played:
    """One run of a scenario. It has the fields of `Run` except the pings to an idle broker."""

    pings: Pings
    ended: str
    seconds: float
    peak_mib: float


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = parser_of("bench.stalls", __doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="name of a scenario, see --list [all]")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds; the table has the median [1]")
    parser.add_argument(
        "--deadline", type=float, default=DEADLINE_S, help=f"time limit of each scenario in seconds [{DEADLINE_S:g}]"
    )
    asked = parser.parse_args(arguments)
    refuse_unknown(parser, asked.scenarios, SCENARIOS)
    return asked


def measure(scenario: Scenario, parent: Path, limit_s: float, idle_port: int) -> Run:
    """Run a scenario once, and then send pings to an idle broker.

    :raises Exception: if the scenario cannot be prepared.
    """
    played = play(scenario, parent, limit_s)
    return Run(played.pings, idle_pings(idle_port, played.seconds), played.ended, played.seconds, played.peak_mib)


def play(scenario: Scenario, parent: Path, limit_s: float, environment: Mapping[str, str] | None = None) -> Played:
    """Run a scenario once, without pings to an idle broker.

    :param environment: variables of the broker in addition to the environment of this process.
    :raises Exception: if the scenario cannot be prepared.
    """
    deadline = Deadline(PREPARE_LIMIT_S)
    with fresh_folder(parent) as folder, Stage(folder, deadline, scenario, environment) as stage:
        act = scenario.prepare(stage)
        with Pinger(stage.broker.port) as pinger:
            time.sleep(LEAD_S)
            deadline.set(limit_s)
            begun_s = time.perf_counter()
            ended = _ending(act, stage, limit_s)
            seconds = time.perf_counter() - begun_s
            time.sleep(TAIL_S)
            pings = pinger.finish()
        peak_mib = stage.broker.memory_mib_max if stage.broker.process.poll() is None else 0.0
    return Played(pings, ended, seconds, peak_mib)


def _ending(act: Act, stage: Stage, limit_s: float) -> str:
    try:
        return act()
    except DeadlineError:
        return f"ended after {limit_s:g} s"
    except (ClosedError, ConnectionError):
        return _death(stage.broker) or "refused: connection closed"


def _death(broker: MeasuredBroker) -> str:
    limit_s = time.monotonic() + DEAD_LIMIT_S
    while time.monotonic() < limit_s:
        if (code := broker.process.poll()) is not None:
            return f"the broker died ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"
        time.sleep(0.01)
    return ""


def idle_pings(port: int, seconds: float) -> Pings:
    """Ping an idle broker."""
    with Pinger(port) as pinger:
        time.sleep(LEAD_S + min(seconds, IDLE_S_MAX) + TAIL_S)
        return pinger.finish()


def measure_all(asked: argparse.Namespace, progress: Progress) -> Iterator[Figures]:
    """Run the scenarios one after the other."""
    parent = parent_of(asked)
    with fresh_folder(parent) as folder, MeasuredBroker(folder / "idle") as idle:
        for name in asked.scenarios or SCENARIOS:
            scenario, runs, problem = SCENARIOS[name], [], ""
            for number in range(asked.rounds):
                progress.say(f"{name}: run {number + 1}/{asked.rounds}")
                try:
                    runs.append(measure(scenario, parent, asked.deadline, idle.port))
                except Exception as error:  # noqa: BLE001  # a failed preparation must not stop the other scenarios
                    problem = f"{type(error).__name__}: {error}"
                    progress.say(f"{name} failed: {problem}")
                    break
                progress.say(f"{name}: {report.worst_of(runs[-1].pings)} ms; {runs[-1].ended}")
            yield Figures(name, scenario.title, runs, problem)


def main() -> int:
    """Run the command line. Return the exit code."""
    asked = parse()
    if asked.list:
        for scenario in SCENARIOS.values():
            sys.stdout.write(f"{scenario.name:26} {scenario.title}\n")
        return 0
    allow_open_files()
    done: list[Figures] = []
    with interruptible() as interrupted:
        for figures in measure_all(asked, Progress()):
            done.append(figures)
    show(asked, "bench.stalls", report.lines(done), report.data(done))
    return interrupted.exit_code or any(figures.problem for figures in done)


if __name__ == "__main__":
    sys.exit(main())
