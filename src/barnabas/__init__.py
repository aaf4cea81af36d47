"""Barnabas: a distributed log for log and activity data, speaking Kafka's protocol."""

__version__ = "0.1.0"
