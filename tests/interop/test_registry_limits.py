"""Work of the registry is bounded: the slowest schema of the largest size does not make other clients wait."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from barnabas.registry import work_pool
from barnabas.registry.main import Registry, RegistryConfig
from barnabas.serialization import http_calls
from tests.support.broker_process import BrokerProcess

FIELDS, VALUES, MESSAGES = 20_000, 85_000, 20_000
"""They make schemas of almost a megabyte, which is the largest record that a broker takes."""


def slowest(kind: str, count: int) -> str:
    if kind == "AVRO":
        fields = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(FIELDS + count)]
        return json.dumps({"type": "record", "name": "R", "fields": fields}, separators=(",", ":"))
    if kind == "JSON":
        values = {"v": {"enum": [f"v{number}" for number in range(VALUES)]}}
        return json.dumps({"definitions": values, "anyOf": [{"$ref": "#/definitions/v"}] * (300 + count)})
    messages = " ".join(f"message M{number} {{ map<string, M{number}> m = 1; }}" for number in range(MESSAGES + count))
    return f'syntax = "proto3"; {messages}'


def test_client_does_not_wait_for_the_slow_schema_of_another_one(
    shared_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_pool, "SLOW_CPU_S", 0.5)

    async def check() -> None:
        name = "_schemas-slow"
        registry = Registry(RegistryConfig(shared_broker.bootstrap, port=0, topic=name))
        await registry.start()

        async def post(subject: str, **body: str) -> tuple[int, Any]:
            url, content = f"{registry.url}/subjects/{subject}/versions", json.dumps(body).encode()
            status, answer, _ = await asyncio.to_thread(http_calls.call, url, "POST", content, {}, 60)
            return status, json.loads(answer)

        async def post_slow_ones(kind: str) -> list[tuple[int, Any]]:
            return [await post(f"slow-{kind}", schemaType=kind, schema=slowest(kind, count)) for count in range(2)]

        try:
            await post("first", schema='"int"')
            for kind in ("AVRO", "JSON", "PROTOBUF"):
                slow = asyncio.create_task(post_slow_ones(kind))
                rounds = 0
                while not slow.done():
                    status, answer = await post(
                        f"other-{kind}-{rounds}",
                        schema=json.dumps({"type": "fixed", "name": f"{kind}{rounds}", "size": 1}),
                    )
                    assert status == 200, answer
                    rounds += 1
                assert rounds > 1
                assert all(status in (200, 409, 422) for status, _ in await slow), await slow
                assert any(status != 200 for status, _ in await slow), "the input was not slow"
        finally:
            await registry.stop()

    asyncio.run(check())
