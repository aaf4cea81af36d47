"""The broker answers byte for byte as it did on the commit on which the conversation was recorded.

`python -m tests.conversation --record` records scenes again, after a change of behaviour that is wanted.
"""

from __future__ import annotations

import pytest

from tests.conversation.samples import conversation_apis
from tests.conversation.script import SCENES, perform
from tests.conversation.transcript import compare, expected_counts, load, recording, uncertain_client_ids


@pytest.mark.parametrize("name", SCENES)
def test_answers_are_the_recorded_bytes(name: str) -> None:
    commit, recorded = load(recording(name))
    lines = perform(name)
    difference = compare(recorded, lines)
    assert not difference, f"scene {name}, recorded on {commit}:\n{difference}"
    assert None not in uncertain_client_ids(lines)


def test_every_version_of_every_api_of_the_conversation_is_sent_and_answered() -> None:
    answered = {(key.api_key, key.version) for key in expected_counts(perform("alone")) if key.error_code is not None}
    assert answered == {(api.key, version) for api in conversation_apis() for version in api.versions}
