"""The compared workloads by name. Each workload has experiments. A turn of an experiment runs one side once.

Each turn has a new broker process. Addresses and hash seeds differ between processes, so their effects average out.
Each side uses its own `barnabas perf`. Both sides use confluent-kafka and the clients of W14, W15 and `partitions` from
the checkout. The workloads are defined in `bench/workloads` (W1 to W12), `bench/stalls` (W14), `bench/groups.py` (W15,
commits of 50 clients), `bench/partitions.py` (`partitions`, `recovery`) and `bench/compaction`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from barnabas.net.free_port import lasting_ports
from barnabas.protocol.messages.metadata import MetadataRequest
from bench import groups, partitions
from bench.broker_process import MeasuredBroker
from bench.compare.sides import CHECKOUT, Side
from bench.compare.verdicts import Measurement
from bench.drivers.barnabas_perf import BarnabasPerf
from bench.drivers.driver import flag_list
from bench.drivers.job import Job, Outcome, parse_report
from bench.processes import ClientError, cpu_s, run_client
from bench.scraper import Scraper
from bench.stalls.__main__ import SCENARIOS, play
from bench.stalls.connection import frame
from bench.stalls.crowds import topic_names
from bench.workloads.paper import BATCH, SIZE

TURN_LIMIT_S = 120.0
LONG_LIMIT_S = 300.0
WARM_UP_SHARE = 0.1
RECORDS_MIN = 1_000
LATENCY_RATE = 10_000
COMMITTING_S = 5.0
SCRAPES_PER_S = 10.0
PAGES_PER_S = 1.0
"""The rate at which the figures of the overview are read. An open page reads them every 5 s, so this is five pages."""
STALL_LIMIT_S = 30.0
STALLS = (
    *("join-empty-protocols", "entries-metadata", "compress-expanding", "large-produce", "large-batch"),
    *("create-topics", "list-partitions", "fetch-partitions", "rebalance-groups", "wake-polls"),
)
"""The default scenarios of W14. In these scenarios the broker responds to requests. `W14:NAME` runs any other
scenario."""
UP = ("up", "--port", "0", "--data", "folder")
STALL_S = {"create-topics": 12.0, "list-partitions": 30.0, "fetch-partitions": 30.0}
"""The approximate duration of a turn of these scenarios, including the preparation. All other scenarios take
`STALL_USUAL_S`."""
STALL_USUAL_S = 5.0
PROBE = "127.0.0.1:1"

Results = Mapping[str, Measurement]


@dataclass(frozen=True, slots=True)
class Case:
    """One measured value of a turn.

    :param is_rate: True if larger is better, False if smaller is better.
    """

    name: str
    unit: str
    is_rate: bool = False


@dataclass(frozen=True, slots=True)
class Experiment:
    """One case of a workload, which each side runs once per turn.

    :param name: the name within the workload, such as `send` in `W4:send`.
    :param turn: runs a side in a folder, and returns the measurements by case name.
    :param turn_s: the approximate duration of a turn.
    :param needs: the commands of `barnabas` that both sides must have, with their options.
    :param prepare: fills a directory once per side, for all turns of the side. With None, each turn has an empty
    directory.
    """

    workload: str
    name: str
    cases: Sequence[Case]
    turn: Callable[[Side, Path], Results]
    turn_s: float
    needs: Sequence[Sequence[str]] = (UP,)
    prepare: Callable[[Side, Path], None] | None = None
    prepare_s: float = 0.0
    limit_s: float = TURN_LIMIT_S

    @property
    def title(self) -> str:
        """The name for the command line, such as `W4:send`."""
        return f"{self.workload}:{self.name}"


class Load:
    """A client under full load, or at a fixed rate.

    :param mode: the mode of `barnabas perf`, or `confluent`.
    """

    def __init__(self, mode: str, job: Job) -> None:
        self._mode = mode
        self.job = job

    def needs(self) -> Sequence[Sequence[str]]:
        """Return the commands of `barnabas` that the load uses."""
        own = [] if self._mode == "confluent" else [self._perf(PROBE, replace(self.job, topic="probe"))]
        return (UP, *own)

    def run(self, side: Side, broker: MeasuredBroker, job: Job) -> Outcome:
        """Run the load once on an existing topic.

        :raises ClientError: if the client fails.
        """
        if self._mode == "confluent":
            command = [sys.executable, "-m", "bench.clients.confluent", job.action]
            command += flag_list({"--bootstrap": broker.bootstrap, "--topic": job.topic, "--records": job.records})
            command += flag_list({"--size": job.size, "--partitions": job.partitions, "--acks": job.acks})
        else:
            command = side.command(self._perf(broker.bootstrap, job))
        outcome = parse_report(run_client(command, TURN_LIMIT_S).output)
        return replace(outcome, uncounted=round(job.rate or 0))  # the warm-up of `perf latency`: one second

    def measure(self, side: Side, broker: MeasuredBroker, job: Job) -> tuple[Outcome, float]:
        """Run the load once. Return its result, and the broker's CPU seconds per million records."""
        before_s = cpu_s(broker.process.pid)
        outcome = self.run(side, broker, job)
        used_s = cpu_s(broker.process.pid) - before_s
        if not outcome.records:
            raise ClientError("the client reports no records")
        return outcome, used_s * outcome.counted_share / outcome.records * 1e6

    def _perf(self, address: str, job: Job) -> list[str]:
        return BarnabasPerf("", self._mode).arguments(address, job)


def warm_up_of(job: Job) -> Job:
    """Return the part of a job that warms up each broker."""
    return replace(job, records=max(RECORDS_MIN, round(job.records * WARM_UP_SHARE)), topic="warm-up")


def loaded(
    workload: str, name: str, load: Load, turn_s: float, scrapes_per_s: float = 0.0, *, with_console: bool = False
) -> Experiment:
    """Return the experiment that measures a load of produced records.

    :param scrapes_per_s: the rate at which the metrics of the checkout are scraped. The base is not scraped, because it
        may have no metrics.
    :param with_console: True if the overview of a console is open for the broker of the checkout.
    """
    is_latency = load.job.action == "latency"
    case = Case(name, "ms", is_rate=False) if is_latency else Case(name, "records/s", is_rate=True)

    def turn(side: Side, folder: Path) -> Results:
        broker = MeasuredBroker(folder / "data", environment=side.environment)
        with ExitStack() as stack:
            job, first = replace(load.job, topic="measured"), warm_up_of(load.job)
            if is_scraped := scrapes_per_s and side.title == CHECKOUT:
                (port,) = lasting_ports("127.0.0.1", 1)
                broker.more_arguments = ("--http", str(port))
            stack.enter_context(broker)
            partitions.create_topics(broker, [job.topic, first.topic], job.partitions)
            if not is_latency:  # latency jobs have their own warm-up
                load.run(side, broker, first)
            if is_scraped:
                stack.enter_context(Scraper(port, "/metrics", scrapes_per_s))
            if with_console and side.title == CHECKOUT:
                stack.enter_context(open_console(side, broker.bootstrap))
            outcome, used_s = load.measure(side, broker, job)
            broker.kill()  # nobody needs its data
        return {name: Measurement(outcome.latency["p50_ms"] if is_latency else outcome.records_per_s, used_s)}

    return Experiment(workload, name, [case], turn, turn_s, load.needs())


@contextmanager
def open_console(side: Side, bootstrap: str) -> Iterator[None]:
    """Run a console with pages that show the overview, until the block ends."""
    (port,) = lasting_ports("127.0.0.1", 1)
    command = side.command(["console", "-b", bootstrap, "--port", str(port)])
    console = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert console.stdout is not None
        if not console.stdout.readline().startswith(b"ready "):
            raise ClientError("the console did not start")
        with Scraper(port, "/overview/figures", PAGES_PER_S):
            yield
    finally:
        console.terminate()
        console.communicate(timeout=TURN_LIMIT_S)


def read(workload: str, name: str, load: Load, turn_s: float) -> Experiment:
    """Return the experiment that measures a consumer. confluent-kafka writes the records once per side."""
    job = replace(load.job, topic="measured")

    def prepare(side: Side, folder: Path) -> None:
        filling = replace(job, action="produce", acks="1")
        with MeasuredBroker(folder / "data", environment=side.environment) as broker:
            partitions.create_topics(broker, [job.topic], job.partitions)
            Load("confluent", filling).run(side, broker, filling)

    def turn(side: Side, folder: Path) -> Results:
        with MeasuredBroker(folder / "data", environment=side.environment) as broker:
            load.run(side, broker, replace(warm_up_of(job), topic=job.topic))
            outcome, used_s = load.measure(side, broker, job)
        return {name: Measurement(outcome.records_per_s, used_s)}

    case = Case(name, "records/s", is_rate=True)
    return Experiment(workload, name, [case], turn, turn_s, load.needs(), prepare, prepare_s=12.0)


def stall(name: str) -> Experiment:
    """Return the experiment that runs a scenario of `bench.stalls` and measures the longest wait of another client."""

    def turn(side: Side, folder: Path) -> Results:
        played = play(SCENARIOS[name], folder, STALL_LIMIT_S, side.environment)
        if played.ended.startswith(("ended after", "the broker died")):
            raise ClientError(played.ended)
        return {name: Measurement(played.pings.worst_ms)}

    turn_s = STALL_S.get(name, STALL_USUAL_S)
    return Experiment("W14", name, [Case(name, "ms")], turn, turn_s, limit_s=LONG_LIMIT_S)


def commits(seconds: float) -> Experiment:
    """Return the experiment that measures W15: commits of consumer groups."""
    rate = Case(f"commits of {groups.CLIENTS} clients", "commits/s", is_rate=True)
    wait = Case("worst wait of another client", "ms")

    def turn(side: Side, folder: Path) -> Results:
        figures = groups.measure_commits(folder / "data", seconds, side.environment)
        return {
            rate.name: Measurement(figures.commits_per_s, figures.broker_cpu_us),
            wait.name: Measurement(figures.worst_ms),
        }

    return Experiment("W15", "commits", [rate, wait], turn, seconds + 3)


def start() -> Experiment:
    """Return the experiment that measures the start of a broker with an empty log directory."""
    case = Case("time to ready", "s")

    def turn(side: Side, folder: Path) -> Results:
        with MeasuredBroker(folder / "data", environment=side.environment) as broker:
            broker.kill()
            return {case.name: Measurement(broker.ready_s)}

    return Experiment("start", "start", [case], turn, 0.7)


def memory(records: int) -> Experiment:
    """Return the experiment that measures resident memory: after the start of the broker, and after writing and reading
    records."""
    after_start, after_load = Case("after start", "MiB"), Case("after a load", "MiB")
    writing = Load("send", Job("produce", records, topic="measured"))
    reading = Load("records", Job("consume", records, topic="measured"))

    def turn(side: Side, folder: Path) -> Results:
        with MeasuredBroker(folder / "data", environment=side.environment) as broker:
            at_start = broker.memory_mib
            partitions.create_topics(broker, [writing.job.topic], writing.job.partitions)
            for load in (writing, reading):
                load.run(side, broker, load.job)
            at_end = broker.memory_mib
            broker.kill()
        return {after_start.name: Measurement(at_start), after_load.name: Measurement(at_end)}

    needs = (*writing.needs(), *reading.needs())
    return Experiment("memory", "memory", [after_start, after_load], turn, 5.0, needs)


def many_partitions(topics: int, each: int) -> Experiment:
    """Return the experiment that measures many partitions with one record each: broker start, memory, and a Metadata
    request."""
    ready, resident, listed = Case("start", "s"), Case("memory after start", "MiB"), Case("Metadata request", "ms")

    def prepare(side: Side, folder: Path) -> None:
        with MeasuredBroker(folder / "data", environment=side.environment) as broker:
            partitions.create_topics(broker, topic_names(topics), each)
            partitions.write_to_all(broker, topics, each)
            broker.stop(LONG_LIMIT_S)

    def turn(side: Side, folder: Path) -> Results:
        with MeasuredBroker(folder / "data", environment=side.environment) as broker:
            at_start = broker.memory_mib
            seconds = partitions.seconds_of(broker, frame(MetadataRequest(topics=None), 7))
            broker.stop(LONG_LIMIT_S)  # shut down cleanly for the next start
        return {
            ready.name: Measurement(broker.ready_s),
            resident.name: Measurement(at_start),
            listed.name: Measurement(seconds * 1000),
        }

    cases = [ready, resident, listed]
    name = "partitions"
    return Experiment(name, name, cases, turn, 10.0, (UP,), prepare, prepare_s=40.0, limit_s=LONG_LIMIT_S)


def stored(load: Load, records_before: int, turn_s: float) -> Experiment:
    """Return the experiment that measures appends to a large log. Each turn makes the log larger."""
    job = replace(load.job, topic="measured")

    def prepare(side: Side, folder: Path) -> None:
        before = replace(job, records=records_before)
        with MeasuredBroker(folder / "data", environment=side.environment) as broker:
            partitions.create_topics(broker, [job.topic], job.partitions)
            load.run(side, broker, before)

    def turn(side: Side, folder: Path) -> Results:
        with MeasuredBroker(folder / "data", environment=side.environment) as broker:
            outcome, used_s = load.measure(side, broker, job)
        return {"stored": Measurement(outcome.records_per_s, used_s)}

    case = Case("stored", "records/s", is_rate=True)
    return Experiment("W11", "stored", [case], turn, turn_s, load.needs(), prepare, prepare_s=5.0)


def recovery(size_bytes: int) -> Experiment:
    """Return the experiment that measures a start after SIGKILL, with unflushed batches of one record."""
    case = Case("start after kill -9", "s")

    def turn(side: Side, folder: Path) -> Results:
        with MeasuredBroker(folder / "data", environment=side.environment) as broker:
            partitions.write_small_batches(broker, size_bytes)
            broker.kill()
            broker.__enter__()
            broker.kill()
            return {case.name: Measurement(broker.ready_s)}

    return Experiment("recovery", "recovery", [case], turn, 5.0)


def compaction(megabytes: int) -> Experiment:
    """Return the experiment that measures the log cleaner: MB/s, and the CPU time of broker and cleaner."""
    case = Case("cleaner", "MB/s", is_rate=True)

    def turn(side: Side, folder: Path) -> Results:
        from bench.compare.cleaner import measure_cleaner  # noqa: PLC0415 - it needs confluent-kafka

        return {case.name: measure_cleaner(side, folder, megabytes)}

    return Experiment("compaction", "compaction", [case], turn, 8.0)


def one_producer(
    workload: str, share: float, scrapes_per_s: float = 0.0, *, with_console: bool = False
) -> Iterator[Experiment]:
    """Return the experiments of W4, with or without metrics scrapes and a console.

    :param share: see `experiments`.
    """
    loads = [("send", "send", 5_000_000, 5.0), ("send_many", "many", 10_000_000, 4.0)]
    if find_spec("confluent_kafka"):
        loads.append(("confluent", "confluent", 4_000_000, 6.0))
    for name, mode, records, turn_s in loads:
        job = Job("produce", max(RECORDS_MIN, round(records * share)))
        yield loaded(workload, name, Load(mode, job), turn_s, scrapes_per_s, with_console=with_console)


def only_by_name(share: float = 1.0) -> Iterator[Experiment]:
    """Yield the experiments that run only if the user names them."""
    yield from one_producer("W4:scraped", share, SCRAPES_PER_S)
    yield from one_producer("W4:console", share, with_console=True)
    for name in SCENARIOS:
        if name not in STALLS:
            yield stall(name)


def experiments(share: float = 1.0) -> Iterator[Experiment]:
    """Yield the experiments that run by default, in order.

    :param share: the share of records, commits and partitions. A value below 1 only shows that the experiments work.
    """

    def records(count: int) -> int:
        return max(RECORDS_MIN, round(count * share))

    for workload, acks, single, batched in (("W1", "0", 250_000, 4_000_000), ("W1A", "all", 300_000, 4_000_000)):
        alone = Job("produce", records(single), SIZE, acks=acks, batch_records=1)
        yield loaded(workload, "batch-1", Load("", alone), 6.0)
        several = replace(alone, records=records(batched), batch_records=BATCH)
        yield loaded(workload, f"batch-{BATCH}", Load("", several), 5.0)
    yield from one_producer("W4", share)
    for mode in ("records", "arrow"):
        yield read("W8", mode, Load(mode, Job("consume", records(10_000_000))), 6.0)
    yield stored(Load("many", Job("produce", records(2_000_000))), records(10_000_000), 3.0)
    yield loaded("W9", "both", Load("", Job("both", records(4_000_000))), 5.0)
    job = Job("latency", records(40_000), rate=LATENCY_RATE)
    yield loaded("W12", "p50", Load("", job), 8.0)
    for name in STALLS:
        yield stall(name)
    yield commits(COMMITTING_S * share)
    yield start()
    yield memory(records(2_000_000))
    yield recovery(round(100_000_000 * share))
    if find_spec("confluent_kafka"):
        yield compaction(max(10, round(100 * share)))
    yield many_partitions(*((partitions.TOPICS, partitions.PARTITIONS_EACH) if share == 1 else (2, 5)))


def workload_names() -> list[str]:
    """Return the names of all workloads in order."""
    return list(dict.fromkeys(each.workload for each in experiments()))


def chosen(names: Sequence[str], share: float = 1.0) -> list[Experiment]:
    """Return the experiments with the given names: of a whole workload, or a single one such as `W4:send`. Without
    names, return all experiments.

    :raises ValueError: if a name is unknown.
    """
    known = list(experiments(share))
    others = list(only_by_name(share))
    found: dict[str, Experiment] = {}
    for name in names or workload_names():
        matching = [each for each in known if name in (each.workload, each.title)]
        matching = matching or [each for each in others if name in (each.workload, each.title)]
        if not matching:
            raise ValueError(f"unknown workload: {name}; use {', '.join(workload_names())}")
        found |= {each.title: each for each in matching}
    return list(found.values())
