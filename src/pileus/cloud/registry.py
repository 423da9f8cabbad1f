"""The available providers: installed entry points, and those registered in code. Loaded on use.

A distribution declares a provider in its `pyproject.toml`:

    [project.entry-points."pileus.providers"]
    acme = "acme_cloud:connect"
"""

import importlib
import inspect
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

from pileus import entry_points
from pileus.cloud.errors import Misconfigured
from pileus.cloud.interface import Connect
from pileus.dataclass import dataclass
from pileus.entry_points import EntryPoint
from pileus.suggest import did_you_mean
from pileus.version import INSTALL_LAB, installing

GROUP = "pileus.providers"
NO_PROVIDER = frozenset({"", "external"})
"""Values of `--cloud-provider` that select no provider."""
LAB_PROVIDER = "local"
OURS = {"pileus", "pileus-lab"}
"""Our own distributions."""
LAB_HINT = f". It is part of the laboratory, which is not installed. Fix: {INSTALL_LAB}"


class UnknownProvider(Misconfigured):
    """No provider has this name."""


class DuplicateProvider(Misconfigured):
    """Two providers have the same name."""


class BrokenProvider(Misconfigured):
    """An installed provider cannot be loaded. Other providers are not affected."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of `pileus providers`."""

    name: str
    origin: str
    problem: str = ""
    """Why the provider cannot be loaded, and how to fix it; empty if it can."""


@dataclass(frozen=True, slots=True)
class _Offer:
    name: str
    origin: str
    load: Callable[[], object]
    remedy: str


def installed() -> Iterable[EntryPoint]:
    """Returns the entry points of all installed distributions that declare a provider."""
    return entry_points.entry_points(GROUP)


class Registry:
    """The providers of one process. Reads the installed distributions on first use."""

    def __init__(self, discover: Callable[[], Iterable[EntryPoint]] = installed) -> None:
        self._discover = discover
        self._registered: list[_Offer] = []
        self._found: tuple[_Offer, ...] | None = None

    def register(self, name: str, connect: Connect) -> None:
        """Add a provider from code. Raises DuplicateProvider if the name exists."""
        origin = f"code ({_qualified_name(connect)})"
        offer = _Offer(name, origin, lambda: connect, "fix the code that registers it")
        _by_name([*self._offers(), offer])
        self._registered.append(offer)

    def names(self) -> tuple[str, ...]:
        """Returns the names of all providers, sorted, including those that cannot be loaded.

        Raises DuplicateProvider if two distributions declare the same name.
        """
        return tuple(sorted(_by_name(self._offers())))

    def get(self, name: str) -> Connect | None:
        """Loads and returns the provider of that name; None for the names in `NO_PROVIDER`.

        Raises UnknownProvider, BrokenProvider or DuplicateProvider. The message says how to fix it.
        """
        if name in NO_PROVIDER:
            return None
        offers = _by_name(self._offers())
        if name not in offers:
            known = ", ".join(sorted(offers)) or "none is installed"
            hint = LAB_HINT if name == LAB_PROVIDER else did_you_mean(name, offers)
            raise UnknownProvider(f'unknown cloud provider "{name}" (known: {known}){hint}')
        return _load(offers[name])

    def listing(self) -> tuple[Listed, ...]:
        """Returns all providers, sorted by name. Loads each, and reports why one fails to load."""
        return tuple(_listed(offer) for _, offer in sorted(_by_name(self._offers()).items()))

    def _offers(self) -> tuple[_Offer, ...]:
        if self._found is None:
            self._found = tuple(_installed_offer(entry) for entry in self._discover())
        return (*self._found, *self._registered)


PROVIDERS = Registry()
"""The registry of this process. Tests create their own."""


def _by_name(offers: Iterable[_Offer]) -> dict[str, _Offer]:
    found: dict[str, _Offer] = {}
    for offer in offers:
        first = found.setdefault(offer.name, offer)
        if first is not offer:
            raise DuplicateProvider(
                f'cloud provider "{offer.name}" is offered twice: by {first.origin} '
                f"and by {offer.origin}; uninstall or rename one of them"
            )
    return found


def _installed_offer(entry: EntryPoint) -> _Offer:
    distribution = entry.distribution or "an unnamed distribution"
    version = f" {entry.version}" if entry.version else ""
    wanted = f"{distribution}[{','.join(entry.extras)}]" if entry.extras else distribution
    command = f"pip install --force-reinstall '{wanted}'"
    if distribution in OURS:
        command = installing("lab", again=True)
    return _Offer(
        name=entry.name,
        origin=f"{distribution}{version} ({entry.value})",
        load=entry.load,
        remedy=f"{command} may fix it",
    )


def _load(offer: _Offer) -> Connect:
    try:
        connect = offer.load()
    except Exception as error:
        raise BrokenProvider(
            f'cloud provider "{offer.name}" of {offer.origin} cannot be loaded: '
            f"{type(error).__name__}: {error}{_place(error)}; {_remedy(offer, error)}"
        ) from error
    if not callable(connect):
        raise BrokenProvider(
            f'cloud provider "{offer.name}" of {offer.origin} is a {type(connect).__name__}, '
            "not a function connect(config); fix its entry point"
        )
    if problem := _wrong_connect(connect):
        raise BrokenProvider(f'cloud provider "{offer.name}" of {offer.origin}: {problem}')
    return cast("Connect", connect)


def _wrong_connect(connect: Callable[..., object]) -> str:
    """Returns why `connect(config)` cannot be entered with `async with`; empty if it can."""
    try:
        inspect.signature(connect).bind(object())
    except ValueError:
        return ""  # written in C: it is found out when it is called
    except TypeError as error:
        return f"connect() must take one argument, the ProviderConfig: {error}"
    if inspect.iscoroutinefunction(connect) or inspect.isasyncgenfunction(connect):
        return "connect() is `async def`: decorate it with @contextlib.asynccontextmanager"
    return ""


def _place(error: Exception) -> str:
    """Returns the file and line of the provider's code that raised; empty if none ran."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" (in {error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if not _is_import_machinery(frame.filename)]
    return f" (in {ours[-1].filename}, line {ours[-1].lineno})" if ours else ""


def _is_import_machinery(filename: str) -> bool:
    loaders = (__file__, entry_points.__file__, str(Path(importlib.__file__).parent))
    return filename.startswith(("<frozen importlib", *loaders))


def _remedy(offer: _Offer, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f'the module "{error.name}" is missing: {offer.remedy}'
    return offer.remedy


def _listed(offer: _Offer) -> Listed:
    try:
        _load(offer)
    except BrokenProvider as error:
        return Listed(offer.name, offer.origin, str(error))
    return Listed(offer.name, offer.origin)


def _qualified_name(connect: object) -> str:
    module = getattr(connect, "__module__", "")
    return f"{module}.{getattr(connect, '__qualname__', type(connect).__qualname__)}"
