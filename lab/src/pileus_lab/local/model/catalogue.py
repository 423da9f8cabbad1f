"""Every operation that the cloud's API has, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from pileus_lab.local.model import account, balancers, health, machines, routes, volumes
from pileus_lab.local.model.operation import Request

MODULES = (machines, balancers, health, routes, volumes, account)


def _operations() -> dict[str, type[Request]]:
    found = (thing for module in MODULES for thing in vars(module).values())
    requests = (thing for thing in found if isinstance(thing, type) and issubclass(thing, Request))
    return {str(vars(one)["NAME"]): one for one in requests if one is not Request}


OPERATIONS: Mapping[str, type[Request]] = MappingProxyType(_operations())
