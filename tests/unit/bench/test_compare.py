"""The comparison of two commits: statistics, verdicts, turns, installations, wrong input."""

from __future__ import annotations

import fcntl
import itertools
import math
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import processes
from bench.compare.command import parse, require_commands
from bench.compare.experiments import Case, Experiment, Results, chosen, workload_names
from bench.compare.report import Row, caption_of, data, lines
from bench.compare.sides import MARK, SITE, ComparisonError, Export, Installations, Repository, Side
from bench.compare.turns import Plan, TurnLimitError, Turns, time_limit
from bench.compare.verdicts import Interval, Measurement, coverage, cpu_ratio_of, interval_of, ratios_of, verdict_of
from bench.progress import Progress

SECONDS = Case("took", "s")
RATE = Case("rate", "records/s", is_rate=True)
BASE, CHECKOUT = Side("base", "aaaaaaa", Path("older")), Side("checkout", "bbbbbbb", Path("newer"))


def measured(*values: float, cpu_s: float | None = None) -> list[Measurement]:
    return [Measurement(value, cpu_s) for value in values]


# Statistics


@pytest.mark.parametrize("pairs", [6, 7, 8, 9, 10, 11, 12, 15, 20, 31])
def test_the_interval_is_the_shortest_that_holds_the_median_with_95_percent(pairs: int) -> None:
    ratios = [float(number) for number in range(1, pairs + 1)]
    interval = interval_of(ratios[::-1])
    rank = round(interval.low)
    assert interval.high == pairs + 1 - rank
    assert coverage(pairs, rank) >= 0.95 > coverage(pairs, rank + 1)


def test_the_coverage_is_that_of_all_sides_on_which_the_ratios_can_fall() -> None:
    pairs = 7
    falls = list(itertools.product([False, True], repeat=pairs))
    for rank in (1, 2, 3):
        inside = sum(rank <= sum(below) <= pairs - rank for below in falls)
        assert coverage(pairs, rank) == pytest.approx(inside / len(falls))


def test_one_pair_has_an_interval_that_promises_nothing() -> None:
    assert interval_of([0.7]) == Interval(0.7, 0.7, 0.7)
    assert coverage(1, 1) == 0.0


def test_a_ratio_above_1_is_better_for_rates_and_for_times() -> None:
    assert ratios_of(measured(100.0), measured(200.0), is_rate=True) == [2.0]
    assert ratios_of(measured(4.0), measured(2.0), is_rate=False) == [2.0]


def test_ratios_are_those_of_complete_pairs() -> None:
    assert ratios_of(measured(1.0, 2.0, 4.0), measured(2.0, 2.0), is_rate=True) == [2.0, 1.0]


def test_values_of_0_divide_nothing() -> None:
    assert ratios_of(measured(0.0, 0.0), measured(0.0, 1.0), is_rate=True) == [1.0, math.inf]


def test_the_cpu_ratio_is_the_median_of_the_pairs_and_missing_where_none_is_measured() -> None:
    base = [Measurement(1.0, cpu) for cpu in (1.0, 2.0, 4.0)]
    checkout = [Measurement(1.0, cpu) for cpu in (3.0, 2.0, 4.4)]
    assert cpu_ratio_of(base, checkout) == pytest.approx(1.1)
    assert cpu_ratio_of(measured(1.0), measured(1.0)) is None


@pytest.mark.parametrize(
    ("high", "cpu_ratio", "verdict"),
    [
        (0.95, None, "pass"),
        (0.95, 1.05, "pass"),
        (0.949, 1.0, "FAIL: below 0.95"),
        (1.2, 1.051, "FAIL: CPU above 1.05"),
        (0.9, 1.2, "FAIL: below 0.95, CPU above 1.05"),
    ],
)
def test_a_case_passes_when_its_interval_and_its_cpu_reach_the_limits(
    high: float, cpu_ratio: float | None, verdict: str
) -> None:
    assert verdict_of(Interval(0.8, 0.7, high), cpu_ratio) == verdict


# The table


def test_the_table_is_aligned_and_ends_with_its_caption() -> None:
    rows = [
        Row("W4", RATE, measured(*[1e6] * 7, cpu_s=0.2), measured(*[2e6] * 7, cpu_s=0.3)),
        Row("start", SECONDS, measured(*[0.5] * 7), measured(*[0.5] * 7)),
        Row("W12", SECONDS, problem="base: it broke"),
        Row("W9", RATE),
    ]
    header, *cells, caption = lines(rows, 7, caption_of(BASE, CHECKOUT, 7))
    column = header.index("verdict")
    assert [line[column:] for line in cells] == [
        "FAIL: CPU above 1.05",
        "pass",
        "FAIL: base: it broke",
        "not measured",
    ]
    assert cells[0].split()[:6] == ["W4", "rate", "1,000,000", "records/s", "2,000,000", "records/s"]
    assert "2.000 [2.000, 2.000]" in cells[0]
    assert caption.startswith("checkout bbbbbbb against base aaaaaaa, 7 pairs")
    assert "98.4 %" in caption


def test_too_few_pairs_have_figures_and_no_verdict() -> None:
    row = Row("W4", RATE, measured(1.0, 1.0), measured(0.5))
    assert row.verdict(7) == "1 of 7 pairs"
    (kept,) = data([row], 7, caption_of(BASE, CHECKOUT, 7))
    assert kept["caption"].startswith("checkout bbbbbbb against base aaaaaaa")
    assert kept["ratio"] == {"median": 0.5, "low": 0.5, "high": 0.5}
    assert kept["base"] == [{"value": 1.0, "cpu_s": None}] * 2


# The command line


def test_all_workloads_are_known_by_name() -> None:
    assert workload_names() == [
        *("W1", "W1A", "W4", "W8", "W11", "W9", "W12", "W14", "W15"),
        *("start", "memory", "recovery", "compaction", "partitions"),
    ]
    assert [each.workload for each in parse(["--base", "HEAD"]).experiments] == [each.workload for each in chosen([])]


def test_a_workload_or_a_case_or_a_stall_by_name_is_chosen_once() -> None:
    titles = [each.title for each in chosen(["W4:send", "W14:roll-often", "W8", "W8:arrow"])]
    assert titles == ["W4:send", "W14:roll-often", "W8:records", "W8:arrow"]
    assert {each.title for each in chosen(["W4:scraped"])} > {"W4:scraped:send", "W4:scraped:send_many"}
    assert {each.title for each in chosen(["W4:console"])} > {"W4:console:send", "W4:console:send_many"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--base", "HEAD", "W99"], "unknown workload: W99"),
        (["--base", "HEAD", "W4:sent"], "unknown workload: W4:sent"),
        (["W4"], "pass the commit"),
        (["--base", "HEAD", "--pairs", "6"], "at least 7 pairs"),
    ],
)
def test_wrong_input_is_refused_with_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def side_with_help(**shown: str | None) -> Side:
    helps = {name.replace("_", " "): text for name, text in shown.items()}
    return Side("base", "aaaaaaa", Path("older"), helps)


def test_the_first_command_or_option_that_a_side_lacks_is_named() -> None:
    side = side_with_help(perf_produce="  --records N\n  --batch-records-max N", perf_both=None)
    assert side.missing_from(["perf", "produce", "--records", "5"]) is None
    assert (
        side.missing_from(["perf", "produce", "--batch-records", "5"]) == "--batch-records of `barnabas perf produce`"
    )
    assert side.missing_from(["perf", "both", "--records", "5"]) == "`barnabas perf both`"


def test_a_comparison_does_not_begin_without_an_option_that_it_needs() -> None:
    side = side_with_help(perf_produce="--records", up="--port --data")
    with pytest.raises(ComparisonError, match="base aaaaaaa lacks --") as refused:
        require_commands([side], chosen(["start", "W4:send"]))
    assert str(refused.value).endswith(" of `barnabas perf produce`, which W4:send needs")


# Turns


class Played:
    """An experiment whose turns are counted, and fail or are interrupted when they are told to."""

    def __init__(self, failing_at: int = 0, error: BaseException | None = None, *, prepared: bool = False) -> None:
        self.turns: list[tuple[str, Path]] = []
        self.folders: list[Path] = []
        self._failing_at = failing_at
        self._error = error
        self.rows = [Row("W0", SECONDS)]
        prepare = self._prepare if prepared else None
        self._experiment = Experiment("W0", "played", [SECONDS], self._turn, 1.0, (), prepare, 10.0)

    def run(self, tmp_path: Path, plan: Plan) -> None:
        Turns(self._experiment, (BASE, CHECKOUT), tmp_path, self.rows, Progress()).run(plan)
        assert not list(tmp_path.iterdir())

    def _prepare(self, side: Side, folder: Path) -> None:
        (folder / side.title).touch()

    def _turn(self, side: Side, folder: Path) -> Results:
        assert folder.exists()
        self.turns.append((side.title, folder))
        if len(self.turns) == self._failing_at and self._error:
            raise self._error
        return {"took": Measurement(float(len(self.turns)))}


def test_sides_take_turns_and_the_first_turns_do_not_count(tmp_path: Path) -> None:
    played = Played()
    played.run(tmp_path, Plan(pairs=3))
    assert [title[0] for title, _ in played.turns] == list("cbbccbbc")
    assert len({folder for _, folder in played.turns}) == 8
    (row,) = played.rows
    assert [each.value for each in row.base] == [3.0, 6.0, 7.0]
    assert [each.value for each in row.checkout] == [4.0, 5.0, 8.0]


def test_all_turns_of_a_side_have_the_folder_that_was_prepared_for_it(tmp_path: Path) -> None:
    played = Played(prepared=True)
    played.run(tmp_path, Plan(pairs=2))
    assert len(set(played.turns)) == 2


def test_a_turn_that_fails_ends_its_experiment_and_keeps_what_was_measured(tmp_path: Path) -> None:
    played = Played(failing_at=5, error=RuntimeError("the broker\ndied"))
    played.run(tmp_path, Plan(pairs=3))
    (row,) = played.rows
    assert row.verdict(3) == "FAIL: checkout: the broker died"
    assert (len(played.turns), row.pairs) == (5, 1)


def test_an_interrupted_experiment_keeps_what_was_measured(tmp_path: Path) -> None:
    played = Played(failing_at=6, error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        played.run(tmp_path, Plan(pairs=3))
    assert played.rows[0].verdict(3) == "1 of 3 pairs"
    assert not list(tmp_path.iterdir())


def test_a_turn_that_takes_too_long_is_ended() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TurnLimitError, match=r"took longer than 0\.05 s"), time_limit(0.05):
        threading.Event().wait()
    assert signal.getsignal(signal.SIGALRM) is before


def test_the_time_of_a_plan_is_that_of_all_turns_and_preparations() -> None:
    experiment = Experiment("W0", "played", [SECONDS], lambda *_: {}, 2.0, prepare=lambda *_: None, prepare_s=5.0)
    assert Plan(pairs=7).seconds([experiment, experiment]) == 2 * (16 * 2.0 + 2 * 5.0)


# Sides


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    root = tmp_path / "clone"
    (root / "src").mkdir(parents=True)
    (root / "src" / "code.py").write_text("first\n")
    (root / "notes.md").write_text("first\n")
    (root / ".gitignore").write_text("*.so\n")
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    commit(root)
    return Repository(root)


def commit(root: Path) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(root), "add", "--all"], check=True)
    subprocess.run(["git", "-C", str(root), *identity, "commit", "--quiet", "--message", "x"], check=True)


@pytest.fixture
def export(repository: Repository, tmp_path: Path) -> Export:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return Export(repository, folder)


@pytest.mark.parametrize("name", ["nosuch", "HEAD:src", "HEAD~1"])
def test_an_unknown_commit_is_named(repository: Repository, name: str) -> None:
    with pytest.raises(ComparisonError, match=f"unknown commit: {name}"):
        repository.commit(name)


@pytest.mark.parametrize("name", ["", "--all"])
def test_an_option_or_nothing_is_no_commit(repository: Repository, name: str) -> None:
    with pytest.raises(ComparisonError, match="pass the commit to compare with"):
        repository.commit(name)


def test_a_folder_without_a_repository_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))  # temporary folders may lie in a clone
    with pytest.raises(ComparisonError, match="not a git repository"):
        Repository(tmp_path)


def test_uncommitted_changes_and_new_files_belong_to_the_checkout(
    repository: Repository, export: Export, tmp_path: Path
) -> None:
    head = repository.git("rev-parse", "HEAD^{tree}")
    assert export.tree_of_checkout() == head
    (repository.root / "src" / "code.py").write_text("second\n")
    (repository.root / "src" / "new.py").write_text("new\n")
    (repository.root / "src" / "built.so").write_text("")
    status = repository.git("status", "--porcelain")
    tree = export.tree_of_checkout()
    export.write(tree, tmp_path / "written")
    export.write(repository.commit("HEAD"), tmp_path / "older")
    assert (tmp_path / "written" / "src" / "code.py").read_text() == "second\n"
    assert sorted(path.name for path in (tmp_path / "written" / "src").iterdir()) == ["code.py", "new.py"]
    assert (tmp_path / "older" / "src" / "code.py").read_text() == "first\n"
    assert export.content_of(tree) != export.content_of(head)
    assert repository.git("status", "--porcelain") == status
    with pytest.raises(ComparisonError):
        repository.git("cat-file", "-e", tree)


def test_commits_with_the_same_code_share_an_installation(repository: Repository, export: Export) -> None:
    before = export.content_of(repository.commit("HEAD"))
    (repository.root / "notes.md").write_text("second\n")
    commit(repository.root)
    assert export.content_of(repository.commit("HEAD")) == before


class Installer:
    """Installs a file, and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, folder: Path) -> None:
        self.count += 1
        folder.mkdir()
        (folder / "code.py").touch()


@pytest.fixture
def installer() -> Iterator[Installer]:
    return Installer()


def test_an_installation_is_made_once(tmp_path: Path, installer: Installer) -> None:
    for _ in range(2):
        with Installations(tmp_path) as installations:
            assert installations.get("a", installer) == tmp_path / "a" / SITE
            assert (tmp_path / "a" / SITE / "code.py").exists()
    assert installer.count == 1


def test_an_installation_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        folder.mkdir()
        raise ComparisonError("no compiler")

    with Installations(tmp_path) as installations, pytest.raises(ComparisonError):
        installations.get("a", fail)
    assert not list(tmp_path.iterdir())


def test_the_oldest_installations_go_and_strange_folders_stay(tmp_path: Path, installer: Installer) -> None:
    (tmp_path / "strange").mkdir()
    for number, name in enumerate("abc"):
        with Installations(tmp_path, kept=2) as installations:
            installations.get(name, installer)
        os.utime(tmp_path / name / MARK, (number, number))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "c", "strange"]


def test_an_installation_in_use_stays(tmp_path: Path, installer: Installer) -> None:
    with Installations(tmp_path, kept=1) as installations:
        installations.get("a", installer)
        installations.get("b", installer)
        assert (tmp_path / "a").exists()
        with (tmp_path / "a" / MARK).open("rb") as mark, pytest.raises(BlockingIOError):
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_cpu_time_of_a_process_is_finer_than_a_tick() -> None:
    before = processes.cpu_s(os.getpid())
    for _ in range(100):
        now = processes.cpu_s(os.getpid())
        assert now >= before
        before = now
    assert processes.cpu_s(os.getpid()) * processes.TICKS_PER_S % 1 != 0
