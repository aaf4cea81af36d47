"""Clients that send requests as fast as the broker reads them, and never wait: `greedy_clients.py PORT COUNT TOPIC`.

A third of them produce, a third fetch, and a third request metadata. The program prints a line when all are connected,
and ends when its standard input is closed.
"""

from __future__ import annotations

import selectors
import socket
import sys
from typing import Any

from barnabas.protocol.codec import request_frame
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records import BatchBuilder

RECORD_BYTES = 16_000
RECEIVED_BYTES = 1024 * 1024
PIPELINED = 4


def request_of(number: int, topic: str) -> tuple[Any, int]:
    """Return the request that a client repeats, and its version."""
    if number % 3 == 0:
        builder = BatchBuilder()
        builder.append(1_000, None, bytes(RECORD_BYTES), [])
        data = [PartitionProduceData(index=0, records=bytes(builder.build()))]
        return ProduceRequest(
            acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        ), 9
    if number % 3 == 1:
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=RECEIVED_BYTES)
        wanted = [FetchTopic(topic=topic, partitions=[part])]
        return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=RECEIVED_BYTES, topics=wanted), 11
    return MetadataRequest(topics=None), 9


def main() -> None:
    port, count, topic = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    selector = selectors.DefaultSelector()
    for number in range(count):
        request, version = request_of(number, topic)
        frame = b"".join(request_frame(request, version, 1, f"greedy-{number}"))
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, [frame * PIPELINED, 0])
    selector.register(sys.stdin, selectors.EVENT_READ)
    print("connected", flush=True)  # noqa: T201
    while True:
        for key, events in selector.select():
            if key.fileobj is sys.stdin:
                return
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if events & selectors.EVENT_READ:
                sock.recv(RECEIVED_BYTES)
            if events & selectors.EVENT_WRITE:
                frames, sent = key.data
                key.data[1] = (sent + sock.send(frames[sent:])) % len(frames)


if __name__ == "__main__":
    main()
