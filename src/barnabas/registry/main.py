"""Runs one registry in the foreground until it is stopped."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from barnabas.addresses import bare_host, host_port
from barnabas.client.broker_login import BrokerLogin, blocking_prover
from barnabas.client.config import AdminConfig, make_config, settings_of_all_clients
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError, UnavailableError
from barnabas.metrics.metric import Sample, counter, gauge
from barnabas.net.status_server import LoopProbe, serving_status
from barnabas.net.tls import TlsContext, server_context
from barnabas.registry.authentication import ClientAuthentication, NoAuthentication
from barnabas.registry.http_server import HttpServer, Request, Response
from barnabas.registry.routes import Authentication, RestApi, refusal
from barnabas.registry.schema_topic import SchemaTopic
from barnabas.registry.service import Service
from barnabas.registry.state import RegistryState
from barnabas.registry.subject_acls import SubjectAcls, fetch_acls
from barnabas.registry.work_pool import WorkPool
from barnabas.security.http_settings import OPEN, HttpAddress, HttpSecurity
from barnabas.security.principal import PrincipalMapping, parse_principals
from barnabas.security.security_log import HttpSecurityLog
from barnabas.stop_signals import stop_on_signals

ANSWER_S = 45.0
ALL_ADDRESSES = "0.0.0.0"

log = logging.getLogger(__name__)

ANSWERS = counter("barnabas_registry_answers_total", "Responses of the registry.", "status")
SUBJECTS = gauge("barnabas_registry_subjects", "Subjects in the registry, including soft-deleted ones.")
LOG_POSITION = gauge("barnabas_registry_log_position", "Offset of the schema topic up to which the registry has read.")


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """The settings of a registry.

    :param url: URL to print when the registry is ready; None means its host and port.
    :param topic: the topic that stores the schemas.
    :param settings: client settings under Kafka's names.
    :param security: TLS and authentication of the REST interface.
    :param login_settings: client settings of the listener where users log in; None for `bootstrap` and `settings`.
    :param mapping_rules: Kafka's `ssl.principal.mapping.rules` for client certificates.
    :param super_users: Kafka's `super.users`: principals that may do everything, separated by semicolons.
    :param checks_acls: False if the brokers have ACLs, but do not know those on subjects.
    """

    bootstrap: str
    host: str = "127.0.0.1"
    port: int = 8081
    url: str | None = None
    topic: str = "_schemas"
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    security: HttpSecurity = OPEN
    login_settings: Mapping[str, str] | None = field(default=None, repr=False)
    mapping_rules: str = "DEFAULT"
    super_users: str = ""
    checks_acls: bool = True

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "host", bare_host(self.host) if self.host else "")
        except ValueError as error:
            raise ConfigurationError(f"--host: {error}") from None
        self.security.check(f"the registry at {host_port(self.host or ALL_ADDRESSES, self.port)}", self.host)

    @property
    def settings_of_logins(self) -> Mapping[str, str]:
        """The settings of the connection where users log in."""
        return self.login_settings or {**self.settings, "bootstrap.servers": self.bootstrap}


def _authentication(config: RegistryConfig, security_log: HttpSecurityLog) -> Authentication:
    """Return what authenticates the clients of a registry.

    :raises ConfigurationError: users cannot log in with these settings, and there are no client certificates.
    """
    if not config.security.authenticates:
        return NoAuthentication()
    client = make_config(AdminConfig, settings_of_all_clients(config.settings_of_logins), {})
    by_certificate_only = config.security.cafile is not None and not client.security_protocol.uses_sasl
    login = None if by_certificate_only else BrokerLogin(client, SYSTEM_CLOCK)
    return ClientAuthentication(login, PrincipalMapping.parse(config.mapping_rules), SYSTEM_CLOCK, security_log)


class Registry:
    """A registry that runs on the current event loop.

    :raises ConfigurationError: the settings are invalid, or a certificate cannot be used.
    """

    def __init__(self, config: RegistryConfig) -> None:
        self._config = config
        self._security_log = HttpSecurityLog("registry", SYSTEM_CLOCK.monotonic)
        self._authentication = _authentication(config, self._security_log)
        tls = config.security.tls
        self._tls = None if tls is None else TlsContext(tls, server_context)
        super_users = parse_principals(config.super_users)
        self._state = RegistryState()
        self._topic = SchemaTopic(config.bootstrap, config.topic, self._state, config.settings)
        self._work = WorkPool()
        self._acls: SubjectAcls | None = None
        if config.checks_acls:
            fetch = functools.partial(fetch_acls, self._topic.cluster)
            self._acls = SubjectAcls(fetch, super_users.__contains__, SYSTEM_CLOCK)
        self._server: HttpServer | None = None
        self._rest: RestApi | None = None
        self._answers: Counter[int] = Counter()
        """The number of responses by status."""
        self.url = ""
        """The URL for clients, once the registry has started."""

    async def start(self) -> None:
        """Read all schemas and start listening.

        :raises BarnabasError: no broker responds, or the registry cannot listen on the address.
        """
        config = self._config
        if self._acls is not None:
            self._acls.begin()
        await asyncio.gather(self._topic.start(), self._work.start())
        self._server = HttpServer(
            self._answer, refusal, answer_s=ANSWER_S, tls=self._tls, refuse_head=self._refuse_head
        )
        if config.security.is_open_to_all(config.host):
            log.warning("the registry accepts all clients without authentication (--allow-anonymous)")
        try:
            port = await self._server.start(config.host, config.port)
        except OSError as error:
            raise UnavailableError(
                f"cannot listen on {host_port(config.host, config.port)}: {error.strerror}"
            ) from error
        self.url = config.url or f"{config.security.scheme}://{host_port(config.host, port)}"
        service = Service(self._state, self._topic, self._work)
        self._rest = RestApi(service, self._authentication, self._acls, self._security_log.note_refusal)

    async def _answer(self, request: Request) -> Response:
        if self._rest is None:
            return refusal(503, "the registry is starting; try again")
        response = await self._rest.answer(request)
        self._answers[response.status] += 1
        return response

    async def _refuse_head(self, request: Request) -> Response | None:
        """Refuse a client that does not authenticate, before the body of its request is read."""
        refused = None if self._rest is None else await self._rest.refuse_stranger(request)
        if refused is not None:
            self._answers[refused.status] += 1
        return refused

    def collect(self) -> Iterator[Sample]:
        """Yield the metrics. Thread-safe."""
        for status, count in sorted(self._answers.copy().items()):
            yield ANSWERS.sample(count, str(status))
        yield SUBJECTS.sample(self._state.subject_count)
        yield LOG_POSITION.sample(self._topic.next_offset)

    def not_ready(self) -> list[str]:
        """Return the reasons why the registry is not ready. Thread-safe."""
        if self._rest is None:
            return [f"the registry is reading {self._config.topic}"]
        failures = {self._config.topic: self._topic.failure, "ACLs": "" if self._acls is None else self._acls.failure}
        return [f"cannot read {what}: {error}" for what, error in failures.items() if error]

    async def stop(self) -> None:
        """Finish the current requests, then stop."""
        if self._server is not None:
            await self._server.stop()
        if self._acls is not None:
            await self._acls.close()
        await self._topic.stop()
        await self._work.stop()


def run(config: RegistryConfig, http: str | None = None) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP, and print `ready URL` once the registry serves; return the exit code.

    :param http: address for metrics and health, with the security of the REST interface; None disables them.
    :raises BarnabasError: no broker responds, or the registry cannot listen on an address.
    """
    asyncio.run(_serve(config, http))
    return 0


async def _serve(config: RegistryConfig, http: str | None) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    stop_on_signals(loop, stop.set)
    registry = Registry(config)
    pages = None if http is None else HttpAddress(http, dataclasses.replace(config.security, cafile=None))
    needs_login = http is not None and config.security.authenticates
    prove = blocking_prover(config.settings_of_logins) if needs_login else None
    with serving_status(pages, registry.collect, registry.not_ready, LoopProbe(loop).is_alive, prove):
        try:
            await registry.start()
            sys.stdout.write(f"ready {registry.url}\n")
            sys.stdout.flush()
            await stop.wait()
        finally:
            await registry.stop()
