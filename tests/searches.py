"""How many examples Hypothesis tries: few in `make test`, more in continuous integration, many in `make soak`."""

from __future__ import annotations

import hypothesis

USUAL = 100
"""What a search has that asks for no number; the profile for `make test`, and Hypothesis' own default."""
TIMES = {"usual": 1, "ci": 3, "soak": 10}


def register_profiles() -> None:
    """Make the profiles known, and choose `usual`; `pytest --hypothesis-profile=soak` chooses another.

    An example that takes long says something about the machine, not about the code: there is no deadline.
    """
    for name, times in TIMES.items():
        hypothesis.settings.register_profile(
            name, deadline=None, max_examples=USUAL * times, derandomize=False, print_blob=True
        )
    hypothesis.settings.load_profile("usual")


def examples(usual: int) -> int:
    """Return how many examples a search has in the chosen profile, given how many it usually has."""
    return usual * hypothesis.settings.default.max_examples // USUAL
