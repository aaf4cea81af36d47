"""Proves the credentials of the clients of a broker's status pages, with the users and the token keys of the broker."""

from __future__ import annotations

from barnabas.broker.sasl_mechanisms import SaslMechanisms
from barnabas.broker.user_credentials import UserCredentials
from barnabas.clock import Clock
from barnabas.security.acls import CLUSTER_NAME, Operation, ResourceType
from barnabas.security.authorizer import Authorizer
from barnabas.security.http_authentication import HttpCredentials, HttpIdentity
from barnabas.security.plain import PlainServer, encode_plain
from barnabas.security.principal import Principal


class StatusAuthentication:
    """Proves passwords and tokens. Any thread may use it.

    :param authorizer: decides who may describe the cluster; None if the broker has no ACLs.
    """

    def __init__(
        self, users: UserCredentials, mechanisms: SaslMechanisms, clock: Clock, authorizer: Authorizer | None
    ) -> None:
        self._users = users
        self._mechanisms = mechanisms
        self._clock = clock
        self._authorizer = authorizer

    def prove(self, credentials: HttpCredentials) -> HttpIdentity:
        """Return the identity of a client. The call hashes a password, which takes milliseconds.

        :raises AuthenticationError: the credentials are wrong, or the broker accepts no tokens.
        """
        if credentials.is_token:
            accepted = self._mechanisms.accepted_token(credentials.secret.reveal())
            lifetime_s = (accepted.expires_ms - self._clock.time_ms()) / 1000
            return HttpIdentity(Principal("User", accepted.principal), True, lifetime_s)
        server = PlainServer(self._users.find, self._users.decoys)
        server.respond(encode_plain(credentials.user, credentials.secret.reveal()))
        return HttpIdentity(Principal("User", server.principal), True)

    def may_describe(self, principal: Principal, host: str) -> bool:
        """Return whether a principal at an address may describe the cluster, which the metrics do."""
        if self._authorizer is None:
            return True
        # This method of the authorizer has no memory, which belongs to the event loop's thread.
        return self._authorizer.decide(
            principal, host, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
        ).is_allowed
