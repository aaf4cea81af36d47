"""`python -m tests.simulation`: many seeds side by side, and the stories of those that fail; `make simulate`."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time

from tests.simulation.pool import run_in_time, run_many
from tests.simulation.shrink import shrink

INTERRUPTED = 130
"""What a shell says of a program that Ctrl-C has ended."""


def main() -> int:
    """Run the seeds that the arguments name; return 0 if all are well, 1 if any failed, `INTERRUPTED` after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=None, help="only this one, with its whole story")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seconds", type=float, default=None, help="of faults, in simulated time; otherwise drawn")
    given = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())  # what brokers log is looked at, and not shown
    if given.seed is not None:
        result = run_in_time(given.seed, given.seconds)
        _say(result.told())
        if not result.ok:
            least = shrink(result)
            _say(f"\nthe least that was found that fails in the same way:\n{least.told()}\n{least.plan.told()}")
        return not result.ok
    return _run_all(range(given.first, given.first + given.seeds), given.seconds)


def _run_all(seeds: range, seconds: float | None) -> int:
    began_s = time.monotonic()
    done, failed, simulated_s = 0, 0, 0.0
    results = run_many(seeds, seconds)
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(results):
        for result in results:
            done += 1
            simulated_s += result.simulated_s
            if not result.ok:
                failed += 1
                _say(f"\n{result.told()}\nagain: make simulate SEED={result.seed}\n")
            if sys.stderr.isatty():
                spent_s = time.monotonic() - began_s
                pace = f"{done / spent_s:.1f} a second, {simulated_s / spent_s:.0f} simulated seconds a second"
                sys.stderr.write(f"\r{done} of {len(seeds)} seeds, {failed} failed, {pace} ")
    spent_s = time.monotonic() - began_s
    _say(
        f"\n{done} of {len(seeds)} seeds from {seeds.start}, {failed} failed, {done / spent_s:.1f} a second, "
        f"{simulated_s:.0f} simulated seconds"
    )
    if done < len(seeds):
        return INTERRUPTED
    return failed > 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
