"""`python -m tests.simulation`: many seeds side by side, and the stories of those that fail; `make simulate`."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time

from tests.simulation.story import run, run_quietly


def main() -> int:
    """Run the seeds that the arguments name; return how many failed, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=None, help="only this one, with its whole story")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seconds", type=float, default=30.0, help="of faults, in simulated time")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if given.seed is not None:
        result = run(given.seed, given.seconds)
        _say(result.told())
        return not result.ok
    began_s = time.monotonic()
    failed, simulated_s = 0, 0.0
    seeds = [(seed, given.seconds) for seed in range(given.first, given.first + given.seeds)]
    with multiprocessing.get_context("forkserver").Pool(os.cpu_count(), maxtasksperchild=20) as pool:
        for done, result in enumerate(pool.imap_unordered(run_quietly, seeds), 1):
            simulated_s += result.simulated_s
            if not result.ok:
                failed += 1
                _say(f"\n{result.told()}\nagain: make simulate SEED={result.seed}\n")
            spent_s = time.monotonic() - began_s
            pace = f"{simulated_s / spent_s:.0f} simulated seconds a second"
            sys.stderr.write(f"\r{done} of {given.seeds} seeds, {failed} failed, {pace} ")
    _say(f"\n{given.seeds} seeds from {given.first}, {failed} failed, {simulated_s:.0f} simulated seconds")
    return failed > 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
