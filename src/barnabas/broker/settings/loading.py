"""Reads the static settings of a broker from its file, from the environment and from flags.

Flags override the environment (`BARNABAS_NUM_PARTITIONS` for `num.partitions`), and the environment overrides the file.
An unknown name is an error. In the environment it only causes a warning, because other programs also set variables.
"""

from __future__ import annotations

import difflib
import logging
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnabas.addresses import host_port
from barnabas.broker.settings.kafka_names import OTHER_UNITS, WITHOUT_EFFECT, translate
from barnabas.broker.settings.listeners import OVERRIDE_PREFIX, check_overrides, parse_endpoints
from barnabas.broker.settings.properties_file import decode_properties, parse_properties
from barnabas.broker.settings.static import BROKER_SETTINGS, OTHER_NAMES, BrokerConfig, dotted
from barnabas.broker.settings.unused import UNUSED_BROKER_SETTINGS
from barnabas.errors import ConfigurationError

log = logging.getLogger(__name__)

ENVIRONMENT_PREFIX = "BARNABAS_"
NOT_SETTINGS = frozenset({"BARNABAS_BOOTSTRAP", "BARNABAS_CODEC", "BARNABAS_DEBUG", "BARNABAS_PROFILE"})
"""The environment variables that begin with `BARNABAS_` but are not broker settings."""

_OF_A_SERVICE = re.compile(r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)")
"""The suffixes of the variables that Kubernetes creates for a service named `barnabas` or `barnabas-...`.

Each pod of the namespace has these variables (Kubernetes documentation, *Service*, *Environment variables*). Docker
links also created the variables with PORT.
"""
_SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://.*")
"""The format of the value of `<SERVICE>_PORT`, another variable that Kubernetes creates."""


OVERRIDES = "listener_overrides"
"""The field of `BrokerConfig` with the settings of single listeners."""

PROPERTIES = ".properties"


def load_config(
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Return the complete settings of a broker: the result of `given_settings`, and defaults for all other settings.

    :raises ConfigurationError: the file cannot be read, or a name or value is invalid.
    """
    config = BrokerConfig(**given_settings(file, overrides, environment))
    check_overrides(config)
    return config


def given_settings(
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the settings that are set in the file, the environment or a flag, by field name.

    :param file: a TOML file, in which `num.partitions = 6` and `[num]` `partitions = 6` are equal. A file with the
        extension `.properties` has the format of Kafka's `server.properties`.
    :param overrides: values of flags by field name or dotted name; None values are ignored.
    :param environment: environment variables; those that begin with BARNABAS_ are settings.
    :raises ConfigurationError: the file cannot be read, or a name or value is invalid.
    """
    types = {name: type(each.default) for name, each in BROKER_SETTINGS.items()}
    from_file = {} if file is None else _of_kafka(read_settings_file(Path(file)))
    from_flags = _of_kafka({name: value for name, value in (overrides or {}).items() if value is not None})
    settings = _checked(from_file, types)
    for later in (_from_environment(environment or {}, types), _checked(from_flags, types)):
        if "data" in later:
            # This source sets only `data`. Drop `log.dirs` from an earlier source, which would override `data`.
            settings.pop("log_dirs", None)
        if "listeners" in settings and "listeners" not in later and later.keys() & {"host", "port"}:
            settings["listeners"] = _moved(settings["listeners"], later)
        settings[OVERRIDES] = {**settings.get(OVERRIDES, {}), **later.pop(OVERRIDES, {})}
        settings.update(later)
    if not settings[OVERRIDES]:
        del settings[OVERRIDES]
    return settings


def _moved(listeners: str, later: Mapping[str, Any]) -> str:
    """Return the only listener with the host or port of a later source.

    :raises ConfigurationError: there are several listeners.
    """
    endpoints = parse_endpoints("listeners", listeners)
    if len(endpoints) != 1:
        raise ConfigurationError(f"host and port cannot change several listeners; set listeners instead: {listeners}")
    (name, host, port), *_ = endpoints
    return f"{name}://{host_port(later.get('host', host), later.get('port', port))}"


def _checked(given: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    """Return the settings of one source by field name; those of single listeners are under `OVERRIDES`.

    :raises ConfigurationError: a name or value is invalid.
    """
    overrides = {name: _as_text(value) for name, value in given.items() if name.startswith(OVERRIDE_PREFIX)}
    settings = dict(_check(name, value, types) for name, value in given.items() if name not in overrides)
    return {**settings, OVERRIDES: overrides} if overrides else settings


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_kafka(given: Mapping[str, Any]) -> dict[str, Any]:
    """Translate Kafka's names of settings. Log and omit settings that have no effect in Barnabas.

    :raises ConfigurationError: a value cannot be translated, or this broker cannot satisfy it.
    """
    translated = translate(given)
    for note in translated.notes:
        log.warning("%s", note)
    if translated.without_effect:
        log.warning("ignoring Kafka settings that have no effect in Barnabas: %s", ", ".join(translated.without_effect))
    return translated.settings


def _from_environment(environment: Mapping[str, str], types: Mapping[str, type]) -> dict[str, Any]:
    """Return the settings from environment variables. Log unknown variables, except variables that Kubernetes creates.

    :raises ConfigurationError: a value is invalid. The message contains the name of the variable.
    """
    settings: dict[str, Any] = {}
    others: dict[str, str] = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS or _is_of_a_service(variable, value):
            continue
        field = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if field in types:
            settings[field] = _of_variable(variable, field, value, types[field])
        else:
            others[dotted(field)] = value
    try:
        translated = _of_kafka(others)
    except ConfigurationError as error:
        raise ConfigurationError(f"environment: {error}") from None
    for name, value in translated.items():
        field = name.replace(".", "_")
        variable = ENVIRONMENT_PREFIX + field.upper()
        if field in types:
            settings.setdefault(field, _of_variable(variable, field, str(value), types[field]))
        else:
            log.warning("environment variable %s is not a broker setting; ignoring it%s", variable, _hint(field, types))
    return settings


def _of_variable(variable: str, field: str, value: str, wanted: type) -> Any:
    try:
        converted = _convert(dotted(field), value, wanted)
        BrokerConfig(**{field: converted})
    except ConfigurationError as error:
        shown = variable if BROKER_SETTINGS[field].is_secret else f"{variable}={value}"
        raise ConfigurationError(f"environment variable {shown}: {error}") from None
    return converted


def _is_of_a_service(variable: str, value: str) -> bool:
    rest = variable.removeprefix(ENVIRONMENT_PREFIX)
    if _OF_A_SERVICE.fullmatch(rest):
        return True
    return (rest == "PORT" or rest.endswith("_PORT")) and _SERVICE_ADDRESS.fullmatch(value) is not None


def read_settings_file(path: Path) -> dict[str, Any]:
    """Return the settings of a file by dotted name, unchecked.

    :raises ConfigurationError: the file cannot be read, or is malformed.
    """
    try:
        data = path.read_bytes()
        if path.suffix == PROPERTIES:
            return dict(parse_properties(decode_properties(data)))
        return _flatten(tomllib.loads(data.decode("utf-8")))
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8: {error}") from None
    except tomllib.TOMLDecodeError as error:
        advice = f"a file in the format of Kafka's server.properties must have the extension {PROPERTIES}"
        raise ConfigurationError(f"{path} is not TOML: {error}; {advice}") from None


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat.update(_flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _check(name: str, value: Any, types: Mapping[str, type]) -> tuple[str, Any]:
    field = name.replace(".", "_").replace("-", "_")
    if field not in types:
        raise ConfigurationError(f"unknown setting {name}{_hint(field, types)}")
    return field, _convert(name, value, types[field])


def _hint(field: str, types: Mapping[str, type]) -> str:
    known = [*map(dotted, types), *OTHER_NAMES, *OTHER_UNITS, *UNUSED_BROKER_SETTINGS, *WITHOUT_EFFECT]
    near = difflib.get_close_matches(dotted(field), known, n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near else ""


def _convert(name: str, value: Any, wanted: type) -> Any:
    if wanted is bool and isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if wanted is int and isinstance(value, str) and value.lstrip("-").isdigit():
        return int(value)
    if wanted is float and isinstance(value, int | str):
        value = _to_float(value)
    if type(value) is wanted:
        return value
    declared = BROKER_SETTINGS[name.replace(".", "_").replace("-", "_")]
    if isinstance(value, bool) and str(value).lower() in declared.rule.choices:
        return str(value).lower()
    shown = "" if declared.is_secret else f"is {value!r}; it "
    raise ConfigurationError(f"{name} {shown}must be {_KINDS[wanted]}")


def _to_float(value: int | str) -> float | int | str:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return value


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
