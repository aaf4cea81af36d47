"""TLS contexts from PEM settings with Kafka's names, and the handshake of one connection.

`TlsContext` keeps an `ssl.SSLContext`. It creates another one if a PEM file has changed, so new connections use the new
certificates, and open connections continue. If the new files are not valid, the last valid context remains in use.

`TlsHandshake` runs the steps of a handshake on threads, because a step costs up to a millisecond of CPU time. Thousand
simultaneous handshakes therefore do not delay other connections of the event loop.

TLS 1.2 is the oldest version. Sessions are not resumed: each connection presents its certificates again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from barnabas.errors import ConfigurationError
from barnabas.log_lines import LogEvent, event
from barnabas.security.principal import DistinguishedName
from barnabas.security.tls_settings import ClientAuth, TlsSettings

log = logging.getLogger(__name__)

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

PEM_BYTES_MAX = 4 * 1024 * 1024
"""The maximum size of a PEM file in bytes; the CA bundles of operating systems have about 220 KB."""
LINGER_S = 1.0
"""The time in seconds for which a listener keeps the socket of a failed handshake open, so that the client can read the
reason.
"""
DISCARDED_BYTES = 64 * 1024
"""The number of bytes that a listener receives at most after a failed handshake."""
NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"})
"""OpenSSL's names for the first bytes of a peer that does not use TLS."""
REFUSALS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR", "HANDSHAKE_FAILURE")
"""Parts of OpenSSL's names for the alerts of a peer that does not accept a certificate, or misses one."""


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a context for the connections that a listener accepts.

    :raises ConfigurationError: a file cannot be read, or a certificate, key or name is not valid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Without tickets no session is resumed, so a client presents its certificate with each connection.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _limit(context, settings)
    if settings.key_store is None and not (settings.certificate_chain and settings.key):
        raise ConfigurationError(
            "a TLS listener needs a certificate: set ssl.keystore.location, or ssl.keystore.certificate.chain and"
            " ssl.keystore.key"
        )
    _load_key(context, settings)
    if settings.client_auth is not ClientAuth.NONE:
        if settings.trust_store is None and not settings.trusted_certificates:
            raise ConfigurationError(
                f"ssl.client.auth is {settings.client_auth.value}, but no CA is trusted: set ssl.truststore.location or"
                " ssl.truststore.certificates"
            )
        is_required = settings.client_auth is ClientAuth.REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        _load_trust(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a context for connections to brokers; without a trust store it trusts the CAs of the operating system.

    :raises ConfigurationError: a file cannot be read, or a certificate, key or name is not valid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, settings)
    if not settings.verifies_host or not settings.verifies_chain:
        context.check_hostname = False
    if not settings.verifies_chain:
        context.verify_mode = ssl.CERT_NONE
    elif settings.trust_store is None and not settings.trusted_certificates:
        context.load_default_certs()
    else:
        _load_trust(context, settings)
    if settings.key_store is not None or settings.certificate_chain:
        _load_key(context, settings)
    return context


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    try:
        versions = sorted(_VERSIONS[each] for each in settings.protocols)
    except KeyError as error:
        raise ConfigurationError(
            f"ssl.enabled.protocols contains {error.args[0]!r}; it can contain TLSv1.2 and TLSv1.3"
        ) from None
    if not versions:
        raise ConfigurationError("ssl.enabled.protocols is empty; it can contain TLSv1.2 and TLSv1.3")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if settings.cipher_suites:
        try:
            context.set_ciphers(settings.cipher_suites)
        except ssl.SSLError:
            raise ConfigurationError(
                f"ssl.cipher.suites is {settings.cipher_suites!r}; it must be OpenSSL names of TLS 1.2 cipher suites,"
                " separated by colons"
            ) from None


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    def no_password() -> str:
        # Without this function, OpenSSL would ask for the password on the terminal.
        raise ConfigurationError("the private key is encrypted; set ssl.key.password")

    password = no_password if settings.key_password is None else settings.key_password.reveal()
    name = settings.key_store or "ssl.keystore.key"
    with ExitStack() as files:
        if settings.key_store is not None:
            check_pem(settings.key_store)
            path = settings.key_store
            if settings.key_file is not None:
                check_pem(settings.key_file)
        else:
            assert settings.key is not None
            path = files.enter_context(_in_memory(f"{settings.key.reveal()}\n{settings.certificate_chain}\n"))
        try:
            context.load_cert_chain(path, settings.key_file, password)
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"{name} is not a PEM private key with its certificate chain: {_why(error)}"
            ) from None
        except OSError as error:
            raise ConfigurationError(f"cannot read {name}: {error.strerror}") from None


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    name = settings.trust_store or "ssl.truststore.certificates"
    try:
        if settings.trust_store is not None:
            check_pem(settings.trust_store)
            context.load_verify_locations(cafile=settings.trust_store)
        else:
            context.load_verify_locations(cadata=settings.trusted_certificates)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(f"{name} does not contain PEM certificates: {_why(error)}") from None
    except OSError as error:
        raise ConfigurationError(f"cannot read {name}: {error.strerror}") from None


def check_pem(path: str) -> None:
    """Check that a file may be a PEM file; name the command that converts Java's key stores.

    :raises ConfigurationError: the file cannot be read, is too large, or has another format.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - every client would import pathlib
            start, size = file.read(4), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    if size > PEM_BYTES_MAX:
        raise ConfigurationError(f"{path} has {size} bytes; a PEM file has at most {PEM_BYTES_MAX}")
    if start == b"\xfe\xed\xfe\xed":
        raise ConfigurationError(
            f"{path} is a JKS key store; convert it to PEM: keytool -importkeystore -srckeystore {path} -destkeystore"
            " store.p12 -deststoretype PKCS12, then openssl pkcs12 -in store.p12 -out store.pem"
        )
    if start[:1] == b"\x30":
        raise ConfigurationError(
            f"{path} is a PKCS12 key store; convert it to PEM: openssl pkcs12 -in {path} -out store.pem"
        )


def _why(error: Exception) -> str:
    return _openssl_reason(error).replace("_", " ").lower() or str(error)


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Yield the path of a file in memory, since OpenSSL reads keys from files only. No key reaches a disk."""
    if not hasattr(os, "memfd_create"):
        raise ConfigurationError("this operating system needs ssl.keystore.location instead of ssl.keystore.key")
    fd = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(fd, text.encode())
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


class TlsContext:
    """The current context of one listener or client. Any thread may use it.

    :param make: `server_context` or `client_context`.
    :raises ConfigurationError: a file cannot be read, or a certificate, key or name is not valid.
    """

    def __init__(self, settings: TlsSettings, make: Callable[[TlsSettings], ssl.SSLContext]) -> None:
        self.settings = settings
        self._make = make
        self._lock = threading.Lock()
        self._stamps = self._look()
        self._failed_stamps: tuple[Any, ...] = ()
        self.current = make(settings)
        """The context for new connections."""

    def reload(self) -> bool:
        """Create the context again if a file has changed; return True if a new context is in use.

        :raises ConfigurationError: a changed file is not valid; raised once for each change. The last context remains
            in use.
        """
        if not self._stamps:
            return False
        stamps = self._look()
        with self._lock:
            if stamps in (self._stamps, self._failed_stamps):
                return False
            try:
                self.current = self._make(self.settings)
            except ConfigurationError:
                self._failed_stamps = stamps
                raise
            self._stamps, self._failed_stamps = stamps, ()
            return True

    def latest(self, server: str) -> ssl.SSLContext:
        """Return the context for a new connection of a server. It loads changed files; an error is only logged.

        :param server: the name of the server in log lines.
        """
        try:
            if self.reload():
                log.info("%s uses the changed certificate for new connections", server)
        except ConfigurationError as error:
            extra = event(LogEvent.CERTIFICATE_NOT_RELOADED)
            message = "cannot load the changed certificate of %s: %s; it uses the previous one"
            log.error(message, server, error, extra=extra)  # noqa: TRY400 - the reason is clear without a traceback
        return self.current

    def _look(self) -> tuple[Any, ...]:
        """Return the identity, size and modification time of each file."""
        return tuple(map(_stamp, self.settings.files))


def _stamp(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)  # noqa: PTH116 - every client would import pathlib
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


class TlsHandshake:
    """The handshake of one connection, by steps on threads.

    After a failure, a listener closes the socket only when the client has closed its end, or after `LINGER_S`. If it
    closed the socket immediately, unread bytes of the client would reset the connection, and the client could lose the
    alert with the reason.

    :param sock: a connected socket, which belongs to this object until `on_done` is called.
    :param threads: runs the steps; None: the steps run on the event loop's thread.
    :param server_host: the host that a client connects to; None for the side of the listener.
    :param on_done: called on the event loop with the secured socket, or with the error.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        context: ssl.SSLContext,
        threads: Executor | None,
        on_done: Callable[[ssl.SSLSocket | None, Exception | None], None],
        *,
        server_host: str | None = None,
    ) -> None:
        self._loop = loop
        self._threads = threads
        self._on_done: Callable[[ssl.SSLSocket | None, Exception | None], None] | None = on_done
        self._is_in_thread = False
        self._is_server = server_host is None
        self._failure: Exception | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._discarded_bytes = 0
        sock.setblocking(False)
        self._sock = context.wrap_socket(
            sock,
            server_side=server_host is None,
            server_hostname=server_host,
            do_handshake_on_connect=False,
        )
        self._fd = self._sock.fileno()
        if server_host is None:
            loop.add_reader(self._fd, self._begin_step)
        else:
            self._begin_step()

    def abort(self, reason: Exception) -> None:
        """End the handshake and close the socket; `on_done` gets the reason."""
        if not self._is_in_thread:
            self._stop_waiting()
        self._finish(None, reason)

    def _begin_step(self) -> None:
        self._stop_waiting()
        self._is_in_thread = True
        if self._threads is None:
            self._end_step(self._step())
            return
        future = self._threads.submit(self._step)
        future.add_done_callback(self._end_step_soon)

    def _end_step_soon(self, done: Future[Exception | None]) -> None:
        """Called on a thread."""
        if done.cancelled():
            return
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._end_step, done.result())

    def _step(self) -> Exception | None:
        try:
            self._sock.do_handshake()
        except OSError as error:  # an SSLError is one, too
            return error
        except ValueError as error:  # the socket was closed, or its host name is not valid
            return error
        return None

    def _end_step(self, error: Exception | None) -> None:
        self._is_in_thread = False
        if self._on_done is None:
            self._sock.close()  # aborted in the meantime
        elif error is None:
            self._finish(self._sock, None)
        elif isinstance(error, ssl.SSLWantReadError):
            self._loop.add_reader(self._fd, self._begin_step)
        elif isinstance(error, ssl.SSLWantWriteError):
            self._loop.add_writer(self._fd, self._begin_step)
        elif self._is_server:
            self._linger(error)
        else:
            self._finish(None, error)

    def _linger(self, failure: Exception) -> None:
        """Send the end of the stream, and wait until the client has closed its end."""
        self._failure = failure
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._finish(None, failure)
            return
        self._loop.add_reader(self._fd, self._discard)
        self._lingering = self._loop.call_later(LINGER_S, self._end_linger)

    def _discard(self) -> None:
        try:
            data = self._sock.recv(DISCARDED_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._discarded_bytes += len(data)
        if not data or self._discarded_bytes > DISCARDED_BYTES:
            self._end_linger()

    def _end_linger(self) -> None:
        self._stop_waiting()
        self._finish(None, self._failure)

    def _finish(self, sock: ssl.SSLSocket | None, error: Exception | None) -> None:
        on_done, self._on_done = self._on_done, None
        if on_done is None:
            return
        if self._lingering is not None:
            self._lingering.cancel()
        if sock is None and not self._is_in_thread:
            self._sock.close()
        on_done(sock, error)

    def _stop_waiting(self) -> None:
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)


async def secure(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, context: ssl.SSLContext, host: str
) -> ssl.SSLSocket:
    """Run the client's side of a handshake, and return the secured socket.

    :param host: the host that the certificate must name.
    :raises OSError: the handshake failed; `ssl.SSLError` if a certificate was refused.
    """
    done: asyncio.Future[ssl.SSLSocket] = loop.create_future()

    def on_done(secured: ssl.SSLSocket | None, error: Exception | None) -> None:
        if done.done():
            return
        if secured is None:
            done.set_exception(error or ConnectionAbortedError())
        else:
            done.set_result(secured)

    handshake = TlsHandshake(loop, sock, context, None, on_done, server_host=host)
    try:
        return await done
    except asyncio.CancelledError:
        handshake.abort(ConnectionAbortedError())
        raise


class BlockingTls:
    """Secures the connected sockets of a library that blocks, such as kazoo. Any thread may use it.

    :raises ConfigurationError: a file cannot be read, or a certificate, key or name is not valid.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._context = TlsContext(settings, client_context)

    def __call__(self, sock: socket.socket, host: str, timeout_s: float) -> ssl.SSLSocket:
        """Run the client's side of a handshake, and return the secured socket.

        :param host: the host that the certificate must name.
        :raises OSError: the handshake failed. The socket is closed.
        """
        # A file that changes at this moment may be incomplete. The last context remains in use.
        with suppress(ConfigurationError):
            self._context.reload()
        try:
            sock.settimeout(timeout_s)
            return self._context.current.wrap_socket(sock, server_hostname=host)
        except (OSError, ValueError) as error:
            sock.close()
            raise ConnectionError(reason_of_failure(error)) from error


def peer_subject(sock: ssl.SSLSocket) -> DistinguishedName | None:
    """Return the subject of the peer's verified certificate; None if the peer has presented none."""
    certificate = sock.getpeercert()
    return certificate.get("subject", ()) if certificate else None  # type: ignore[return-value]


def is_untrusted(error: Exception) -> bool:
    """Return whether we do not accept the certificate of the peer."""
    return isinstance(error, ssl.SSLCertVerificationError)


def is_refusal(error: Exception | None) -> bool:
    """Return whether the peer does not accept our certificate, or demands one."""
    reason = _openssl_reason(error)
    return "_ALERT_" in reason and any(each in reason for each in REFUSALS)


def _openssl_reason(error: Exception | None) -> str:
    """Return OpenSSL's name for the reason; an empty text for an error that does not come from OpenSSL."""
    return getattr(error, "reason", None) or "" if isinstance(error, ssl.SSLError) else ""


def reason_of_failure(error: Exception) -> str:
    """Return the reason of a failed handshake in words, for a log line or an error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"the peer does not use TLS ({_why(error)})" if _openssl_reason(error) in NOT_TLS else _why(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
