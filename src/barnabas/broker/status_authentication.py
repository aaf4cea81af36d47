"""Proves the credentials of the clients of a broker's status pages, with the users and the token keys of the broker."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.sasl_mechanisms import SaslMechanisms
from barnabas.broker.user_credentials import UserCredentials
from barnabas.clock import Clock
from barnabas.errors import AuthenticationError
from barnabas.security.http_authentication import HttpCredentials, HttpIdentity
from barnabas.security.plain import PlainServer, encode_plain
from barnabas.security.principal import Principal


class StatusAuthentication:
    """Proves passwords and tokens. Any thread may use it.

    :param may_describe: returns whether a principal may describe the cluster.
    """

    def __init__(
        self,
        users: UserCredentials,
        mechanisms: SaslMechanisms,
        clock: Clock,
        may_describe: Callable[[Principal], bool],
    ) -> None:
        self._users = users
        self._mechanisms = mechanisms
        self._clock = clock
        self._may_describe = may_describe

    def prove(self, credentials: HttpCredentials) -> HttpIdentity:
        """Return the identity of a client. The call hashes a password, which takes milliseconds.

        :raises AuthenticationError: the credentials are wrong, or the broker accepts no tokens.
        """
        if credentials.is_token:
            accepted = self._mechanisms.accepted_token(credentials.secret.reveal())
            principal = Principal("User", accepted.principal)
            return HttpIdentity(
                principal, self._may_describe(principal), (accepted.expires_ms - self._clock.time_ms()) / 1000
            )
        server = PlainServer(self._users.find, self._users.decoys)
        server.respond(encode_plain(credentials.user, credentials.secret.reveal()))
        if not server.is_complete:
            raise AuthenticationError("the password is not proved")
        principal = Principal("User", server.principal)
        return HttpIdentity(principal, self._may_describe(principal))
