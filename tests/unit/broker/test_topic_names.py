"""What a topic may be called."""

from __future__ import annotations

import pytest

from barnabas.broker.topic_names import check_topic_name
from barnabas.errors import ApiError, ErrorCode


@pytest.mark.parametrize("name", ["clicks", "a", "x" * 249, "web.access-log_2015", "..."])
def test_good_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "café", "a\n", "../etc"])
def test_bad_names(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
