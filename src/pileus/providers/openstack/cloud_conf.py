"""Reads `cloud.conf` into an `OpenStackConfig` by the keys that `config` declares. Pure.

A file that starts the Go program starts this one: unknown and removed keys and sections are
ignored, and unusual values are replaced, with a warning that says what holds. A value that cannot
be used is an error. Both name file, line, section and key, and how to fix it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pileus.cloud.errors import Misconfigured
from pileus.dataclass import dataclass
from pileus.providers.openstack import gcfg
from pileus.providers.openstack.config import (
    CLASS_SECTION,
    SECTIONS,
    Key,
    Kind,
    LoadBalancerClass,
    Metadata,
    OpenStackConfig,
    keys_of,
)
from pileus.providers.openstack.gcfg import Entry, SyntaxFault
from pileus.settings.go_duration import parse_duration, render_duration
from pileus.suggest import did_you_mean

TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})
FIELDS = {
    "Global": "auth",
    "Networking": "networking",
    "LoadBalancer": "load_balancer",
    "Metadata": "metadata",
    "Route": "route",
    "BlockStorage": "block_storage",
}
"""Fields of `OpenStackConfig`, by section."""
REMOVED = {
    "Global": frozenset({"secret-name", "secret-namespace", "kubeconfig-path"}),
    "LoadBalancer": frozenset({"use-octavia", "lb-type"}),
    "BlockStorage": frozenset({"bs-version", "trust-device-path"}),
}
"""Keys that older versions of the Go provider had."""
UNREAD_BY_GO = "BlockStorage"
"""Section of other programs, which the Go manager ignores: no mistake in it prevents the start."""
_KEYS = {name: {key.name: key for key in keys_of(kind)} for name, kind in SECTIONS.items()}
_KEYS[CLASS_SECTION] = {key.name: key for key in keys_of(LoadBalancerClass)}
_SECTIONS = {name.casefold(): name for name in _KEYS}


class Unusual(Exception):
    """A value that is not used as it is written; the text says what is used instead."""

    def __init__(self, used: object, text: str) -> None:
        super().__init__(text)
        self.used = used


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that cannot be used, or is probably not meant."""

    section: str
    key: str
    text: str
    """What is wrong, and how to fix it."""


@dataclass(frozen=True, slots=True)
class CloudConf:
    """A file that was read."""

    path: str
    config: OpenStackConfig
    set_at: Mapping[tuple[str, str], int]
    """Lines of the keys that are set, by section (with the name of its class) and key."""
    warnings: tuple[str, ...] = ()

    def is_set(self, section: str, key: str) -> bool:
        return (section, key) in self.set_at

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Raises `Misconfigured` with all problems, if there are any.

        Ignored sections and keys are named, too: a misspelt one may be what is missing.
        """
        _refuse(self.path, self.set_at, problems, self.warnings)

    def located(self, problems: Iterable[Problem]) -> tuple[str, ...]:
        """Returns messages that name file and line."""
        return tuple(_located(self.path, self.set_at, problems))


def read_cloud_conf(text: str, path: str) -> CloudConf:
    """Raises `Misconfigured` if the text, or a value in it, is wrong."""
    try:
        entries = gcfg.parse(text)
    except SyntaxFault as fault:
        raise Misconfigured(f"{path}:{fault.line}: {fault}") from None
    reading = _Reading(path)
    for entry in entries:
        reading.take(entry)
    return reading.finish()


class _Reading:
    def __init__(self, path: str) -> None:
        self._path = path
        self._values: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
        self._classes: dict[str, dict[str, Any]] = {}
        self._set_at: dict[tuple[str, str], int] = {}
        self._warnings: list[str] = []
        self._problems: list[Problem] = []

    def take(self, entry: Entry) -> None:
        section = _SECTIONS.get(entry.section.casefold())
        if section is None:
            self._ignore_section(entry)
            return
        is_class = section == CLASS_SECTION
        if is_class is (entry.subsection is None):
            self._ignore_subsection(entry, section)
            return
        shown = f'{section} "{entry.subsection}"' if is_class else section
        values = self._values.get(section)
        if values is None:
            values = self._classes.setdefault(entry.subsection or "", {})
        if entry.key:
            self._take_key(entry, section, shown, values)

    def _take_key(self, entry: Entry, section: str, shown: str, values: dict[str, Any]) -> None:
        key = _KEYS[section].get(entry.key.casefold())
        if key is None:
            self._ignore_key(entry, section, shown)
            return
        self._set_at[shown, key.name] = entry.line
        try:
            value = value_of(key, entry.value)
        except Unusual as unusual:
            self._warn(entry, f"[{shown}] {key.name}: {unusual}")
            value = unusual.used
        except ValueError as error:
            if section == UNREAD_BY_GO:
                self._warn(entry, f"[{shown}] {key.name}: the default is used: {error}")
            else:
                self._problems.append(Problem(shown, key.name, str(error)))
            return
        if key.kind is Kind.LIST:
            value = (*values.get(key.field, ()), value) if entry.value is not None else ()
        values[key.field] = value

    def _ignore_section(self, entry: Entry) -> None:
        if not entry.key:
            hint = did_you_mean(entry.section, _KEYS)
            self._warn(entry, f"unknown section [{entry.section}] is ignored{hint}")

    def _ignore_subsection(self, entry: Entry, section: str) -> None:
        if entry.key:
            return
        if section == CLASS_SECTION:
            self._warn(entry, f'[{section}] is ignored: give it a name, [{section} "NAME"]')
        else:
            self._warn(entry, f'[{section} "{entry.subsection}"] is ignored: use [{section}]')

    def _ignore_key(self, entry: Entry, section: str, shown: str) -> None:
        if entry.key.casefold() in REMOVED.get(section, ()):
            self._warn(entry, f"[{shown}] {entry.key} has no effect any more: remove it")
            return
        hint = did_you_mean(entry.key, _KEYS[section]) or _other_section(entry.key)
        self._warn(entry, f'[{shown}] unknown key "{entry.key}" is ignored{hint}')

    def _warn(self, entry: Entry, text: str) -> None:
        self._warnings.append(f"{self._path}:{entry.line}: {text}")

    def finish(self) -> CloudConf:
        _refuse(self._path, self._set_at, self._problems)
        made = {FIELDS[name]: kind(**self._values[name]) for name, kind in SECTIONS.items()}
        classes = {name: LoadBalancerClass(**values) for name, values in self._classes.items()}
        config = with_effective_defaults(OpenStackConfig(**made, classes=classes), self._set_at)
        return CloudConf(self._path, config, self._set_at, tuple(self._warnings))


def with_effective_defaults(
    config: OpenStackConfig, set_at: Iterable[tuple[str, str]]
) -> OpenStackConfig:
    """Returns the configuration with defaults that depend on other keys."""
    balancer, metadata, default = config.load_balancer, config.metadata, Metadata()
    is_set = bool(balancer.lb_method) and ("LoadBalancer", "lb-method") in set(set_at)
    if not is_set:
        method = "SOURCE_IP_PORT" if balancer.lb_provider == "ovn" else "ROUND_ROBIN"
        balancer = replace(balancer, lb_method=method)
    metadata = replace(
        metadata,
        request_timeout=metadata.request_timeout or default.request_timeout,
        search_order=metadata.search_order or default.search_order,
    )
    return replace(config, load_balancer=balancer, metadata=metadata)


def value_of(key: Key, text: str | None) -> Any:  # noqa: ANN401 -- of the type of its field
    """Returns the value of a key; of a list, that of one entry.

    Raises ValueError, or `Unusual` if another value is used instead.
    """
    if text is None:
        return _value_of_key_alone(key)
    match key.kind:
        case Kind.FLAG:
            return _flag(key, text)
        case Kind.NUMBER:
            return _number(key, text)
        case Kind.DURATION:
            return _duration(key, text)
        case _:
            return _text(key, text)


def _value_of_key_alone(key: Key) -> Any:  # noqa: ANN401
    if key.kind is Kind.FLAG and key.known is None:
        return True
    if key.kind is Kind.LIST:
        return ()
    raise ValueError(f'the value is missing. Fix: write "{key.name} = VALUE"')


def _flag(key: Key, text: str) -> bool:
    word = text.strip().casefold()
    if key.known is not None:
        if text not in key.known.values:
            raise Unusual(
                used=False, text=f'"{text}" is not true: false is used. Fix: {key.name} = false'
            )
        return text == "true"
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise ValueError(f'"{text}" is not true or false. Fix: {key.name} = {_shown(key.default)}')


def _number(key: Key, text: str) -> int:
    word = text.strip()
    if not re.fullmatch(r"[+-]?([0-9]+|0[xX][0-9a-fA-F]+)", word):
        raise ValueError(f'"{text}" is not a whole number. Fix: {key.name} = {key.default}')
    number = int(word, 16 if "x" in word.casefold() else 10)
    bounds = key.bounds
    if bounds is not None and not bounds.least <= number <= bounds.most:
        used = bounds.most if number > bounds.most else key.default
        limits = f"{bounds.least} to {bounds.most}"
        raise Unusual(
            used, f"{number} is not in the range {limits}: {used} is used. Fix: {key.name} = {used}"
        )
    return number


def _duration(key: Key, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        unit = f"{text}s" if re.fullmatch(r"[0-9]+", text) else render_duration(key.default)
        reason = str(error).removeprefix("time: ")
        raise ValueError(f"{reason}. Fix: {key.name} = {unit}") from None
    if seconds < 0:
        used = render_duration(key.default)
        raise Unusual(key.default, f"{text} is negative: {used} is used. Fix: {key.name} = {used}")
    return seconds


def _text(key: Key, text: str) -> str:
    known = key.known
    if not text or known is None or not known.is_complete:
        return text
    by_folded = {value.replace(" ", ""): value for value in known.values}
    found = by_folded.get(text.replace(" ", ""))
    if found is None:
        hint = did_you_mean(text, known.values)
        is_only = len(known.values) == 1
        fix = f"{key.name} =" if is_only else "use one of"
        raise ValueError(f'unknown value "{text}"{hint}. Fix: {fix} {", ".join(known.values)}')
    return found


def _shown(value: object) -> str:
    return str(value).lower()


def _other_section(name: str) -> str:
    """Returns a hint if the key belongs to another section."""
    homes = [section for section, keys in _KEYS.items() if name.casefold() in keys]
    return f" (it belongs to [{homes[0]}])" if homes else ""


_VERBS = ("is ", "needs ", "has ", "cannot ")


def _refuse(
    path: str,
    set_at: Mapping[tuple[str, str], int],
    problems: Iterable[Problem],
    warnings: Iterable[str] = (),
) -> None:
    texts = tuple(_located(path, set_at, problems))
    if texts:
        raise Misconfigured("; ".join((*texts, *warnings)))


def _located(
    path: str, set_at: Mapping[tuple[str, str], int], problems: Iterable[Problem]
) -> Iterator[str]:
    for each in problems:
        line = set_at.get((each.section, each.key))
        where = path if line is None else f"{path}:{line}"
        # Without a colon, "password is missing" is not masked as if "is" were the password.
        colon = "" if each.text.startswith(_VERBS) else ":"
        yield f"{where}: [{each.section}] {each.key}{colon} {each.text}"
