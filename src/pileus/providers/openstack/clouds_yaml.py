"""Reads `clouds.yaml`, `secure.yaml` and `clouds-public.yaml`, as other OpenStack clients do.

Each file is searched by itself: the file that the configuration or the environment names, then the
working directory, `~/.config/openstack` and `/etc/openstack`. Keys that `cloud.conf` sets win.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import yaml

from pileus.cloud.errors import Misconfigured
from pileus.dataclass import dataclass
from pileus.providers.openstack.cloud_conf import FALSE
from pileus.providers.openstack.config import Auth
from pileus.suggest import did_you_mean

Read = Callable[[Path], str | None]
"""Returns the content of a file; None if it does not exist. Raises `Misconfigured`."""
AnyMap = Mapping[str, Any]

_AUTH_KEYS: Mapping[str, tuple[str, ...]] = {
    "auth_url": ("auth_url",),
    "username": ("username", "user_name"),
    "user_id": ("user_id",),
    "password": ("password",),
    "token": ("token",),
    "tenant_id": ("project_id", "tenant_id"),
    "tenant_name": ("project_name", "tenant_name"),
    "domain_id": ("domain_id",),
    "domain_name": ("domain_name",),
    "tenant_domain_id": ("project_domain_id",),
    "tenant_domain_name": ("project_domain_name",),
    "user_domain_id": ("user_domain_id",),
    "user_domain_name": ("user_domain_name",),
    "trust_id": ("trust_id",),
    "application_credential_id": ("application_credential_id",),
    "application_credential_name": ("application_credential_name",),
    "application_credential_secret": ("application_credential_secret",),
}
"""Keys of `auth` in clouds.yaml, by field of `Auth`."""
_TOP_KEYS: Mapping[str, tuple[str, ...]] = {
    "region": ("region_name",),
    "os_endpoint_type": ("interface", "endpoint_type"),
    "ca_file": ("cacert",),
    "cert_file": ("cert",),
    "key_file": ("key",),
}
_EITHER = (
    ("user_id", "username"),
    ("tenant_id", "tenant_name"),
    ("application_credential_id", "application_credential_name"),
    ("user_domain_id", "user_domain_name"),
    ("tenant_domain_id", "tenant_domain_name"),
    ("ca_file", "ca_data"),
)
"""Fields that say the same: if `cloud.conf` sets one, clouds.yaml does not add the other."""

_QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
"""Parts of the file in messages of the parser: of a password, if it begins with * or !."""

_PEM = "-----BEGIN CERTIFICATE-----"

_KEPT = frozenset({"tag:yaml.org,2002:merge", "tag:yaml.org,2002:null"})


class _Texts(yaml.SafeLoader):
    """Reads numbers, dates and truth values as they are written: a password may be 0123 or yes."""

    yaml_implicit_resolvers = {  # noqa: RUF012 -- of the library
        first: [each for each in resolvers if each[0] in _KEPT]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class CloudsYaml:
    auth: Auth
    files: tuple[str, ...]
    """Files that were read."""


def merge_clouds_yaml(auth: Auth, environ: Mapping[str, str], read: Read) -> CloudsYaml:
    """Returns `auth` completed with an entry of clouds.yaml.

    Raises `Misconfigured` if there is no file, no such entry, or a file cannot be read.
    """
    files: list[str] = []

    def found(name: str, variable: str, first: str = "") -> tuple[str, AnyMap]:
        path, content = _first(_places(name, variable, first, environ), read)
        if path:
            files.append(path)
        return path, content

    path, clouds = found("clouds.yaml", "OS_CLIENT_CONFIG_FILE", auth.clouds_file)
    if not path:
        raise Misconfigured(
            "[Global] use-clouds: there is no clouds.yaml in "
            f"{', '.join(_places('clouds.yaml', 'OS_CLIENT_CONFIG_FILE', '', environ))}. "
            "Fix: set clouds-file, or remove use-clouds"
        )
    beside = str(Path(path).with_name("secure.yaml")) if auth.clouds_file else ""
    _, secure = found("secure.yaml", "OS_CLIENT_SECURE_FILE", beside)
    _, public = found("clouds-public.yaml", "OS_CLIENT_VENDOR_FILE")
    entry = _entry(auth.cloud or environ.get("OS_CLOUD", ""), path, clouds, secure, public)
    return CloudsYaml(_completed(auth, entry), tuple(files))


def _places(name: str, variable: str, first: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    named = first or environ.get(variable, "")
    if named and name == "clouds.yaml":
        return (named,)
    home = environ.get("HOME", "")
    usual = (
        name,
        *((f"{home}/.config/openstack/{name}",) if home else ()),
        f"/etc/openstack/{name}",
    )
    return (named, *usual) if named else usual


def _first(places: tuple[str, ...], read: Read) -> tuple[str, AnyMap]:
    for place in places:
        text = read(Path(place))
        if text is not None:
            return place, _parsed(place, text)
    return "", {}


def _parsed(path: str, text: str) -> AnyMap:
    try:
        content: object = yaml.load(text, _Texts)  # noqa: S506 -- a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = _QUOTED.sub(_masked, error.problem or "invalid")
        raise Misconfigured(
            f"{path}{line}: is not YAML: {problem}. Fix: put values with special characters in "
            "quotes"
        ) from None
    except yaml.YAMLError:
        raise Misconfigured(f"{path}: is not YAML") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise Misconfigured(f'{path}: expected a map with the key "clouds"')
    return cast("AnyMap", content)


def _masked(quoted: re.Match[str]) -> str:
    """Returns single characters and names of the grammar, such as '<anchor>', as they are."""
    inner = quoted[0][1:-1]
    return quoted[0] if len(inner) <= 1 or inner.startswith("<") else "'…'"


def _entry(name: str, path: str, clouds: AnyMap, secure: AnyMap, public: AnyMap) -> AnyMap:
    entries = _map(clouds.get("clouds"))
    if not name and len(entries) == 1:
        name = next(iter(entries))
    if not name:
        known = ", ".join(sorted(entries)) or "none"
        raise Misconfigured(f"[Global] cloud is missing; {path} has {known}. Fix: cloud = NAME")
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise Misconfigured(
            f'[Global] cloud: {path} has no entry "{name}"{did_you_mean(name, entries)}. '
            f"Fix: use one of {known}"
        )
    own = _map(entries[name])
    profile = str(own.get("profile") or own.get("cloud") or "")
    base = _map(_map(public.get("public-clouds")).get(profile))
    return _merged(_merged(base, own), _map(_map(secure.get("clouds")).get(name)))


def _merged(base: AnyMap, over: AnyMap) -> AnyMap:
    """Returns both maps as one; `over` wins, also inside of maps."""
    both = dict(base)
    for key, value in over.items():
        is_map = isinstance(value, dict) and isinstance(both.get(key), dict)
        both[key] = _merged(both[key], cast("AnyMap", value)) if is_map else value
    return both


def _completed(auth: Auth, entry: AnyMap) -> Auth:
    given = dict(_values(entry))
    for one, other in _EITHER:
        if getattr(auth, one) or getattr(auth, other):
            given.pop(one, None)
            given.pop(other, None)
    missing = {name: value for name, value in given.items() if not getattr(auth, name)}
    return replace(auth, **missing)


def _values(entry: AnyMap) -> Iterator[tuple[str, Any]]:
    inner = _map(entry.get("auth"))
    default_domain = inner.get("default_domain") or entry.get("default_domain")
    for field, names in _AUTH_KEYS.items():
        yield from _value(field, names, inner)
    for field, names in _TOP_KEYS.items():
        for name, text in _value(field, names, entry):
            is_inline = name == "ca_file" and _PEM in text
            yield ("ca_data", b64encode(text.encode()).decode()) if is_inline else (name, text)
    if not entry.get("region_name"):
        yield from _only_region(entry.get("regions"))
    if str(entry.get("verify")).casefold() in FALSE:
        yield "tls_insecure", True
    if default_domain and not any("domain" in key for key in inner if key != "default_domain"):
        yield "domain_id", str(default_domain)


def _value(field: str, names: tuple[str, ...], values: AnyMap) -> Iterator[tuple[str, Any]]:
    text = next((str(values[name]) for name in names if values.get(name) not in {None, ""}), "")
    if text:
        yield field, text.removesuffix("URL") if field == "os_endpoint_type" else text


def _only_region(regions: object) -> Iterator[tuple[str, Any]]:
    listed = cast("list[object]", regions) if isinstance(regions, list) else []
    if len(listed) == 1:
        yield "region", str(_map(listed[0]).get("name") or listed[0])


def _map(value: object) -> AnyMap:
    return cast("AnyMap", value) if isinstance(value, dict) else {}
