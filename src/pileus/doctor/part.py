"""Reads one part of the observation: a failure becomes an `Unread`."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from pileus.doctor.observation import Read, Unread
from pileus.kube.errors import Forbidden, KubeError
from pileus.kube.model.meta import Resource
from pileus.objects.rights import Right

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds for one part of the observation."""


async def reading(what: str, right: Right, work: Awaitable[T]) -> Read[T]:
    """Returns what `work` returns, or why it failed."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await work
    except Forbidden as error:
        return Unread(what, str(error), right)
    except KubeError as error:
        return Unread(what, str(error))
    except TimeoutError:
        return Unread(what, f"no answer within {PATIENCE:.0f} s")


def right(
    verb: str, resource: Resource[Any], namespace: str = "", also: tuple[Resource[Any], ...] = ()
) -> Right:
    """`also`: further resources of the same API group."""
    return Right(
        purpose="",
        verbs=(verb,),
        resources=(resource.plural, *(each.plural for each in also)),
        group=resource.group,
        namespace=namespace,
    )
