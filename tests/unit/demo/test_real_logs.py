"""Real logs, where they lie beside the project: what is known to be in them is found in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from demo.access_log import parse_line
from demo.text_log import looks_like_access_log, read_lines, text_log

LOGS = Path(__file__).parents[4] / "shared" / "data"


def real_log(name: str) -> Path:
    path = LOGS / name
    if not path.exists():
        pytest.skip(f"there is no {name} in the folder shared/data beside the project")
    return path


def test_the_access_log_has_the_statuses_that_are_known_of_it() -> None:
    requests = [parse_line(line) for line in read_lines(real_log("apache_access.log"))]
    assert all(requests)
    statuses = Counter(request.status for request in requests if request)
    assert statuses == {200: 9126, 304: 445, 404: 213, 301: 164, 206: 45, 500: 3, 416: 2, 403: 2}
    assert len({request.host for request in requests if request}) == 1753


def test_the_access_log_is_one_and_a_log_of_logins_is_none() -> None:
    access, logins = real_log("apache_access.log"), real_log("auth.log")
    assert looks_like_access_log(access)
    assert not looks_like_access_log(logins)
    assert (text_log(access).count, text_log(logins).count) == (10_000, 7_121)
