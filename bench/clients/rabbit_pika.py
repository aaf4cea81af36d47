"""The pika client of RabbitMQ: persistent messages to a durable queue, no confirms, automatic acknowledgements."""

# mypy: disable-error-code="import-untyped,import-not-found"

from __future__ import annotations

import itertools
import time
from typing import Any

import pika

from bench.clients.request import Request, new_meter, parse_request, print_report, require_progress

STRETCH_RECORDS = 200
PERSISTENT = 2


def connect(request: Request) -> tuple[Any, Any]:
    """Declare the queue. Return a connection and a channel."""
    host, port = request.host_and_port
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
    channel = connection.channel()
    channel.queue_declare(request.topic, durable=True)
    return connection, channel


def produce(request: Request) -> None:
    """Publish one message per call. The response to a final request proves that the broker has all messages."""
    connection, channel = connect(request)
    properties = pika.BasicProperties(delivery_mode=PERSISTENT)
    endless = itertools.cycle(request.values())
    meter = new_meter()
    meter.begin()
    for begin in range(0, request.records, STRETCH_RECORDS):
        count = min(STRETCH_RECORDS, request.records - begin)
        for value in itertools.islice(endless, count):
            channel.basic_publish("", request.topic, value, properties)
        meter.add(count, count * request.size)
    channel.queue_declare(request.topic, durable=True, passive=True)
    print_report(meter.end())
    connection.close()


def consume(request: Request) -> None:
    """Receive messages with a callback and automatic acknowledgements. The clock starts at the first message."""
    connection, channel = connect(request)
    meter = new_meter()
    got = 0

    def take(_channel: Any, _method: Any, _properties: Any, _body: bytes) -> None:
        nonlocal got
        if not got:
            meter.begin()
        got += 1
        if got % STRETCH_RECORDS == 0:
            meter.add(STRETCH_RECORDS, STRETCH_RECORDS * request.size)

    channel.basic_consume(request.topic, take, auto_ack=True)
    before, last_s = 0, time.monotonic()
    while got < request.records:
        connection.process_data_events(0.1)
        if got > before:
            before, last_s = got, time.monotonic()
        require_progress(0, time.monotonic() - last_s)
    rest = got - meter.records
    meter.add(rest, rest * request.size)
    print_report(meter.end())
    connection.close()


def main() -> None:
    """Run the command line."""
    request = parse_request()
    {"produce": produce, "consume": consume}[request.action](request)


if __name__ == "__main__":
    main()
