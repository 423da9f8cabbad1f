"""The cluster ID in the tags of cloud resources: `--cluster-id`, or the UID of kube-system."""

import asyncio

from pileus.kube.client import Client
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import NAMESPACES
from pileus.runtime.backoff import Exponential
from pileus.telemetry.log import Log

log = Log(__name__)

NAMESPACE = "kube-system"
DELAYS = Exponential(1.0, 60.0)
ADVICE = f"grant get on namespace {NAMESPACE}, or set --cluster-id"
WAITING = "Waiting for the cluster ID: nothing is changed in the cloud without it"


class ClusterIdUnknown(KubeError):
    """The ID cannot be read; the message says why and how to fix it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the cluster ID is not known: {why}. Fix: {ADVICE}")
        self.why = why


class ClusterIdentity:
    """Reads the cluster's ID once for all controllers of the process."""

    def __init__(self, client: Client, given: str = "") -> None:
        self._client = client
        self._known = given
        self._reading = asyncio.Lock()

    @property
    def known(self) -> str:
        """The ID, or "" if it has not been read yet."""
        return self._known

    async def find(self, *, wait: bool = True) -> str:
        """Returns the ID, never a guess: with one, another cluster's resources could seem ours.

        With `wait` it retries until it knows; otherwise it raises ClusterIdUnknown.
        """
        if not self._known:
            async with self._reading:
                self._known = self._known or await self._read(wait=wait)
        return self._known

    async def _read(self, *, wait: bool) -> str:
        failures = 0
        while True:
            try:
                return await _uid(self._client)
            except ClusterIdUnknown as error:
                if not wait:
                    raise
                failures += 1
                delay = DELAYS.delay(failures)
                log.error(WAITING, why=error.why, fix=ADVICE, retry_in=delay)
                await asyncio.sleep(delay)


async def _uid(client: Client) -> str:
    try:
        uid = (await client.get(NAMESPACES, NAMESPACE)).metadata.uid
    except KubeError as error:
        raise ClusterIdUnknown(str(error)) from error
    if not uid:
        raise ClusterIdUnknown("it has no UID")
    return uid
