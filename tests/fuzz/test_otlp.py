"""Metrics that clients push, damaged at random: the broker refuses them or keeps what is sound, within its bounds."""

from __future__ import annotations

import os
import random
import tracemalloc
import uuid

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from barnabas.broker.client_telemetry import ClientTelemetry
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode
from barnabas.metrics.exposition import exposition
from barnabas.metrics.otlp import Point, encode_metrics
from barnabas.records.compression import Compression, compress
from tests.support.searches import examples

SEED = int(os.environ.get("FUZZ_SEED", "20261128"))
BYTES_MAX = 1024 * 1024
KEPT_BYTES_MAX = 8 * 1024 * 1024
"""What the broker keeps of all pushes of this test, with what Python keeps for itself."""


def sound(rng: random.Random) -> bytes:
    """Return metrics as a client pushes them, of all kinds."""
    points = [
        Point(
            rng.choice(["org.apache.kafka.consumer.x", "app.y", ""]) + str(rng.randrange(20)),
            is_counter=rng.random() < 0.5,
            is_delta=rng.random() < 0.5,
            value=rng.choice([0.0, 1.5, -1.0, 1e308, float("nan")]),
            attributes=tuple((f"label.{number}", "v" * rng.randrange(300)) for number in range(rng.randrange(4))),
        )
        for _ in range(rng.randrange(1, 30))
    ]
    data = MetricsData.FromString(encode_metrics(points, {"group_id": "ctr"}, started_ns=1, now_ns=2))
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    metrics.add(name="h").histogram.data_points.add(count=2, bucket_counts=[1, 1])
    metrics.add(name="s").summary.data_points.add(count=2)
    return bytes(data.SerializeToString())


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with some of them changed, left out, doubled or put in."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(changed) + 1)
        length = rng.choice([1, 1, 2, 16])
        kind = rng.randrange(4)
        if kind == 0:
            changed[at : at + length] = rng.randbytes(length)
        elif kind == 1:
            del changed[at : at + length]
        elif kind == 2:
            changed[at:at] = changed[at : at + 50 * length]
        else:
            changed[at:at] = rng.choice([b"\xff" * 10, b"\xff\xff\xff\xff\x0f", b"\x0a\x00" * 500, b"\x7a\x05"])
    return bytes(changed)


def push(telemetry: ClientTelemetry, rng: random.Random, content: bytes) -> ErrorCode:
    compression = rng.choice(list(Compression))
    compressed = compress(compression, content)
    if rng.random() < 0.3:
        compressed = damaged(rng, compressed)
    client = telemetry.subscribe(bytes(16), "fuzz")
    steps = telemetry.push(
        client.client_instance_id, "fuzz", client.subscription_id, compression, compressed, is_terminating=False
    )
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return ErrorCode(end.value)


def test_damaged_pushes_are_refused_or_kept_within_bounds() -> None:
    rng = random.Random(SEED)
    ids = (uuid.UUID(int=rng.getrandbits(128)) for _ in iter(int, 1))
    telemetry = ClientTelemetry(
        metrics=["*"], interval_ms=1_000, bytes_max=BYTES_MAX, clock=ManualClock(), new_id=lambda: next(ids)
    )
    answers = {push(telemetry, rng, sound(rng))}
    tracemalloc.start()
    try:
        for _ in range(examples(400)):
            content = sound(rng)
            answers.add(push(telemetry, rng, damaged(rng, content) if rng.random() < 0.8 else content))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answers <= {ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.TELEMETRY_TOO_LARGE}
    assert {ErrorCode.NONE, ErrorCode.INVALID_RECORD} <= answers
    assert kept_bytes < KEPT_BYTES_MAX * examples(400) // 400
    assert exposition(telemetry.collect())
