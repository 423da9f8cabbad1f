"""The certificate of the webhook port, as every replica uses it: from files, or from the Secret."""

import asyncio
from dataclasses import dataclass

from pileus.admission.certificates import Damaged, Stored, expiry
from pileus.admission.names import NAME
from pileus.clock import Clock
from pileus.kube.client import Client
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.model.core_v1 import SECRETS
from pileus.objects.rights import KUBE_SYSTEM
from pileus.server.errors import BadCertificate
from pileus.server.serving_certificates import Certificates
from pileus.server.settings import ServingOptions
from pileus.server.tls import NamedPair, Tls
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

NAMESPACE = KUBE_SYSTEM
"""Of the Secret."""
READ_EVERY = 10.0
"""Seconds between two reads of the Secret; much less than the stages of a rotation take."""
READ_MISSING = 2.0
"""Seconds until the Secret is read again if there is none yet: the leader creates it."""
SOURCE = f"Secret {NAMESPACE}/{NAME}"


def use_files(options: ServingOptions, clock: Clock, tls: Tls) -> Certificates:
    """Serve with the files of the flags. Raises BadCertificate."""
    files = Certificates(options, clock)
    files.show(tls)
    return files


@dataclass
class SecretFollower:
    """Serves with the pair in the Secret. Until there is one, no client can connect."""

    client: Client
    tls: Tls
    metrics: Metrics
    _shown: Stored | None = None
    _complaint: str = ""

    async def follow(self) -> None:
        """Read the Secret again and again, until cancelled."""
        while True:
            pause = READ_EVERY if await self.refresh() else READ_MISSING
            await asyncio.sleep(pause)

    async def refresh(self) -> bool:
        """Use the pair of the Secret, or keep the one in use. Returns whether there is one."""
        try:
            found = await self.client.get(SECRETS, NAME, namespace=NAMESPACE)
            stored = Stored.of(found.data or {})
            if self._shown is None or stored.serving != self._shown.serving:
                await asyncio.to_thread(self._use, stored)
        except NotFound:
            self._complain("the leader has not created it yet")
        except (KubeError, Damaged, BadCertificate) as error:
            self._complain(str(error))
        else:
            self._shown, self._complaint = stored, ""
        return self._shown is not None

    def _use(self, stored: Stored) -> None:
        self.tls.use_pairs([NamedPair(stored.serving, SOURCE)])
        self.metrics.webhook_certificate_expiry.set(expiry(stored).timestamp())
        log.info("Webhook certificate loaded", source=SOURCE, expires=expiry(stored))

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            log.warning("Cannot read the webhook certificate", source=SOURCE, why=why)
        self._complaint = why
