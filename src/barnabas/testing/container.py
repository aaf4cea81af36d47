"""The broker behind the interface of testcontainers' `KafkaContainer`, for tests that use it already."""

from __future__ import annotations

from typing import Self

from barnabas.testing.broker_process import HOST, START_TIMEOUT_S, BrokerProcess

KAFKA_PORT = 9093
"""The port inside of a `KafkaContainer`."""


class BarnabasContainer:
    """A broker with the methods of `testcontainers.kafka.KafkaContainer`. It needs no Docker.

        with BarnabasContainer() as kafka:
            producer = barnabas.Producer(kafka.get_bootstrap_server())

    :param image: ignored; the broker is the installed Barnabas.
    :param port: the port inside of the container, for `get_exposed_port`.
    """

    def __init__(self, image: str = "", port: int = KAFKA_PORT) -> None:
        del image
        self._port = port
        self._settings: dict[str, str] = {}
        self._broker: BrokerProcess | None = None

    def with_env(self, key: str, value: str) -> Self:
        """Set a broker setting, as the images of Kafka do.

        :param key: an environment variable such as `KAFKA_NUM_PARTITIONS` for `num.partitions`. Variables without the
            prefix `KAFKA_` are ignored.
        :param value: the value of the setting.
        :raises RuntimeError: the broker runs already.
        """
        if self._broker is not None:
            raise RuntimeError("with_env() has no effect on a running broker; call it before start()")
        if key.startswith("KAFKA_"):
            self._settings[key.removeprefix("KAFKA_").lower().replace("_", ".")] = value
        return self

    def with_kraft(self) -> Self:
        """Do nothing: a single broker needs neither KRaft nor ZooKeeper."""
        return self

    def start(self, timeout: float = START_TIMEOUT_S) -> Self:
        """Start the broker and wait until it is ready.

        :param timeout: the maximum time in seconds.
        :raises BrokerProcessError: the broker did not start; the message contains its log.
        """
        if self._broker is None:
            self._broker = BrokerProcess(self._settings, start_timeout_s=timeout).start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Stop the broker and remove its data. The arguments are those of testcontainers, and are ignored."""
        del force, delete_volume
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def get_bootstrap_server(self) -> str:
        """Return the address HOST:PORT for clients.

        :raises RuntimeError: the broker does not run.
        """
        return self._running().bootstrap

    def get_container_host_ip(self) -> str:
        """Return the host of the address for clients."""
        return HOST

    def get_exposed_port(self, port: int) -> int:
        """Return the port of the address for clients.

        :param port: the port inside of the container.
        :raises RuntimeError: the broker does not run.
        :raises ValueError: the container has no such port.
        """
        if int(port) != self._port:
            raise ValueError(f"the broker has no port {port}; its only port is {self._port}")
        return self._running().port

    def get_logs(self) -> tuple[bytes, bytes]:
        """Return the standard output, which is empty, and the log of the broker.

        :raises RuntimeError: the broker does not run.
        """
        return b"", self._running().log.encode()

    def get_broker(self) -> BrokerProcess:
        """Return the broker, which offers faults.

        :raises RuntimeError: the broker does not run.
        """
        return self._running()

    def _running(self) -> BrokerProcess:
        if self._broker is None:
            raise RuntimeError("the broker does not run; call start() first")
        return self._broker
