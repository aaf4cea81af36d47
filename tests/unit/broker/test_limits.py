"""What clients may cost, given what the process may have."""

from __future__ import annotations

import pytest

from barnabas.broker.broker import _limits
from barnabas.broker.config import BrokerConfig


@pytest.mark.parametrize(("open_files_max", "connections_max"), [(1_024, 768), (1_000_000, 5_000)])
def test_connections_leave_files_for_the_logs(open_files_max: int, connections_max: int) -> None:
    config = BrokerConfig(max_connections=5_000)
    assert _limits(config, open_files_max).connections_max == connections_max
