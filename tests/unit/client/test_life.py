"""How clients on the event loop of the application wait for their end."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.life import ApplicationLoop
from barnabas.errors import TimedOutError


def test_waiting_for_another_task_that_closes_the_client_ends_in_time():
    async def test():
        life = ApplicationLoop()
        life.loop = asyncio.get_running_loop()
        with pytest.raises(TimedOutError, match="another task was still closing this client after 0 s"):
            await life.until_ended(0)
        life.ended.set()
        await life.until_ended(0)
        life.is_over()

    asyncio.run(test())
