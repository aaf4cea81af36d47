"""A topic with numbers in two partitions, for streams that count what came through."""

from __future__ import annotations

from barnabas import Producer

TOPIC = "events"
COUNT = 100
"""How many numbers the fixture `numbered_topic` begins with."""


def produce_numbers(bootstrap: str, numbers: range) -> None:
    """Send each number as text, the even ones to partition 0 and the odd ones to partition 1."""
    with Producer(bootstrap) as producer:
        for number in numbers:
            producer.send(TOPIC, b"%d" % number, partition=number % 2)
