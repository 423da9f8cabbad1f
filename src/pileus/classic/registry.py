"""Registration as in Go: by name, with a factory. The registry is shared with other providers."""

import io
from typing import TextIO

from pileus.classic.adapter import Adapted
from pileus.classic.interface import Factory, Interface
from pileus.cloud.connection import read_config
from pileus.cloud.errors import Misconfigured
from pileus.cloud.registry import PROVIDERS, Registry, UnknownProvider

EXTERNAL = "external"


def register_cloud_provider(name: str, factory: Factory, *, registry: Registry = PROVIDERS) -> None:
    """Raises `DuplicateProvider` if the name is taken; Go ends the process then."""
    registry.register(name, Adapted(factory))


def cloud_providers(*, registry: Registry = PROVIDERS) -> tuple[str, ...]:
    return registry.names()


def is_cloud_provider(name: str, *, registry: Registry = PROVIDERS) -> bool:
    return name in registry.names()


def is_external(name: str) -> bool:
    return name == EXTERNAL


def get_cloud_provider(
    name: str, config: TextIO | None, *, registry: Registry = PROVIDERS
) -> Interface | None:
    """Returns a new provider with that name; None if it is unknown.

    Raises `Misconfigured` if it is not a ported provider.
    """
    try:
        connect = registry.get(name)
    except UnknownProvider:
        return None
    if connect is None:
        return None
    if not isinstance(connect, Adapted):
        raise Misconfigured(f'cloud provider "{name}" has no classic interface')
    return connect.factory(config)


def init_cloud_provider(
    name: str, config_path: str, *, registry: Registry = PROVIDERS
) -> Interface | None:
    """As `get_cloud_provider`, from a file. Returns None for "" and `external`.

    Raises `Misconfigured` for a file that cannot be read, and `UnknownProvider`.
    """
    if not name or is_external(name):
        return None
    text = read_config(config_path).text
    registry.get(name)
    return get_cloud_provider(name, None if text is None else io.StringIO(text), registry=registry)
