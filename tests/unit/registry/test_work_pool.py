"""Work on schemas is bounded: a deadline ends a job, and small jobs do not wait for large ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas.registry import work_pool
from barnabas.registry.errors import RegistryError
from barnabas.registry.state import AVRO, JSON, Content, Version
from barnabas.registry.subject_config import Level
from barnabas.registry.work_pool import InvalidSchemaError, WorkEndedError, WorkPool

SMALL = Content(AVRO, '"int"')


def alternatives(count: int, values: int) -> Content:
    """Return a schema whose comparison needs the values once for each pair of alternatives."""
    definitions = {"v": {"enum": [f"v{number}" for number in range(values)]}}
    return Content(JSON, json.dumps({"definitions": definitions, "anyOf": [{"$ref": "#/definitions/v"}] * count}))


def compare(count: int, values: int) -> tuple[Any, ...]:
    version = Version("s", 1, 1, alternatives(count, values))
    return ("compare", Level.FULL, alternatives(count + 1, values), (), version, ())


@asynccontextmanager
async def pool() -> AsyncIterator[WorkPool]:
    made = WorkPool()
    try:
        yield made
    finally:
        await made.stop()


@pytest.fixture(autouse=True)
def _short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_pool, "FAST_WORKERS", 1)
    monkeypatch.setattr(work_pool, "SLOW_CPU_S", 0.3)


@pytest.mark.parametrize(("count", "values"), [(200, 20_000), (140, 1_000)], ids=["large", "small"])
def test_deadline_ends_a_job_and_others_do_not_wait_for_it(count: int, values: int) -> None:
    async def check() -> None:
        async with pool() as made:
            await made.start()
            slow = asyncio.create_task(made.run(*compare(count, values)))
            await asyncio.sleep(0)
            assert await made.run("write", SMALL, (), "text") == '"int"'
            assert not slow.done()
            with pytest.raises(WorkEndedError):
                await slow
            assert await made.run("write", SMALL, (), "normalized") == '"int"'

    asyncio.run(check())


def test_text_that_is_no_schema_is_an_error_of_its_own() -> None:
    async def check() -> None:
        async with pool() as made:
            with pytest.raises(InvalidSchemaError, match="unknown schema type"):
                await made.run("write", Content("XML", "<a/>"), (), "text")
            assert await made.run("write", SMALL, (), "serialized") is None

    asyncio.run(check())


def test_job_after_a_killed_process_starts_another_one() -> None:
    async def check() -> None:
        async with pool() as made:
            await made.start()
            (worker,) = made._fast._workers
            process = await worker.start()
            process.kill()
            await process.wait()
            assert await made.run("write", SMALL, (), "text") == '"int"'

    asyncio.run(check())


def test_large_job_is_refused_where_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_pool, "SLOW_WAITING_MAX", 0)

    async def check() -> None:
        async with pool() as made:
            with pytest.raises(RegistryError) as refused:
                await made.run(*compare(200, 20_000))
            assert refused.value.code == 429

    asyncio.run(check())
