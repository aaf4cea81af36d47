"""Authenticates the clients of the registry: by a client certificate, or by a login at a broker.

Nothing in a request but the header `Authorization` names the client: the registry trusts no header of a proxy.
"""

from __future__ import annotations

import asyncio

from barnabas.client.broker_login import BrokerLogin
from barnabas.clock import Clock
from barnabas.errors import AuthenticationError, BarnabasError
from barnabas.registry.errors import RegistryError
from barnabas.registry.http_server import Request
from barnabas.security.http_authentication import (
    HttpAuthentication,
    HttpCredentials,
    HttpIdentity,
    HttpRefusedError,
    parse_authorization,
)
from barnabas.security.principal import ANONYMOUS, Principal, PrincipalMapping
from barnabas.security.security_log import HttpSecurityLog
from barnabas.shielded import completed

LOGINS_MAX = 16
"""The maximum number of simultaneous logins."""


class ClientAuthentication:
    """Returns the principal of each request. Used from the event loop's thread.

    :param login: proves passwords and tokens; None if only client certificates authenticate.
    :param mapping: maps the subjects of client certificates to principals.
    """

    def __init__(
        self, login: BrokerLogin | None, mapping: PrincipalMapping, clock: Clock, security_log: HttpSecurityLog
    ) -> None:
        self._login = login
        self._mapping = mapping
        self._log = security_log
        self._memory = HttpAuthentication(clock.monotonic, security_log.note_failed_authentication)
        self._proofs: dict[bytes, asyncio.Task[HttpIdentity]] = {}
        """The logins in progress, by the digest of their credentials."""
        self._turns = asyncio.Semaphore(LOGINS_MAX)

    async def principal_of(self, request: Request) -> Principal:
        """Return the principal of a request.

        :raises RegistryError: the client does not authenticate (401), fails too often (429), or no broker responds
            (503).
        """
        try:
            if request.certificate is not None and "authorization" not in request.headers:
                return self._mapping.principal_of(request.certificate)
            credentials = parse_authorization(request.headers.get("authorization"))
            return (await self._identity(credentials, request.address)).principal
        except AuthenticationError as error:  # no rule maps the certificate
            self._log.note_failed_authentication(request.address, "", str(error))
            raise RegistryError(401, "Unauthorized") from None
        except HttpRefusedError as error:
            raise RegistryError(error.status, str(error)) from None

    async def _identity(self, credentials: HttpCredentials, address: str) -> HttpIdentity:
        known = self._memory.known(credentials)
        if known is not None:
            return known
        digest = self._memory.digest(credentials)
        proof = self._proofs.get(digest)
        if proof is None:
            self._memory.begin(address)
            proof = self._proofs[digest] = asyncio.create_task(self._prove(credentials, address))
            proof.add_done_callback(lambda _done: self._proofs.pop(digest, None))
        return await completed(proof, is_shared=True)

    async def _prove(self, credentials: HttpCredentials, address: str) -> HttpIdentity:
        try:
            if self._login is None:
                raise AuthenticationError("this registry accepts client certificates only")
            async with self._turns:
                identity = await self._login.prove(credentials)
        except BarnabasError as error:
            raise self._memory.failed(credentials, address, error) from None
        self._memory.proved(credentials, address, identity)
        return identity


class NoAuthentication:
    """The authentication of a registry without users."""

    async def principal_of(self, _request: Request) -> Principal:
        """Return the anonymous principal."""
        return ANONYMOUS
