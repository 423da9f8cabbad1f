"""Loads the cloud to simulate: by a short name, or from `MODULE:NAME`."""

import asyncio
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import cast

from pileus.clock import SystemClock
from pileus.suggest import did_you_mean
from pileus_lab.simulation.clouds.interface import MakeCloud, SimulatedCloud
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.environment.account import Account

NAMES: Mapping[str, str] = {
    "local": "pileus_lab.simulation.clouds.local:SimulatedLocal",
    "openstack": "pileus_lab.simulation.clouds.openstack:SimulatedOpenStack",
}
"""Clouds that are part of the laboratory, by their short names."""


class UnusableCloud(Exception):
    """There is no such cloud, or it cannot be simulated; the message says why."""


def load(text: str) -> MakeCloud:
    """Returns the cloud of that name; default: the local one.

    Searches the working directory too.

    Raises `UnusableCloud`.
    """
    if not text:
        return SimulatedLocal
    module, colon, name = NAMES.get(text, text).partition(":")
    if not (module and colon and name):
        raise UnusableCloud(
            f"a cloud is named {' or '.join(NAMES)}, or by MODULE:NAME, as "
            f'acme.simulated:SimulatedAcme, not "{text}"{did_you_mean(text, NAMES)}'
        )
    make = _named(_imported(module), name)
    check(text, make)
    return cast("MakeCloud", make)


def check(told: str, make: object) -> None:
    """Refuses a factory whose cloud cannot be simulated. Raises `UnusableCloud`."""
    if not callable(make):
        raise UnusableCloud(
            f"{told} is {_kind(make)}; use a class, or a function that returns a cloud"
        )
    if not _takes_chance(make):
        raise UnusableCloud(
            f"{told} must be callable with one argument, the random.Random from which it may "
            "draw what its cloud is like"
        )
    lacking = _lacking(make(Random(0)))  # noqa: S311 -- no secret
    if lacking:
        raise UnusableCloud(
            f"{told} returns a cloud that cannot be simulated: it lacks {', '.join(lacking)} "
            "(see pileus_lab.simulation.clouds.interface)"
        )


def check_volumes(told: str, make: MakeCloud) -> None:
    """Refuses a cloud whose provider has no volumes. Raises `UnusableCloud`."""
    cloud = make(Random(0))  # noqa: S311 -- no secret
    account = Account(cloud, SystemClock(), Random(0), lambda _: None)  # noqa: S311 -- no secret
    asyncio.run(account.open())
    if account.offered.volumes is None:
        raise UnusableCloud(f"{told} has no volumes: its Cloud.volumes is None")


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise UnusableCloud(f"module {name} cannot be imported: {error}") from error
        known = [path.stem for path in Path.cwd().glob("*.py")]
        raise UnusableCloud(
            f'no module "{error.name}" can be imported, neither from {here} nor as installed'
            f"{did_you_mean(error.name, known)}"
        ) from error
    except (ImportError, SyntaxError) as error:
        raise UnusableCloud(f"module {name} cannot be imported: {error}") from error


def _named(module: ModuleType, name: str) -> object:
    if not hasattr(module, name):
        known = [one for one in vars(module) if not one.startswith("_")]
        raise UnusableCloud(f'{module.__name__} has no "{name}"{did_you_mean(name, known)}')
    return cast("object", getattr(module, name))


def _takes_chance(make: Callable[..., object]) -> bool:
    try:
        inspect.signature(make).bind(Random(0))  # noqa: S311 -- no secret
    except TypeError:
        return False
    return True


def _lacking(made: object) -> list[str]:
    methods = [name for name in vars(SimulatedCloud) if not name.startswith("_")]
    lacking = [f"{name}()" for name in methods if not callable(getattr(made, name, None))]
    values = inspect.get_annotations(SimulatedCloud)
    return [*(name for name in values if not hasattr(made, name)), *lacking]


def _kind(thing: object) -> str:
    return "None" if thing is None else f"a {type(thing).__name__}"
