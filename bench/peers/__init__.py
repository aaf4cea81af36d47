"""The brokers under measurement, each started on free ports in a folder of its own, and stopped, by the bench."""

from __future__ import annotations

from bench.peers.activemq import ActiveMq
from bench.peers.barnabas import Barnabas
from bench.peers.kafka import Kafka
from bench.peers.rabbitmq import RabbitMq
from bench.peers.server import Server
from bench.peers.tansu import Tansu

SERVERS: dict[str, type[Server]] = {each.name: each for each in (Barnabas, Kafka, Tansu, RabbitMq, ActiveMq)}
