"""How many examples Hypothesis tries: few in `make test`, more in continuous integration, many in `make soak`."""

from __future__ import annotations

import hypothesis

USUAL = 100
"""What a search asks for that names no number: Hypothesis' own default."""
TIMES = {"test": 0.5, "ci": 3, "soak": 10}
"""How many times as many it gets; in `make test` it is one of thousands of tests."""


def register_profiles() -> None:
    """Make the profiles known, and choose that of `make test`; `pytest --hypothesis-profile=soak` chooses another.

    An example that takes long says something about the machine, not about the code: there is no deadline.
    """
    for name, times in TIMES.items():
        hypothesis.settings.register_profile(
            name, deadline=None, max_examples=int(USUAL * times), derandomize=False, print_blob=True
        )
    hypothesis.settings.load_profile("test")


def examples(asked: int) -> int:
    """Return how many examples a search has in the chosen profile, given how many it asks for."""
    return asked * hypothesis.settings.default.max_examples // USUAL
