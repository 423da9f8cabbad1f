"""The id by which this cluster's things in the cloud are told from those of other clusters."""

import asyncio

from pileus.kube.client import Client
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import NAMESPACES
from pileus.runtime.backoff import Exponential
from pileus.telemetry.log import Log

log = Log(__name__)

NAMESPACE = "kube-system"
DELAYS = Exponential(1.0, 60.0)


async def find_cluster_id(client: Client, given: str) -> str:
    """What `--cluster-id` says, or else the UID of the namespace kube-system.

    Asks until there is an answer: with a guess, another cluster's things could be taken for ours.
    """
    failures = 0
    while not given:
        try:
            return await read_cluster_id(client)
        except KubeError as error:
            failures += 1
            delay = DELAYS.delay(failures)
            log.error(
                "The cluster's id is not known, and nothing is done in the cloud without it: "
                "give the manager the right to get the namespace kube-system, or say --cluster-id",
                error=error,
                retry_in=delay,
            )
            await asyncio.sleep(delay)
    return given


async def read_cluster_id(client: Client) -> str:
    """The UID of the namespace kube-system. Errors: `KubeError`."""
    uid = (await client.get(NAMESPACES, NAMESPACE)).metadata.uid
    if not uid:
        raise KubeError(f"namespace {NAMESPACE} has no UID")
    return uid
