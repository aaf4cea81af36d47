"""Python clients that authenticate: each sends one record and reads it again.

`exchange` returns the value that the client reads. If the broker refuses the client, `exchange` raises `RefusedError`
with the error that the client itself reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

import aiokafka
import aiokafka.abc
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from aiokafka.helpers import create_ssl_context
from kafka.net.sasl.oauth import AbstractTokenProvider

import barnabas
from barnabas.errors import AuthenticationError, BarnabasError
from tests.support.authenticating_broker import TOKEN_LIFETIME_S, Access

TIMEOUT_S = 20
"""The maximum duration of one exchange. A client that needs longer hangs."""
TIMEOUT_MS = TIMEOUT_S * 1000
POLL_S = 0.1
BOOTSTRAP_TIMEOUT_MS = 1500
"""The time during which kafka-python retries a refused connection."""


class RefusedError(Exception):
    """The client reports that the broker refused it."""


class SecuredClient(Protocol):
    """A client of the matrix."""

    name: str

    def version(self) -> str:
        """Return the version of the client."""

    def exchange(self, access: Access, topic: str, value: str) -> str:
        """Send a record to partition 0 of a topic, read it again, and return its value.

        :raises RefusedError: the client reports an authentication error.
        """


class Ours:
    name = "barnabas"

    def version(self) -> str:
        return barnabas.__version__

    def exchange(self, access: Access, topic: str, value: str) -> str:
        settings: dict[str, Any] = {"bootstrap": access.bootstrap, "security_protocol": access.protocol}
        if access.protocol.endswith("SSL"):
            settings["ssl_cafile"] = access.ca
        if access.certificate:
            settings["ssl_certfile"] = access.certificate
        if access.mechanism:
            settings["sasl_mechanism"] = access.mechanism
        if access.token:
            settings["sasl_oauth_token"] = lambda: access.token
        elif access.mechanism:
            settings |= {"sasl_username": access.username, "sasl_password": access.password}
        try:
            with barnabas.Producer(**settings) as producer:
                sent = producer.send(topic, value.encode(), partition=0).result(TIMEOUT_S)
            with barnabas.Consumer(**settings) as consumer:
                consumer.assign([(topic, 0)])
                consumer.seek((topic, 0), sent.offset)
                return _first(lambda: [each.value for each in consumer.poll(timeout_s=POLL_S)]).decode()
        except AuthenticationError as error:
            raise RefusedError(repr(error)) from error
        except BarnabasError as error:
            raise AssertionError(f"no authentication error: {error!r}") from error


class ConfluentKafka:
    """Confluent's client; librdkafka reports a refusal to its error callback, and tries again."""

    name = "confluent-kafka"
    _refusals = (confluent_kafka.KafkaError._AUTHENTICATION, confluent_kafka.KafkaError._SSL)
    _alert = "SSL alert"
    """A refused certificate is a disconnection for librdkafka; its text has the alert of the broker."""

    def version(self) -> str:
        return f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

    def exchange(self, access: Access, topic: str, value: str) -> str:
        errors: list[confluent_kafka.KafkaError] = []
        delivered: list[confluent_kafka.Message] = []
        settings: dict[str, Any] = {
            "bootstrap.servers": access.bootstrap,
            "security.protocol": access.protocol,
            "error_cb": errors.append,
            "log_level": 2,
        }
        if access.protocol.endswith("SSL"):
            settings["ssl.ca.location"] = access.ca
        if access.certificate:
            settings |= {"ssl.certificate.location": access.certificate, "ssl.key.location": access.certificate}
        if access.mechanism:
            settings["sasl.mechanisms"] = access.mechanism
        if access.token:
            # The client itself refuses an expired token, so it gets a lifetime that the token does not have.
            settings["oauth_cb"] = lambda _: (access.token, time.time() + TOKEN_LIFETIME_S)
        elif access.mechanism:
            settings |= {"sasl.username": access.username, "sasl.password": access.password}

        def delivered_or_refused() -> list[confluent_kafka.Message]:
            producer.poll(POLL_S)
            self._raise_refusal(errors)
            return delivered

        producer = confluent_kafka.Producer(settings)
        producer.produce(topic, value, partition=0, on_delivery=lambda _, message: delivered.append(message))
        try:
            message = _first(delivered_or_refused)
        finally:
            producer.purge()
        consumer = confluent_kafka.Consumer(settings | {"group.id": "matrix"})
        with contextlib.closing(consumer):
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, message.offset())])
            return str(_first(lambda: consumer.consume(1, POLL_S)).value().decode())

    def _raise_refusal(self, errors: list[confluent_kafka.KafkaError]) -> None:
        for error in errors:
            if error.code() in self._refusals or self._alert in error.str():
                raise RefusedError(f"{error.name()}: {error.str()}")


class KafkaPython:
    """kafka-python retries a refused connection until a timeout, whose error has no reason.

    Its log has the reason, unless the end of the connection arrives together with the response: then, kafka-python
    drops the response.
    """

    name = "kafka-python"
    _reasons = ("SaslAuthenticationFailedError", "_ALERT_", "socket disconnected")

    def version(self) -> str:
        return str(kafka.__version__)

    def exchange(self, access: Access, topic: str, value: str) -> str:
        class Token(AbstractTokenProvider):
            def token(self) -> str:
                return access.token

        settings: dict[str, Any] = {
            "bootstrap_servers": access.bootstrap,
            "security_protocol": access.protocol,
            "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
        }
        if access.protocol.endswith("SSL"):
            settings["ssl_cafile"] = access.ca
        if access.certificate:
            settings |= {"ssl_certfile": access.certificate, "ssl_keyfile": access.certificate}
        if access.mechanism:
            settings["sasl_mechanism"] = access.mechanism
        if access.token:
            settings["sasl_oauth_token_provider"] = Token()
        elif access.mechanism:
            settings |= {"sasl_plain_username": access.username, "sasl_plain_password": access.password}
        log = _Warnings(kafka.__name__)
        try:
            with log, contextlib.closing(kafka.KafkaProducer(**settings, max_block_ms=TIMEOUT_MS)) as producer:
                sent = producer.send(topic, value.encode(), partition=0).get(TIMEOUT_S)
            with contextlib.closing(kafka.KafkaConsumer(**settings)) as consumer:
                partition = kafka.TopicPartition(topic, 0)
                consumer.assign([partition])
                consumer.seek(partition, sent.offset)
                records = _first(lambda: list(consumer.poll(int(POLL_S * 1000)).values()))
                return str(records[0].value.decode())
        except kafka.errors.KafkaError as error:
            reason = next((line for line in log.lines if any(each in line for each in self._reasons)), None)
            if reason is None:
                raise
            raise RefusedError(f"{error!r}: {reason}") from error


class Aiokafka:
    """aiokafka raises KafkaConnectionError for a refused connection; its log has the reason for some mechanisms."""

    name = "aiokafka"

    def version(self) -> str:
        return str(aiokafka.__version__)

    def exchange(self, access: Access, topic: str, value: str) -> str:
        return asyncio.run(self._exchange(access, topic, value))

    async def _exchange(self, access: Access, topic: str, value: str) -> str:
        class Token(aiokafka.abc.AbstractTokenProvider):
            async def token(self) -> str:
                return access.token

        settings: dict[str, Any] = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
        if access.protocol.endswith("SSL"):
            own = access.certificate or None
            settings["ssl_context"] = create_ssl_context(cafile=access.ca, certfile=own, keyfile=own)
        if access.mechanism:
            settings["sasl_mechanism"] = access.mechanism
        if access.token:
            settings["sasl_oauth_token_provider"] = Token()
        elif access.mechanism:
            settings |= {"sasl_plain_username": access.username, "sasl_plain_password": access.password}
        log = _Warnings(aiokafka.__name__)
        producer, consumer = aiokafka.AIOKafkaProducer(**settings), aiokafka.AIOKafkaConsumer(**settings)
        try:
            with log:
                async with asyncio.timeout(TIMEOUT_S):
                    await producer.start()
                    sent = await producer.send_and_wait(topic, value.encode(), partition=0)
                    await consumer.start()
                    partition = aiokafka.TopicPartition(topic, 0)
                    consumer.assign([partition])
                    consumer.seek(partition, sent.offset)
                    return str((await consumer.getone()).value.decode())
        except aiokafka.errors.KafkaConnectionError as error:
            raise RefusedError(f"{error!r}: {log.lines[-1]}") from error
        finally:
            await consumer.stop()
            await producer.stop()


class _Warnings(logging.Handler):
    """Keeps the warnings and errors that a library logs, while the context is active."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._logger = logging.getLogger(name)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> _Warnings:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)


def _first(poll: Callable[[], Any]) -> Any:
    """Return the first item that a function returns, within the time limit."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if found := poll():
            return found[0]
    raise TimeoutError(f"the client reported nothing within {TIMEOUT_S} s")


PYTHON_CLIENTS: list[SecuredClient] = [Ours(), ConfluentKafka(), KafkaPython(), Aiokafka()]
