"""The options of HTTP servers: the status pages of `--http`, and the registry."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.addresses import split_listener
from barnabas.cli.options import allow_anonymous_option, named_connection
from barnabas.security.http_settings import HttpAddress, HttpSecurity

if TYPE_CHECKING:
    from barnabas.net.status_server import Prove

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
AUTH = "users", "none"


@dataclass(frozen=True, slots=True)
class HttpPages:
    """The status pages of a command.

    :param login_profile: the profile for the logins of users; None for the settings of the command.
    """

    http: HttpAddress
    login_profile: str | None = None

    def prover(self, settings: Mapping[str, Any]) -> Prove | None:
        """Return what proves the credentials of users; None without authentication.

        :param settings: the settings of the command's client.
        """
        if not self.http.security.authenticates:
            return None
        from barnabas.client.broker_login import blocking_prover

        return blocking_prover(login_settings(self.login_profile, settings))


def login_settings(login_profile: str | None, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of the connection where users log in.

    :raises ConfigurationError: the profile does not exist or is malformed.
    """
    return settings if login_profile is None else named_connection(login_profile, None, {}).admin_settings


def http_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--http` and the options of its security. The command gets `HttpPages`, or None, as the argument `http`."""

    @functools.wraps(function)
    def with_pages(http: str | None, http_security: HttpSecurity, http_login_profile: str | None, **others: Any) -> Any:
        if http is None and http_security.certfile is not None:
            raise click.UsageError("--http-certfile needs the address of the pages: --http [HOST:]PORT")
        pages = None if http is None else HttpPages(HttpAddress(http, http_security), http_login_profile)
        return function(http=pages, **others)

    return address_option(http_security_options(with_pages))


def http_and_metrics_port_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `http_option`, and the deprecated name `--metrics-port` from releases up to 0.1."""

    @functools.wraps(function)
    def with_port(http: HttpPages | None, metrics_port: int | None, **others: Any) -> Any:
        if http is not None and metrics_port is not None:
            raise click.UsageError("--metrics-port is the former name of --http; give only --http")
        if metrics_port is not None:
            http = HttpPages(HttpAddress(str(metrics_port)))
        return function(http=http, **others)

    return http_option(
        click.option(
            "--metrics-port", metavar="PORT", type=click.IntRange(0, 65535), help="Deprecated; use --http PORT."
        )(with_port)
    )


def broker_http_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--http` for a broker, which knows its users itself. The command gets `HttpAddress`, or None, as the argument
    `http`.
    """

    @functools.wraps(function)
    def with_address(http: str | None, **others: Any) -> Any:
        security = _security(others)
        if http is None and security.certfile is not None:
            raise click.UsageError("--http-certfile needs the address of the pages: --http [HOST:]PORT")
        return function(http=None if http is None else HttpAddress(http, security), **others)

    return address_option(_certificate_options(with_address))


def http_security_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of TLS and authentication. The command gets the arguments `http_security` and
    `http_login_profile`.
    """

    @functools.wraps(function)
    def with_security(allow_anonymous: bool, **others: Any) -> Any:
        security = _security(others, allow_anonymous=allow_anonymous)
        return function(http_security=security, **others)

    with_profile = click.option(
        "--http-login-profile",
        metavar="NAME",
        help="Profile of the listener where users log in.  [default: the connection of this command]",
    )(with_security)
    return _certificate_options(allow_anonymous_option(with_profile))


def _security(others: dict[str, Any], *, allow_anonymous: bool = False) -> HttpSecurity:
    """Remove the options of TLS and authentication from the arguments of a command, and return what they mean."""
    auth = others.pop("http_auth")
    return HttpSecurity(
        certfile=others.pop("http_certfile"),
        keyfile=others.pop("http_keyfile"),
        cafile=others.pop("http_cafile", None),
        users=None if auth is None else auth == "users",
        allow_anonymous=allow_anonymous,
    )


def address_option(function: Decorated) -> Decorated:
    """Add `--http`, the address that serves metrics and health checks."""
    return click.option(
        "--http",
        metavar="[HOST:]PORT",
        callback=_http_address,
        help="Serve /metrics for Prometheus, /healthz and /readyz at this address; without HOST, only on loopback."
        "  [default: off]",
    )(function)


def _certificate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--http-auth",
            type=click.Choice(AUTH),
            help="users: clients of HTTP authenticate as users of the brokers, with a password or a token; none:"
            " everybody has access.  [default: users with --http-certfile, else none]",
        ),
        click.option("--http-keyfile", metavar="FILE", help="PEM file with the private key of --http-certfile."),
        click.option(
            "--http-certfile", metavar="FILE", help="PEM file with the certificate for HTTPS, and maybe its key."
        ),
    ):
        function = option(function)
    return function


def _http_address(_context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            split_listener(value)
        except ValueError as error:
            raise click.BadParameter(str(error), param=option) from None
    return value
