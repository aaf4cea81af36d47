"""The SCRAM credentials of all users, from the metadata store (`/config/users/<name>`, as in Kafka), and the import of
the first users and ACLs.

A change is durable, and in force on this broker, when `alter` returns. Other brokers read it when they receive the
change notification. Authentication uses the credentials in memory, so it works while the metadata store is unreachable.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.coordination import acls, configs, paths
from barnabas.coordination.metadata_store import BadVersionError, MetadataStore, NodeExistsError, NoNodeError
from barnabas.coordination.subtrees import ensure_paths
from barnabas.errors import ApiError, ConfigurationError, ErrorCode
from barnabas.security.acls import AclBinding, acl_of_fields
from barnabas.security.principal import is_valid_name
from barnabas.security.scram import (
    DECOY_SECRET_BYTES_MIN,
    ScramCredential,
    ScramDecoys,
    ScramMechanism,
    credential_from_salted_password,
)
from barnabas.shielded import completed

log = logging.getLogger(__name__)

DECOY_SECRET_BYTES = 32
MECHANISMS = {each.value: each for each in ScramMechanism}
"""The SCRAM mechanisms, by name."""
BOOTSTRAP_BYTES_MAX = 1024 * 1024

Credentials = Mapping[str, Mapping[ScramMechanism, ScramCredential]]
"""The credentials, by user and mechanism."""


class Upsertion(NamedTuple):
    """A new credential of a user; None as the salted password deletes the credential."""

    user: str
    mechanism: int
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes | None = None


class FirstUsers(NamedTuple):
    """The contents of a file of `barnabas security init`.

    :ivar acls: the ACLs of the principals that need the topics of the registry, the audit and the mirror.
    """

    users: Mapping[str, Mapping[ScramMechanism, ScramCredential]]
    acls: Sequence[AclBinding]


class UserCredentials:
    """The credentials of all users. Any thread may call `find`.

    :param in_metadata_thread: runs functions on the thread of the metadata store.
    :param random_bytes: returns random bytes.
    """

    def __init__(
        self, tree: MetadataStore, in_metadata_thread: InMetadataThread, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._tree = tree
        self._in_metadata_thread = in_metadata_thread
        self._random_bytes = random_bytes
        self._known: Credentials = {}
        self.decoys = ScramDecoys(random_bytes(DECOY_SECRET_BYTES))
        """Derives the credentials of unknown users. After `load`, all brokers of the cluster derive the same ones."""

    async def load(self, bootstrap_file: Path | None) -> None:
        """Read all credentials; import the first users and ACLs from a file if that has not happened yet.

        :raises ConfigurationError: the file cannot be read or is malformed.
        :raises CoordinationError: the metadata store is unreachable.
        """
        self.decoys = ScramDecoys(await self._in_metadata_thread(self._load_decoy_secret))
        if bootstrap_file is not None:
            imported = await self._in_metadata_thread(self._import_users, bootstrap_file)
            if imported:
                log.info("imported the first users from %s: %s", bootstrap_file, ", ".join(imported))
        await self.reread()

    async def reread(self) -> None:
        """Read all credentials again.

        :raises CoordinationError: the metadata store is unreachable.
        """
        self._known = await self._in_metadata_thread(self._read)

    def users(self) -> Credentials:
        """Return the credentials of all users."""
        return self._known

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return the credential of a user; None if the user has none for the mechanism."""
        return self._known.get(user, {}).get(mechanism)

    async def alter(self, alterations: Iterable[Upsertion]) -> dict[str, ApiError | None]:
        """Change credentials. Return a result for each user: None if the change is in force, else the error.

        A user with an invalid alteration keeps all credentials.
        """
        by_user: dict[str, list[Upsertion]] = {}
        for each in alterations:
            by_user.setdefault(each.user, []).append(each)
        results: dict[str, ApiError | None] = {}
        for user, wanted in by_user.items():
            try:
                changes = _checked(user, wanted)
                # Not cancelled if the client disconnects: otherwise metadata store and memory could disagree.
                change = functools.partial(_changed, changes)
                write = self._in_metadata_thread(configs.change_user_config, self._tree, user, change)
                await completed(write)
            except ApiError as error:
                results[user] = error
            else:
                results[user] = None
        await self.reread()
        return results

    def _read(self) -> Credentials:
        found: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        for user, config in configs.read_user_configs(self._tree).items():
            problems = []
            for name, text in config.items():
                if name not in MECHANISMS:
                    continue  # a quota
                mechanism = MECHANISMS[name]
                try:
                    found.setdefault(user, {})[mechanism] = ScramCredential.parse(text, mechanism)
                except ConfigurationError as error:
                    problems.append(f"{name}: {error}")
            configs.report_settings(self._tree, paths.user_config(user), problems)
        return found

    def _load_decoy_secret(self) -> bytes:
        """Return the secret that all brokers share. The first broker creates it, and replaces a damaged one."""
        secret = base64.b64encode(self._random_bytes(DECOY_SECRET_BYTES))
        ensure_paths(self._tree, [paths.ADMIN])
        try:
            data, stat = self._tree.get(paths.DECOY_SECRET)
            if len(data) >= DECOY_SECRET_BYTES_MIN:
                return data
            self._tree.set(paths.DECOY_SECRET, secret, stat.version)
        except NoNodeError:
            with contextlib.suppress(NodeExistsError):  # another broker created it
                self._tree.create(paths.DECOY_SECRET, secret)
        except BadVersionError:  # another broker replaced it
            pass
        data = self._tree.get(paths.DECOY_SECRET).data
        return data if len(data) >= DECOY_SECRET_BYTES_MIN else secret

    def _import_users(self, file: Path) -> list[str]:
        """Create the ACLs of a file, and its users that do not exist yet; return their names. Later starts ignore the
        file.
        """
        if self._tree.exists(paths.USERS_IMPORTED) is not None:
            return []
        users, first_acls = read_bootstrap_users(file)
        for pattern, entry in first_acls:
            acls.add(self._tree, pattern, [entry])
        for user, credentials in users.items():
            texts = {mechanism.value: each.text() for mechanism, each in credentials.items()}
            configs.change_user_config(self._tree, user, lambda before, new=texts: {**new, **before})  # type: ignore[misc]
        ensure_paths(self._tree, [paths.ADMIN, paths.USERS_IMPORTED])
        self._tree.flush()
        return list(users)


def _checked(user: str, wanted: list[Upsertion]) -> dict[ScramMechanism, ScramCredential | None]:
    """Return the new credentials of a user, None for a deletion.

    :raises ApiError: an alteration is invalid.
    """
    if not is_valid_name(user):
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user name must consist of printable characters")
    changes: dict[ScramMechanism, ScramCredential | None] = {}
    for each in wanted:
        mechanism = ScramMechanism.of_wire_type(each.mechanism)
        if mechanism is None:
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown mechanism {each.mechanism}")
        if mechanism in changes:
            raise ApiError(ErrorCode.DUPLICATE_RESOURCE, "the request names a user and a mechanism twice")
        try:
            changes[mechanism] = (
                None
                if each.salted_password is None
                else credential_from_salted_password(mechanism, each.salted_password, each.salt, each.iterations)
            )
        except ConfigurationError as error:
            raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None
    return changes


def _changed(changes: Mapping[ScramMechanism, ScramCredential | None], before: Mapping[str, str]) -> dict[str, str]:
    after = dict(before)
    for mechanism, credential in changes.items():
        name = mechanism.value
        if credential is not None:
            after[name] = credential.text()
        elif after.pop(name, None) is None:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"the user has no credential for {name}")
    return after


def read_bootstrap_users(file: Path) -> FirstUsers:
    """Read a file of `barnabas security init`: `{"users": {NAME: {MECHANISM: CREDENTIAL}}, "acls": [ACL...]}`, without
    passwords. Files of earlier releases have no ACLs.

    :raises ConfigurationError: the file cannot be read or is malformed.
    """
    malformed = f"{file} is not a file of barnabas security init"
    try:
        with file.open("rb") as opened:
            data = opened.read(BOOTSTRAP_BYTES_MAX + 1)
        contents: Any = json.loads(data)
        users: Any = contents["users"]
        first_acls = [acl_of_fields(each) for each in contents.get("acls", [])]
        found = {
            str(user): {MECHANISMS[name]: ScramCredential.parse(text, MECHANISMS[name]) for name, text in texts.items()}
            for user, texts in users.items()
        }
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ConfigurationError):
        raise ConfigurationError(malformed) from None
    if not all(map(is_valid_name, found)):
        raise ConfigurationError(malformed)
    return FirstUsers(found, first_acls)
