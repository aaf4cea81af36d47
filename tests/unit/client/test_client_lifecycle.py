"""How clients on the event loop of the application wait for their end."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.client_lifecycle import ApplicationLoop
from barnabas.errors import TimedOutError


def test_waiting_for_another_task_that_closes_the_client_ends_in_time():
    async def test():
        lifecycle = ApplicationLoop()
        lifecycle.start()
        with pytest.raises(TimedOutError, match="another task was still closing this client after 0 s"):
            await lifecycle.wait_until_ended(0)
        lifecycle.ended.set()
        await lifecycle.wait_until_ended(0)
        lifecycle.unregister()

    asyncio.run(test())
