"""The clouds that the user selected: one, or several with a name each.

One cloud, or several without further settings, are selected by flags:

    --cloud-provider=openstack,aws --cloud-config=/etc/openstack.yaml,/etc/aws.yaml

In the file of `--config`, each cloud can have a name, classes and whether it is the default:

    clouds:
    - name: private
      provider: openstack
      cloud-config: /etc/openstack.yaml
      default: true
    - provider: aws
      classes: [example.com/fast]
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, permutations, zip_longest
from typing import cast

from pileus.dataclass import dataclass
from pileus.settings.config import Config
from pileus.settings.declare import setting, switch
from pileus.settings.go_quote import quote
from pileus.settings.kinds import STRING, STRINGS, Kind
from pileus.suggest import did_you_mean

NO_PROVIDER = "--cloud-provider cannot be empty"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 63
_OWN_CLASS = "pileus.dev/"
"""Prefix of the load balancer class that a cloud always serves; its name follows."""
_CLASS = re.compile(r"[^\s/]+/[^\s/]+")
_KEYS = ("name", "provider", "cloud-config", "classes", "default")


class InvalidClouds(ValueError):
    """The list `clouds` is invalid. The message names the entry and the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudChoice:
    """One selected cloud."""

    name: str
    """Unique among the selected clouds. The name of the provider, unless `name` is set."""
    provider: str
    """The name under which the provider is registered."""
    config_file: str = ""
    """Path of the provider's configuration file; empty if it has none."""
    classes: tuple[str, ...] = ()
    """Load balancer classes that the cloud serves in addition to `pileus.dev/<name>`."""
    default: bool = True
    """Whether the cloud serves Services without a load balancer class. At most one cloud can."""


def selected(
    provider: str, config_file: str, listed: Sequence[CloudChoice]
) -> tuple[CloudChoice, ...]:
    """Returns the clouds in `listed`, else those of `--cloud-provider` and `--cloud-config`.

    The first provider in `--cloud-provider` is the default cloud. If there is only one, its name
    and file are used unchanged.
    """
    if listed:
        return tuple(listed)
    providers = _entries(provider)
    if len(providers) <= 1:
        return (CloudChoice(name=provider, provider=provider, config_file=config_file),)
    files = _entries(config_file) if config_file else ()
    pairs = list(zip_longest(providers, files, fillvalue=""))[: len(providers)]
    return tuple(
        CloudChoice(name=name, provider=name, config_file=file, default=place == 0)
        for place, (name, file) in enumerate(pairs)
    )


def problems(provider: str, config_file: str, listed: Sequence[CloudChoice]) -> Iterator[str]:
    """Yields an error for each problem. A conflict is reported with both sides and a fix."""
    if not listed and not provider:
        yield NO_PROVIDER
        return
    yield from _both_forms(provider, config_file, listed)
    yield from _different_lengths(provider, config_file, listed)
    clouds = selected(provider, config_file, listed)
    if len(clouds) > 1 or listed:
        yield from _bad_names(clouds)
    yield from _shared_names(clouds, listed)
    yield from _several_defaults(clouds)
    yield from _shared_classes(clouds)


def _entries(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _both_forms(provider: str, config_file: str, listed: Sequence[CloudChoice]) -> Iterator[str]:
    given = {"cloud-provider": provider, "cloud-config": config_file}
    names = ", ".join(cloud.name for cloud in listed)
    for flag, value in given.items():
        if listed and value:
            yield (
                f"--{flag}={value} and the list clouds ({names}) in the file of --config both "
                f"select clouds: remove --{flag} or the list"
            )


def _different_lengths(
    provider: str, config_file: str, listed: Sequence[CloudChoice]
) -> Iterator[str]:
    providers, files = _entries(provider), _entries(config_file)
    if not listed and len(providers) > 1 and config_file and len(files) != len(providers):
        yield (
            f"--cloud-config={config_file} has {_counted(files, 'entry', 'entries')}, but "
            f"--cloud-provider={provider} has {len(providers)}: give one file per provider in the "
            "same order, an empty entry for none"
        )


def _counted(items: Sequence[str], one: str, several: str) -> str:
    return f"{len(items)} {one if len(items) == 1 else several}"


def _bad_names(clouds: Iterable[CloudChoice]) -> Iterator[str]:
    for place, cloud in enumerate(clouds):
        if not cloud.name:
            yield f"--cloud-provider: entry {place + 1} of the list is empty: remove it"
        elif not _NAME.fullmatch(cloud.name) or len(cloud.name) > _LONGEST_NAME:
            yield (
                f"{quote(cloud.name)} is not a valid name of a cloud: use at most "
                f"{_LONGEST_NAME} lower case letters, digits and '-' between them"
            )


def _shared_names(clouds: Sequence[CloudChoice], listed: Sequence[CloudChoice]) -> Iterator[str]:
    for (first, one), (second, other) in combinations(enumerate(clouds), 2):
        if not one.name or one.name != other.name:
            continue
        if listed:
            yield (
                f"clouds[{first}] (provider {one.provider}) and clouds[{second}] (provider "
                f"{other.provider}) are both named {quote(one.name)}: give each its own name"
            )
        else:
            yield (
                f"--cloud-provider lists {quote(one.name)} twice (entries {first + 1} and "
                f"{second + 1}): remove one, or name each in the list clouds in the file of "
                "--config"
            )


def _several_defaults(clouds: Sequence[CloudChoice]) -> Iterator[str]:
    for one, other in combinations([cloud for cloud in clouds if cloud.default], 2):
        yield (
            f"clouds {quote(one.name)} and {quote(other.name)} both have default: true: at most "
            "one cloud can serve Services without a load balancer class; remove one"
        )


def _shared_classes(clouds: Sequence[CloudChoice]) -> Iterator[str]:
    for one, other in combinations(clouds, 2):
        for name in sorted(set(one.classes) & set(other.classes)):
            yield (
                f"clouds {quote(one.name)} and {quote(other.name)} both list the class "
                f"{quote(name)}: remove it from one of them"
            )
    for one, other in permutations(clouds, 2):
        if (own := f"{_OWN_CLASS}{other.name}") in one.classes:
            yield (
                f"cloud {quote(one.name)} lists the class {quote(own)}, which cloud "
                f"{quote(other.name)} serves by its name: remove it from cloud {quote(one.name)}"
            )


def read_clouds(document: object) -> tuple[CloudChoice, ...]:
    """Returns the clouds of the list `clouds` in the file of `--config`. Raises InvalidClouds."""
    if not isinstance(document, list) or not document:
        raise InvalidClouds("expected a list of clouds, each with at least a provider")
    entries = cast("list[object]", document)
    alone = len(entries) == 1
    return tuple(
        _read_cloud(entry, f"clouds[{place}]", alone=alone) for place, entry in enumerate(entries)
    )


def _read_cloud(entry: object, where: str, *, alone: bool) -> CloudChoice:
    if not isinstance(entry, dict):
        raise InvalidClouds(f"{where}: expected a mapping with the keys {', '.join(_KEYS)}")
    fields = {str(key): value for key, value in cast("dict[object, object]", entry).items()}
    for key in fields:
        if key not in _KEYS:
            raise InvalidClouds(f"{where}: unknown key {quote(key)}{did_you_mean(key, _KEYS)}")
    provider = _text(fields, "provider", where)
    if not provider:
        raise InvalidClouds(f"{where}.provider: expected the name of a cloud provider")
    return CloudChoice(
        name=_text(fields, "name", where) or provider,
        provider=provider,
        config_file=_text(fields, "cloud-config", where),
        classes=_classes(fields, where),
        default=_default(fields, where, alone=alone),
    )


def _text(fields: Mapping[str, object], key: str, where: str) -> str:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidClouds(f"{where}.{key}: expected text, got {value!r}")
    return value or ""


def _classes(fields: Mapping[str, object], where: str) -> tuple[str, ...]:
    value = fields.get("classes")
    if value is not None and not isinstance(value, list):
        raise InvalidClouds(f"{where}.classes: expected a list of class names")
    names = cast("list[object]", value or [])
    for name in names:
        if not isinstance(name, str) or not _CLASS.fullmatch(name):
            raise InvalidClouds(
                f"{where}.classes: {name!r} must be a name such as example.com/fast"
            )
    return tuple(cast("list[str]", names))


def _default(fields: Mapping[str, object], where: str, *, alone: bool) -> bool:
    """Returns `default`. If it is not set, a single cloud is the default, and of several none."""
    value = fields.get("default", alone)
    if not isinstance(value, bool):
        raise InvalidClouds(f"{where}.default: expected true or false, got {value!r}")
    return value


def _render(clouds: tuple[CloudChoice, ...]) -> str:
    return ",".join(cloud.name for cloud in clouds)


def _not_as_text(_text: str) -> tuple[CloudChoice, ...]:
    raise InvalidClouds("can only be given in the file of --config")


CLOUDS: Kind[tuple[CloudChoice, ...]] = Kind(
    name="list of clouds", parse=_not_as_text, render=_render, document=read_clouds
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """Which clouds are selected (`--cloud-provider`, `--cloud-config`, the list `clouds`)."""

    provider: str = setting(
        "cloud-provider",
        STRING,
        "",
        "Name of the cloud provider (required), or a comma-separated list. `pileus providers` "
        "lists them.",
        details="Of several, the first serves Services without a load balancer class.",
        section="Generic",
        configz="KubeCloudShared.CloudProvider.Name",
    )
    config_file: str = setting(
        "cloud-config",
        STRING,
        "",
        "Configuration file of the cloud provider; empty: none. One per provider, comma-separated.",
        section="Generic",
        configz="KubeCloudShared.CloudProvider.CloudConfigFile",
    )
    listed: tuple[CloudChoice, ...] = setting(
        "clouds",
        CLOUDS,
        (),
        "Clouds instead of --cloud-provider, each with provider, name, cloud-config, classes and "
        "default.",
        details=(
            "name: unique, that of the provider if left out. classes: load balancer classes "
            "besides its own. default: serves Services without a class, at most one cloud."
        ),
        only_file=True,
        section="Pileus",
    )
    allow_untagged: bool = switch(
        "allow-untagged-cloud",
        "Warn instead of failing if the cloud provider has no cluster ID.",
        deprecated="a cluster ID on the cloud's instances will be required",
        section="Generic",
        configz="KubeCloudShared.AllowUntaggedCloud",
    )
    user_agent: tuple[str, ...] = setting(
        "user-agent",
        STRINGS,
        (),
        "Texts that precede the User-Agent of requests to the cloud, if the provider sends one.",
        section="Pileus",
    )
    volume_plugin: str = setting(
        "external-cloud-volume-plugin",
        STRING,
        "",
        "Accepted for compatibility; no effect.",
        section="Generic",
        configz="KubeCloudShared.ExternalCloudVolumePlugin",
    )

    @property
    def clouds(self) -> tuple[CloudChoice, ...]:
        """Returns the selected clouds, at least one."""
        return selected(self.provider, self.config_file, self.listed)

    def problems(self, _config: Config) -> Iterator[str]:
        yield from problems(self.provider, self.config_file, self.listed)
