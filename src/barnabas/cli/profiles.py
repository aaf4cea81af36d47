"""Profiles: client settings for a cluster, as TOML files that only their owner can read.

A profile NAME is the file `barnabas/profiles/NAME.toml` in the user's configuration directory (XDG_CONFIG_HOME, by
default `~/.config`). It contains settings of clients:

    bootstrap_servers = "a.example.com:9092"
    security_protocol = "SASL_SSL"
    sasl_username = "alice"
    sasl_password = "${file:/etc/alice.password}"
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnabas.errors import ConfigurationError
from barnabas.portable import NO_SYMLINKS, flush_file

SUFFIX = ".toml"
PROFILE_BYTES_MAX = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def profile_folder(environment: Mapping[str, str]) -> Path:
    """Return the directory of the user's profiles."""
    base = environment.get("XDG_CONFIG_HOME", "")
    parent = Path(base) if base.startswith("/") else Path("~/.config").expanduser()
    return parent / "barnabas" / "profiles"


def profile_path(profile: str, environment: Mapping[str, str]) -> Path:
    """Return the file of a profile.

    :param profile: a name, or the path of a file: a text with a slash or with the suffix `.toml`.
    :raises ConfigurationError: the text is neither.
    """
    if "/" in profile or profile.endswith(SUFFIX):
        return Path(profile)
    if not _NAME.fullmatch(profile):
        raise ConfigurationError(
            f"{profile!r} is not the name of a profile; it must have 1 to 64 of the characters a-z A-Z 0-9 . _ -"
        )
    return profile_folder(environment) / f"{profile}{SUFFIX}"


def profile_names(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the user's profiles, sorted."""
    try:
        names = [each.name.removesuffix(SUFFIX) for each in profile_folder(environment).iterdir() if _is_profile(each)]
    except FileNotFoundError:
        return []
    return sorted(names)


def _is_profile(file: Path) -> bool:
    return file.suffix == SUFFIX and _NAME.fullmatch(file.name.removesuffix(SUFFIX)) is not None


def read_profile(profile: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a profile, by Kafka's names.

    :raises ConfigurationError: the profile does not exist, is malformed, or contains a secret that others can read.
    """
    path = profile_path(profile, environment)
    try:
        with path.open("rb") as file:
            data = file.read(PROFILE_BYTES_MAX + 1)
            mode = os.fstat(file.fileno()).st_mode
    except FileNotFoundError:
        advice = "" if path == Path(profile) else "; see: barnabas profile list"
        raise ConfigurationError(f"no profile {profile!r} ({path}){advice}") from None
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > PROFILE_BYTES_MAX:
        raise ConfigurationError(f"{path} has more than {PROFILE_BYTES_MAX} bytes")
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except ValueError:  # the text of the error could contain a secret
        raise ConfigurationError(f"{path} is not a TOML file in UTF-8") from None
    settings = _flat(path, table, "")
    _check_secrets(path, settings, mode)
    return settings


def _flat(path: Path, table: Mapping[str, Any], prefix: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name, value in table.items():
        dotted = prefix + name.replace("_", ".")
        if isinstance(value, dict):
            settings.update(_flat(path, value, f"{dotted}."))
        elif isinstance(value, bool):
            settings[dotted] = str(value).lower()
        elif isinstance(value, str | int):
            settings[dotted] = str(value)
        else:
            raise ConfigurationError(f"{path}: {dotted} must be a string, a number, true or false")
    return settings


def _check_secrets(path: Path, settings: Mapping[str, str], mode: int) -> None:
    from barnabas.client.config import contains_secret

    if not mode & (stat.S_IRWXG | stat.S_IRWXO):
        return
    for name, value in settings.items():
        if contains_secret(name, value):
            raise ConfigurationError(
                f"{path} contains {name}, and other users can read the file; correct this with: chmod 600 {path}"
            )


def profile_text(settings: Mapping[str, str]) -> str:
    """Return the content of a profile.

    >>> print(profile_text({"bootstrap.servers": "a:9092", "security.protocol": "SSL"}), end="")
    bootstrap_servers = "a:9092"
    security_protocol = "SSL"
    """
    return settings_text({name.replace(".", "_"): value for name, value in settings.items()})


def settings_text(settings: Mapping[str, str | int]) -> str:
    """Return the content of a TOML file with settings."""
    return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items())


def check_profile(settings: Mapping[str, str]) -> None:
    """Check that an admin client accepts the settings of a profile.

    :raises ConfigurationError: a setting does not exist, is not valid, or is missing.
    """
    from barnabas.client.config import AdminConfig, make_config, settings_of_all_clients
    from barnabas.serialization.registry_settings import PREFIX, RegistrySettings

    own = {name: value for name, value in settings.items() if not name.startswith(PREFIX)}
    make_config(AdminConfig, settings_of_all_clients(own), {})
    of_registry = {name.removeprefix(PREFIX): value for name, value in settings.items() if name.startswith(PREFIX)}
    if of_registry:
        RegistrySettings.of(of_registry.pop("url", ""), of_registry)


def write_private_file(path: Path, text: str, *, replace: bool = False) -> None:
    """Write a file that only its owner can read.

    :param replace: replace an existing file atomically; otherwise, an existing file is an error.
    :raises OSError: the file cannot be written, or exists.
    """
    new = path.with_name(f".{path.name}.new") if replace else path
    if replace:
        new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_SYMLINKS, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        flush_file(file.fileno())
    if replace:
        new.replace(path)
