"""The rules of replication, played by three brokers through any order of events: what is promised must hold.

Brokers are killed, lose their machines' memory and their sessions, act on what they read long ago, and lose answers.
`tests/support/replication_cluster.py` has the events and what must hold after each of them.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.replication_cluster import Cluster
from tests.support.searches import examples

CHOICES = st.lists(st.integers(0, 2**20), min_size=80, max_size=160)


@pytest.mark.parametrize("is_unclean_allowed", [False, True])
@settings(max_examples=examples(150))
@given(choices=CHOICES)
def test_what_was_promised_holds_whatever_happens(is_unclean_allowed, choices) -> None:
    cluster = Cluster(is_unclean_allowed)
    for choice in choices:
        cluster.play(choice)
    cluster.heal()
    cluster.check_healed()
