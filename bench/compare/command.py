"""Compares the checkout with an older commit. Both run alternately (A B B A) on the same machine.

    python -m bench.compare --base HEAD~5           all workloads, seven pairs
    python -m bench.compare --base HEAD~5 W1 W4:send W14:roll-often
    python -m bench.compare --base HEAD~5 --pairs 15 --json FILE
    python -m bench.compare --list                  prints the names of all cases

Each case first runs once on each side as a warm-up, and then in pairs. The table has the medians, the median ratio of
the pairs with its interval (`bench/compare/verdicts.py`), and the broker's CPU seconds per million records (W15:
commits). A case passes if the upper end of the interval is at least 0.95 and the median ratio of the CPU seconds is at
most 1.05.

Exit codes: 0 all cases pass, 1 a case does not pass, 2 wrong input (an unknown commit or workload, an option that one
side does not have), 130 after Ctrl-C, which ends all processes and prints the results so far.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Sequence

from bench import processes
from bench.compare.experiments import Experiment, chosen, experiments, only_by_name
from bench.compare.report import Row, caption_of, data, lines
from bench.compare.sides import ComparisonError, Side, both_sides
from bench.compare.turns import Plan, Turns
from bench.downloads import cache_folder
from bench.figures import interruptible, parent_of, parser_of, show
from bench.progress import Progress

PAIRS = 7
SMOKE_SHARE = 1 / 200
SMOKE = Plan(pairs=1, uncounted=0)
LOAD_MAX = 0.5
PR_SET_CHILD_SUBREAPER = 36
"""The option of prctl(2) that makes orphaned descendants of this process its children."""
EXIT_FAILED, EXIT_WRONG_INPUT = 1, 2


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = parser_of("bench.compare", __doc__)
    parser.add_argument("workloads", nargs="*", metavar="W", help="a workload, or one case such as W4:send [all]")
    parser.add_argument("--base", default="", metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"number of pairs, at least {PAIRS} [{PAIRS}]")
    parser.add_argument(
        "--smoke", action="store_true", help="one pair of tiny runs without a verdict, to test the bench"
    )
    parser.add_argument("--list", action="store_true", help="print the names of all cases")
    asked = parser.parse_args(arguments)
    if asked.pairs < PAIRS:
        parser.error(f"at least {PAIRS} pairs are needed, not {asked.pairs}")
    if not asked.base and not asked.list:
        parser.error("pass the commit to compare with: make compare BASE=<commit>")
    try:
        asked.experiments = chosen(asked.workloads, SMOKE_SHARE if asked.smoke else 1.0)
    except ValueError as error:
        parser.error(str(error))
    return asked


def require_commands(sides: Sequence[Side], wanted: Sequence[Experiment]) -> None:
    """Check that both sides have all necessary commands and options.

    :raises ComparisonError: if a side does not have a command or option.
    """
    for side in sides:
        for experiment in wanted:
            for arguments in experiment.needs:
                if missing := side.missing_from(arguments):
                    raise ComparisonError(f"{side.title} {side.label} lacks {missing}, which {experiment.title} needs")


def compare(asked: argparse.Namespace, sides: tuple[Side, Side], rows: list[Row], progress: Progress) -> None:
    """Run the chosen experiments, and add their results to the rows."""
    plan = SMOKE if asked.smoke else Plan(asked.pairs)
    require_commands(sides, asked.experiments)
    minutes = plan.seconds(asked.experiments) / 60
    progress.say(f"{len(asked.experiments)} experiments, {plan.pairs} pairs: about {max(1, round(minutes))} minutes")
    for experiment in asked.experiments:
        added = [Row(experiment.workload, case) for case in experiment.cases]
        rows += added
        Turns(experiment, sides, parent_of(asked), added, progress).run(plan)
        end_descendants()


def warn_about_load(progress: Progress) -> None:
    """Print a warning if other programs use the CPU."""
    if (load := os.getloadavg()[0]) > LOAD_MAX:
        progress.say(f"warning: the load of this machine is {load:.2f}; other programs widen the intervals")


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that `end_descendants` finds them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """Kill all running descendants of this process."""
    for pid in processes.tree(os.getpid())[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def list_cases() -> None:
    for experiment in experiments():
        sys.stdout.write(f"{experiment.title:28} {', '.join(case.name for case in experiment.cases)}\n")
    sys.stdout.write(f"only by name: {' '.join(each.title for each in only_by_name())}\n")


def main() -> int:
    """Run the command line. Return the exit code."""
    asked = parse()
    if asked.list:
        list_cases()
        return 0
    progress, rows = Progress(), list[Row]()
    caption = "nothing is measured"
    adopt_orphans()
    processes.allow_open_files()
    try:
        with interruptible() as interrupted:
            warn_about_load(progress)
            with both_sides(asked.base, cache_folder() / "compare", progress) as sides:
                caption = caption_of(*sides, asked.pairs, is_smoke=asked.smoke)
                compare(asked, sides, rows, progress)
    except ComparisonError as error:
        sys.stderr.write(f"bench.compare: {error}\n")
        return EXIT_WRONG_INPUT
    finally:
        end_descendants()
    show(asked, "bench.compare", lines(rows, asked.pairs, caption), data(rows, asked.pairs, caption))
    verdicts = [row.verdict(asked.pairs) for row in rows]
    return interrupted.exit_code or (EXIT_FAILED if any(each.startswith("FAIL") for each in verdicts) else 0)
