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
ADVICE = f"give the right to get the namespace {NAMESPACE}, or say --cluster-id"
WAITING = f"Nothing is done in the cloud without the cluster's id: {ADVICE}"


class ClusterIdUnknown(KubeError):
    """The API server does not tell it; the text says why, and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the cluster's id is not known: {why}; {ADVICE}")
        self.why = why


async def find_cluster_id(client: Client, given: str) -> str:
    """What `--cluster-id` says, or else the UID of the namespace kube-system.

    Asks until there is an answer: with a guess, another cluster's things could be taken for ours.
    """
    failures = 0
    while not given:
        try:
            return await read_cluster_id(client)
        except ClusterIdUnknown as error:
            failures += 1
            delay = DELAYS.delay(failures)
            log.error(WAITING, why=error.why, retry_in=delay)
            await asyncio.sleep(delay)
    return given


async def read_cluster_id(client: Client) -> str:
    """The UID of the namespace kube-system. Errors: `ClusterIdUnknown`."""
    try:
        uid = (await client.get(NAMESPACES, NAMESPACE)).metadata.uid
    except KubeError as error:
        raise ClusterIdUnknown(str(error)) from error
    if not uid:
        raise ClusterIdUnknown("it has no UID")
    return uid
