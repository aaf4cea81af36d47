"""The broker answers byte for byte as it did on the commit on which the conversation was recorded.

`python -m tests.conversation --record` records scenes again, after a change of behaviour that is wanted.
"""

from __future__ import annotations

import pytest

from tests.conversation.script import SCENES, perform
from tests.conversation.transcript import compare, load, recording


@pytest.mark.parametrize("name", SCENES)
def test_answers_are_the_recorded_bytes(name: str) -> None:
    commit, recorded = load(recording(name))
    difference = compare(recorded, perform(name))
    assert not difference, f"scene {name}, recorded on {commit}:\n{difference}"
