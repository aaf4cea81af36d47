"""Read by a type checker, never run: what it must refuse, and what it must let pass. See test_types.py."""

from __future__ import annotations

import barnabas


def examples() -> None:
    """Calls as users write them."""
    barnabas.Producer("localhost", linger_ms=5, acks="all", compression_type="lz4", batch_size=1000)
    barnabas.Producer({"linger.ms": "5", "security.protocol": "PLAINTEXT"}, retries=3)
    barnabas.AsyncProducer(["a:1", "b:2"], acks=0, partitioner=lambda topic, key, count: 0)
    barnabas.Consumer("localhost", group="g", auto_offset_reset="earliest", enable_auto_commit=False)
    barnabas.AsyncConsumer("localhost", partition_assignment_strategy=["range", "sticky"])
    barnabas.Producer("localhost", interceptors=[barnabas.ProducerInterceptor()])
    barnabas.AsyncConsumer("localhost", interceptors=[barnabas.ConsumerInterceptor()])
    barnabas.Admin("localhost", request_timeout_ms=1000)

    barnabas.Producer("localhost", interceptors=[barnabas.ConsumerInterceptor()])  # WRONG
    barnabas.Producer("localhost", linger=5)  # WRONG
    barnabas.Producer("localhost", linger_ms="5")  # WRONG
    barnabas.Producer("localhost", group_instance_id="a")  # WRONG
    barnabas.AsyncProducer("localhost", compression_type="brotli")  # WRONG
    barnabas.Consumer("localhost", group=5)  # WRONG
    barnabas.Consumer("localhost", acks=1)  # WRONG
    barnabas.AsyncConsumer("localhost", max_poll_records=0.5)  # WRONG
    barnabas.Admin("localhost", linger_ms=5)  # WRONG
