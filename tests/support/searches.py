"""How many examples Hypothesis tries: few in `make test`, more in continuous integration, many in `make soak`."""

from __future__ import annotations

import hypothesis

USUAL = 100
"""What a search asks for that names no number: Hypothesis' own default."""
TIMES = {"test": 0.5, "ci": 3, "soak": 10}
"""The factor of each profile; in `make test`, a search is one of thousands of tests."""


def register_profiles() -> None:
    """Register the profiles, and select that of `make test`; `pytest --hypothesis-profile=soak` selects another.

    Only `soak` tries new examples in each run (docs/decisions/049). There is no deadline, because the time that an
    example takes depends on the machine.
    """
    for name, times in TIMES.items():
        hypothesis.settings.register_profile(
            name, deadline=None, max_examples=int(USUAL * times), derandomize=name != "soak", print_blob=True
        )
    hypothesis.settings.load_profile("test")


def examples(asked: int) -> int:
    """Return how many examples a search has in the chosen profile, given how many it asks for."""
    return asked * hypothesis.settings.default.max_examples // USUAL
