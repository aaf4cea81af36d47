"""Where a scenario plays: ZooKeeper, three brokers, clients at work, and the history of what they saw."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import barnabas
from barnabas.laboratory.history import Anomaly, History, Report, check, picture, read_to_the_end
from barnabas.laboratory.history.report import text
from tests.faults.doubled import what_is_doubled
from tests.faults.ensemble import Ensemble
from tests.faults.fault_cluster import FaultCluster
from tests.faults.load import PARTITIONS, Load
from tests.faults.telling import told
from tests.support.reading import wait_until

TOPIC = "numbers"
CHROOT = "/faults"
RECORDS, RECORDS_SHORT = 300, 100
"""So many more of each partition are waited for between two faults."""
RECOVERY_S_MAX = 180.0
"""After so long nobody believes any more that it recovers by itself, on a slow machine that others use as well: there
the start of a broker alone may take ten seconds. It is no promise, and nothing that is lost waits for it."""
READ_TO_THE_END_S = 180.0
DOUBLED_MAX = 10
"""So many lines of `doubled.txt` are told where the run is."""


@dataclass(frozen=True)
class Scenario:
    """What is done to a cluster, and must not harm it.

    Attributes:
        name: A number as in docs/explanation/reliability.md, or a word.
        title: What befalls the cluster, in a few words.
        play: Does it, and waits until the clients' work goes on.
        servers: How many ZooKeeper servers there are.
        settings: Of the brokers, beside those of `fault_cluster`.
        topic: Settings of the topic.
        loses_answers: As for `FaultCluster`.
        is_cut: Whether the beginning of logs is deleted, of each replica at another place.
    """

    name: str
    title: str
    play: Callable[[Stage], None]
    servers: int = 1
    settings: dict[str, str] = field(default_factory=dict)
    topic: dict[str, str] = field(default_factory=dict)
    loses_answers: bool = False
    is_cut: bool = False


class Stage:
    """What a scenario may use.

    Attributes:
        random: Draws everything that a scenario leaves to chance.
        is_short: Whether the run is to be as short as its meaning allows.
        cluster: The brokers and the links between them.
        ensemble: ZooKeeper, of one server or several.
        history: What the clients do and see.
        load: The clients.
        topics: All that the history is about, and how many partitions each has.
    """

    def __init__(
        self, cluster: FaultCluster, ensemble: Ensemble, history: History, folder: Path, seed: int, *, is_short: bool
    ) -> None:
        self.random = random.Random(seed)
        self.is_short = is_short
        self.cluster = cluster
        self.ensemble = ensemble
        self.history = history
        self.topic = TOPIC
        self.topics = {TOPIC: PARTITIONS}
        self.notes: list[str] = []
        self.outages: list[tuple[float, float]] = []
        """When each of those faults began, or ended, after which clients' work had to go on, and when it did."""
        self.load = Load(history, cluster.bootstrap, TOPIC, folder, is_light=is_short)

    def tell(self, what: str) -> None:
        """Write down what is done; the lines of the run and the history have it."""
        self.history.event(what)
        sys.stderr.write(f"{self.history.now():9.3f} {what}\n")
        sys.stderr.flush()

    def note(self, what: str) -> None:
        """Say in the run's line what is of interest; also told."""
        self.notes.append(what)
        self.tell(what)

    def progress(self) -> None:
        """Wait until some more records of each partition are acknowledged or read."""
        records = RECORDS_SHORT if self.is_short else RECORDS
        wanted = {place: self.history.highest(place) + records for place in self.load.places}

        def missing() -> str:
            behind = [
                f"{place[1]}: {self.history.highest(place)} of {offset}"
                for place, offset in wanted.items()
                if self.history.highest(place) < offset
            ]
            return ", ".join(behind)

        wait_until(lambda: not missing(), lambda: f"the work goes on; offsets: {missing()}", RECOVERY_S_MAX)

    @contextlib.contextmanager
    def recovery(self) -> Iterator[None]:
        """What begins in the body must be over by itself: how long a send waited at most is kept."""
        began = self.history.now()
        yield
        self.progress()
        self.outages.append((began, self.history.now()))

    def leader(self) -> int:
        """Return who leads partition 0, and wait until somebody does."""
        return self.cluster.wait_for_another_leader(self.topic)

    def lose(self, number: int, *, in_order: bool = False) -> None:
        """Kill a broker, or stop it in order; when the work goes on, start it again and wait until all are in sync."""
        with self.recovery():
            self.tell(f"broker {number} is {'stopped in order' if in_order else 'killed'}")
            broker = self.cluster.brokers[number]
            if in_order:
                broker.stop()
            else:
                broker.kill()
        broker.restart()
        self.in_sync()

    def change_leader_twice(self) -> None:
        """Kill the leader, and when that is back and in sync, stop the next one in order."""
        self.lose(self.leader())
        self.lose(self.leader(), in_order=True)

    def in_sync(self, count: int = 3) -> None:
        """Wait until so many replicas of each partition are in sync."""
        self.cluster.wait_until_in_sync(self.topic, count)

    def log_of(self, number: int) -> str:
        """Return what a broker has logged so far."""
        return self.cluster.brokers[number].log.read_text(errors="replace")

    def wait_for_line(self, number: int, words: str, seen: int = 0) -> None:
        """Wait until a broker has logged these words more often than `seen`."""
        wait_until(lambda: self.log_of(number).count(words) > seen, f"broker {number} says: {words}")


@dataclass
class Result:
    """How a run ended.

    Attributes:
        problems: What went wrong; none, if all is well.
        records: How many records were acknowledged.
        unknown: Of how many sends nobody knows.
        recoveries_s: How long each recovery took.
        notes: What is of interest.
    """

    problems: list[str] = field(default_factory=list)
    records: int = 0
    unknown: int = 0
    recoveries_s: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(scenario: Scenario, seed: int, folder: Path, *, is_short: bool) -> Result:
    """Play a scenario in a folder that does not exist yet, and return how it ended. Nothing runs on afterwards.

    Everything that is known of the run stays in the folder: the history, its report and its picture, the brokers' logs.
    """
    folder.mkdir(parents=True)
    result = Result()
    path = folder / "history"
    try:
        with History(path) as history, _cluster(scenario, folder) as (cluster, ensemble):
            stage = Stage(cluster, ensemble, history, folder, seed, is_short=is_short)
            result.notes = stage.notes
            _play(scenario, stage)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the run came to
        traceback.print_exception(error)
        result.problems.append(told(error))
        if path.exists():
            _judge(path, check(path), result)
        return result
    report = check(path)
    _judge(path, report, result)
    result.problems += [f"{place} was not read to its end" for place in report.unread]
    result.recoveries_s = _recoveries(path, stage.outages)
    result.problems += [f"a recovery took {each:.1f} s" for each in result.recoveries_s if each > RECOVERY_S_MAX]
    result.problems += _complaints(folder)
    return result


@contextlib.contextmanager
def _cluster(scenario: Scenario, folder: Path) -> Iterator[tuple[FaultCluster, Ensemble]]:
    with contextlib.closing(Ensemble(folder / "zookeeper", scenario.servers)) as ensemble:
        cluster = FaultCluster(
            folder, ensemble.servers, CHROOT, scenario.settings, loses_answers=scenario.loses_answers
        )
        with contextlib.closing(cluster):
            cluster.start()
            with barnabas.Admin(cluster.bootstrap) as admin:
                admin.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2", **scenario.topic})
            cluster.wait_until_in_sync(TOPIC, 3)
            yield cluster, ensemble


def _play(scenario: Scenario, stage: Stage) -> None:
    stage.progress()
    scenario.play(stage)
    stage.tell("all faults end")
    stage.ensemble.heal()
    stage.cluster.heal()
    stage.progress()
    stage.in_sync()
    stage.load.stop()
    stage.tell("the clients have stopped")
    for client in stage.load.left():
        stage.note(f"{client} did not close")
    read_to_the_end(stage.history, stage.cluster.bootstrap, stage.topics, timeout_s=READ_TO_THE_END_S)
    if scenario.is_cut:
        _wait_until_same_ends(stage)
    else:
        for topic, partitions in stage.topics.items():
            stage.cluster.wait_until_same(topic, partitions)


def _wait_until_same_ends(stage: Stage) -> None:
    """Wait until all replicas have stored the same log start, have deleted all segments before it, and are the same
    byte for byte from where the last of them begins."""

    def are_same(partition: int) -> bool:
        numbers = list(stage.cluster.brokers)
        starts = {stage.cluster.stored_log_start(number, TOPIC, partition) for number in numbers}
        second = [stage.cluster.segment_starts(number, TOPIC, partition)[1:2] for number in numbers]
        contents = [stage.cluster.content(number, TOPIC, partition) for number in numbers]
        shortest = min(contents, key=len)
        is_deleted = all(base > max(starts) for bases in second for base in bases)
        return len(starts) == 1 and is_deleted and all(each.endswith(shortest) for each in contents)

    wait_until(lambda: all(map(are_same, range(PARTITIONS))), "the replicas begin where they must, and end alike")


def _judge(path: Path, report: Report, result: Result) -> None:
    told = text(report)
    path.with_name("report.txt").write_text(told + "\n", encoding="utf-8")
    result.records = report.sends["ok"]  # type: ignore[index]
    result.unknown = report.sends["info"]  # type: ignore[index]
    result.problems += [f"{finding.anomaly}: {finding.count}: {finding.example}" for finding in report.findings]
    if any(finding.anomaly is Anomaly.DUPLICATE for finding in report.findings):
        doubled = what_is_doubled(path.parent)
        path.with_name("doubled.txt").write_text("\n".join(doubled) + "\n", encoding="utf-8")
        result.problems += doubled[:DOUBLED_MAX]
    if not report.ok:
        path.with_name("picture.svg").write_text(picture(report), encoding="utf-8")


def _recoveries(path: Path, outages: list[tuple[float, float]]) -> list[float]:
    """Return for each outage how long the send that waited longest waited for its acknowledgement since it began."""
    question = "SELECT max(ended - max(started, ?)) FROM sends WHERE outcome = 'ok' AND ended > ? AND started < ?"
    with contextlib.closing(sqlite3.connect(path)) as database:
        return [database.execute(question, (began, began, ended)).fetchone()[0] or 0.0 for began, ended in outages]


def _complaints(folder: Path) -> list[str]:
    """Return what no broker ever logs if all is well, whatever befalls it."""
    return [
        f"{log.name} has a traceback"
        for log in folder.glob("broker-*.log")
        if "Traceback" in log.read_text(errors="replace")
    ]
