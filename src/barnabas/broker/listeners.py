"""The listeners of a running broker: their sockets, TLS contexts, authentication and request pipelines."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor

from barnabas.addresses import host_port
from barnabas.broker.authentication import ListenerAuthentication
from barnabas.broker.environment import Environment
from barnabas.broker.fair_threads import FairThreads
from barnabas.broker.pipeline.call import ListenerName, ServedApis
from barnabas.broker.pipeline.chain import Stage
from barnabas.broker.pipeline.scheduler import CooperativeScheduler, RequestPipeline
from barnabas.broker.security_log import SecurityLog
from barnabas.broker.settings.listeners import (
    ListenerConfig,
    authenticates,
    check_authorization,
    check_overrides,
    check_protection,
    check_super_users,
    inter_broker_listener,
    listeners_of,
    mapping_rules,
    own_connection_rate,
    reauthentication_ms,
    requires_super_users,
    sasl_mechanisms,
    tls_settings,
)
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.super_users import SuperUsers
from barnabas.clock import Clock
from barnabas.coordination.values import BrokerEndpoint
from barnabas.errors import ConfigurationError, UnavailableError
from barnabas.log_lines import LogEvent, event
from barnabas.net.client_connection import ConnectionSecurity
from barnabas.net.listener import ConnectionResources, Listener
from barnabas.net.server_connection import Limits
from barnabas.net.tls import TlsContext, client_context, server_context
from barnabas.security.nonces import new_nonce
from barnabas.security.principal import DistinguishedName, Principal, PrincipalMapping
from barnabas.security.protocols import OAUTHBEARER, SecurityProtocol
from barnabas.security.sasl import SaslClient, SaslCredentials, SaslServer, new_sasl_client
from barnabas.security.secret_sources import read_secret
from barnabas.security.secrets import Secret

log = logging.getLogger(__name__)

ALL_ADDRESSES = "0.0.0.0"
HANDSHAKE_THREADS = 2
RELOAD_CHECK_S = 5.0
"""The interval at which changed certificate files are looked for."""

NewServers = Callable[[tuple[str, ...]], Mapping[str, Callable[[], SaslServer]]]
"""Returns what creates the server side of each of the named mechanisms."""


class OpenListener:
    """One listener with its socket."""

    def __init__(self, config: ListenerConfig, listener: Listener, tls: TlsContext | None, port: int) -> None:
        self.config = config
        self.listener = listener
        self.tls = tls
        self.port = port

    @property
    def name(self) -> ListenerName:
        return ListenerName(self.config.name, self.config.protocol.value, self.config.serves_brokers)

    @property
    def endpoint(self) -> BrokerEndpoint:
        """The address that the broker advertises."""
        own = self.config
        return BrokerEndpoint(
            own.name, own.advertised_host or own.host, own.advertised_port or self.port, own.protocol.value
        )


class Listeners:
    """All listeners of a broker. `listen` comes first, then `serve` for clients and for brokers.

    :raises ConfigurationError: the settings are invalid, a certificate cannot be used, or a listener would accept
        anonymous clients from other machines.
    """

    def __init__(
        self, config: BrokerConfig, environment: Environment, limits: Limits, clock: Clock, security_log: SecurityLog
    ) -> None:
        self._config = config
        self._clock = clock
        check_overrides(config)
        self.configs = listeners_of(config)
        self._open_to_all = check_protection(config, self.configs)
        self._super_users = SuperUsers(config.super_users)
        check_super_users(config, self.configs)
        check_authorization(config, self.configs)
        # With ACLs, the stage of authorization checks each request of a broker.
        self._checks_brokers = not config.authorizer_class_name
        self._environment = environment
        self._limits = limits
        self._resources = ConnectionResources(limits)
        self._contexts = {
            each.name: TlsContext(tls_settings(config, each), server_context)
            for each in self.configs
            if each.protocol.uses_tls
        }
        self._handshake_threads: Executor | None = None
        if self._contexts:
            self._handshake_threads = environment.new_threads(HANDSHAKE_THREADS, "handshakes")
        # A thread of its own, so that an authentication does not wait behind the handshakes of thousands of clients.
        uses_sasl = any(each.protocol.uses_sasl for each in self.configs)
        self._sasl_thread: Executor | None = environment.new_threads(1, "authentication") if uses_sasl else None
        self._fair_threads = None if self._sasl_thread is None else FairThreads(self._sasl_thread, clock.monotonic)
        self._security_log = security_log
        self.open: list[OpenListener] = []

    @property
    def clients(self) -> list[OpenListener]:
        """The listeners for clients; the first one is the main one."""
        return [each for each in self.open if not each.config.serves_brokers]

    @property
    def brokers(self) -> list[OpenListener]:
        """The listeners for brokers."""
        return [each for each in self.open if each.config.serves_brokers]

    @property
    def authenticates(self) -> bool:
        """True if a listener for clients authenticates its clients."""
        return any(authenticates(self._config, each) for each in self.configs if not each.serves_brokers)

    def listen(self) -> None:
        """Bind all addresses. Connections wait until `serve` is called.

        :raises UnavailableError: an address cannot be bound.
        """
        for each in self.configs:
            tls = self._contexts.get(each.name)
            limits = dataclasses.replace(
                self._limits,
                must_authenticate=each.protocol.uses_sasl,
                own_connections_per_s_max=own_connection_rate(self._config, each),
            )
            if each.serves_brokers:
                limits = dataclasses.replace(
                    limits, connections_per_s_max=lambda: None, connections_per_s_of=lambda _host: None
                )
            listener = self._environment.listen(
                limits,
                None if each.serves_brokers else self._resources,
                None if tls is None or self._handshake_threads is None else (tls, self._handshake_threads),
            )
            host = each.host or ALL_ADDRESSES
            with explaining_address(host, each.port, each.flag):
                try:
                    port = listener.listen(host, each.port)
                except BaseException:
                    listener.close()
                    raise
            self.open.append(OpenListener(each, listener, tls, port))
        for address in self._open_to_all:
            log.warning("listener %s accepts all clients without authentication (allow.anonymous)", address)

    def serve(
        self,
        opened: OpenListener,
        served: ServedApis,
        scheduler: CooperativeScheduler,
        new_servers: NewServers,
        stages: Sequence[Stage] = (),
    ) -> RequestPipeline:
        """Accept the connections of a listener; return the pipeline of its requests."""
        pipeline = RequestPipeline(
            served,
            scheduler,
            opened.name,
            self._authentication(opened.config, new_servers),
            self._principal_of(opened.config),
            stages,
        )
        opened.listener.accept(pipeline.new_handler)
        return pipeline

    def close(self) -> None:
        """Close all listeners and their connections."""
        for each in self.open:
            each.listener.close()
        for threads in (self._handshake_threads, self._sasl_thread):
            if threads is not None:
                threads.shutdown(wait=False)

    async def finish_clients(self, timeout_s: float) -> None:
        """Stop listening to clients, and complete the requests that have started."""
        await asyncio.gather(*(each.listener.finish(timeout_s) for each in self.clients))

    async def run(self) -> None:
        """Load changed certificates, until the task is cancelled."""
        while self._contexts:
            await asyncio.sleep(RELOAD_CHECK_S)
            await self.reload()

    async def reload(self) -> None:
        """Load changed certificates now. Open connections continue with the old ones."""
        loop = asyncio.get_running_loop()
        for name, context in self._contexts.items():
            try:
                if await loop.run_in_executor(self._handshake_threads, context.reload):
                    log.info("listener %s uses the changed certificates for new connections", name)
            except ConfigurationError as error:
                extra = event(LogEvent.CERTIFICATE_NOT_RELOADED)
                message = "cannot load the changed certificates of listener %s: %s; it uses the previous ones"
                log.error(message, name, error, extra=extra)  # noqa: TRY400 - the reason is clear without a traceback

    def _authentication(self, listener: ListenerConfig, new_servers: NewServers) -> ListenerAuthentication | None:
        if not listener.protocol.uses_sasl:
            return None
        assert self._fair_threads is not None
        return ListenerAuthentication(
            mechanisms=new_servers(sasl_mechanisms(self._config, listener)),
            threads=self._fair_threads,
            clock=self._clock,
            listener_name=listener.name,
            security_log=self._security_log,
            check=self._super_users.check_broker if self._checks_broker(listener) else _accept_any,
            session_ms_max=reauthentication_ms(self._config, listener),
            failure_delay_s=self._config.connection_failed_authentication_delay_ms / 1000,
        )

    def _checks_broker(self, listener: ListenerConfig) -> bool:
        return self._checks_brokers and requires_super_users(self._config, listener)

    def _principal_of(self, listener: ListenerConfig) -> Callable[[DistinguishedName], Principal] | None:
        if not listener.protocol.uses_tls:
            return None
        principal_of = PrincipalMapping.parse(mapping_rules(self._config, listener)).principal_of
        if listener.protocol.uses_sasl or not self._checks_broker(listener):
            return principal_of

        def broker_of(subject: DistinguishedName) -> Principal:
            principal = principal_of(subject)
            self._super_users.check_broker(principal)
            return principal

        return broker_of


def _accept_any(_principal: Principal) -> None:
    """Accept each principal: the listener serves clients."""


@contextlib.contextmanager
def explaining_address(host: str, port: int, flag: str) -> Iterator[None]:
    """Replace the error of an address that cannot be bound by one with a remedy."""
    try:
        yield
    except OSError as error:
        hint = f"; choose another with {flag}, or {flag} 0 for a free one" if error.errno == errno.EADDRINUSE else ""
        raise UnavailableError(f"cannot listen on {host_port(host, port)}: {error.strerror}{hint}") from None


def inter_broker_security(config: BrokerConfig) -> ConnectionSecurity | None:
    """Return the security of this broker's connections to other brokers; None without TLS and SASL.

    :raises ConfigurationError: a certificate cannot be used, or the credentials are missing.
    """
    name = inter_broker_listener(config)
    listener = next((each for each in listeners_of(config) if each.name == name), None)
    if listener is None or listener.protocol is SecurityProtocol.PLAINTEXT:
        return None
    tls = TlsContext(tls_settings(config, listener), client_context) if listener.protocol.uses_tls else None
    if not listener.protocol.uses_sasl:
        return ConnectionSecurity(tls)
    mechanism, username = config.sasl_mechanism_inter_broker_protocol, config.sasl_inter_broker_username
    password = Secret(config.sasl_inter_broker_password)
    if mechanism == OAUTHBEARER:
        raise ConfigurationError("sasl.mechanism.inter.broker.protocol cannot be OAUTHBEARER; use SCRAM or mTLS")
    if not username or not config.sasl_inter_broker_password:
        raise ConfigurationError(
            f"listener {name} uses SASL; set sasl.inter.broker.username and sasl.inter.broker.password"
        )

    def new_client() -> SaslClient:
        given = SaslCredentials(username=username, password=read_secret("sasl.inter.broker.password", password))
        return new_sasl_client(mechanism, given, new_nonce)

    return ConnectionSecurity(tls, new_client)
