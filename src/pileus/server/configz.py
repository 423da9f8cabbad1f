"""`/configz` and `/version`: what runs here, and with which settings."""

from collections.abc import Callable, Mapping

from aiohttp import web

from pileus.server import answer
from pileus.server.build import Build
from pileus.server.router import Routes

Configuration = Callable[[], object]
"""Returns the settings as something that msgspec can encode, secrets left out."""


class Configz:
    """The register of configurations, by API group."""

    def __init__(self) -> None:
        self._groups: dict[str, Configuration] = {}

    def add(self, group: str, configuration: Configuration) -> None:
        if group in self._groups:
            raise ValueError(f"configuration {group!r} is registered already")
        self._groups[group] = configuration

    def shown(self) -> Mapping[str, object]:
        return {group: configuration() for group, configuration in self._groups.items()}


def configz_routes(configz: Configz) -> Routes:
    async def handle(_: web.BaseRequest) -> web.Response:
        return answer.json(configz.shown())

    return Routes({"/configz": handle})


def version_routes(build: Build) -> Routes:
    async def handle(_: web.BaseRequest) -> web.Response:
        return answer.json(build)

    return Routes({"/version": handle})
