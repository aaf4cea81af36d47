"""The measured brokers. The benchmark starts each broker on free ports with its own directory, and stops it."""

from __future__ import annotations

from bench.peers.activemq import ActiveMq
from bench.peers.barnabas import Barnabas, BarnabasCluster, TwoBarnabas
from bench.peers.kafka import Kafka, KafkaCluster
from bench.peers.rabbitmq import RabbitMq
from bench.peers.server import Server
from bench.peers.tansu import Tansu

_ALL: tuple[type[Server], ...] = (
    Barnabas,
    BarnabasCluster,
    TwoBarnabas,
    Kafka,
    KafkaCluster,
    Tansu,
    RabbitMq,
    ActiveMq,
)
SERVERS: dict[str, type[Server]] = {each.name: each for each in _ALL}
