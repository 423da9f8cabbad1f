"""The webhook certificate controller: the leader creates and rotates the certificates in a Secret.

It writes the authorities into `caBundle` of the webhook configurations with our name, and nothing
else in them: the configurations come from `pileus manifests --webhooks`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from pileus.admission.certificates import (
    Damaged,
    Step,
    Stored,
    due,
    expiry,
    performed,
)
from pileus.admission.names import DOMAIN, NAME, OWNER_LABEL, Effect, WebhookNames
from pileus.clock import Clock
from pileus.cloud.balancer import Effect as Change
from pileus.kube.client import Client
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.model.admissionregistration_v1 import (
    MUTATING,
    VALIDATING,
    Webhook,
    WebhookConfiguration,
)
from pileus.kube.model.core_v1 import SECRETS, ObjectReference, Secret
from pileus.kube.patch import MergePatch, StrategicPatch
from pileus.objects.decisions import record_observation, record_plan
from pileus.objects.descriptor import ControllerContext
from pileus.objects.events import ObjectEvents
from pileus.objects.preview import Place, Planned, Scope, Trouble
from pileus.runtime.periodic import Periodic
from pileus.telemetry.log import Log

log = Log(__name__)

ROUND = "WebhookCertificates"
CHECK_EVERY = 60.0
"""Seconds between two rounds: configurations may be created or replaced at any time."""
CHECK_ROTATION = 5.0
"""The same between two stages of a rotation."""
SOON = 2.0
"""Seconds until the next round after one that changed something."""
ROTATED, NOT_REGISTERED, FOREIGN = (
    "WebhookCertificateRotated",
    "WebhookNotRegistered",
    "WebhookSecretNotOurs",
)
RESOURCES = {Effect.MUTATING: MUTATING, Effect.VALIDATING: VALIDATING}
INSTALL = (
    "Fix: pileus doctor (it prints the command that creates it; docs/guides/volume-admission.md)"
)


class NotOurs(Exception):
    """A Secret of our name was created by someone else, and is not changed."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A webhook configuration with our name, and the webhooks in it that are ours."""

    effect: Effect
    hooks: tuple[Webhook, ...] = ()
    exists: bool = True

    @property
    def about(self) -> ObjectReference:
        return ObjectReference(
            api_version="admissionregistration.k8s.io/v1", kind=self.effect.value, name=NAME
        )


@dataclass(frozen=True, slots=True)
class Observed:
    """The input of a round."""

    namespace: str
    secret: Secret | None
    stored: Stored | None
    registered: tuple[Registered, ...]
    now: datetime

    @property
    def about(self) -> ObjectReference:
        return ObjectReference(api_version="v1", kind="Secret", namespace=self.namespace, name=NAME)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Returns the names at which API servers reach the port."""
        hooks = (hook for each in self.registered for hook in each.hooks)
        return tuple(sorted({host for hook in hooks if (host := host_of(hook))}))

    @property
    def step(self) -> Step | None:
        bundles = (
            hook.client_config.ca_bundle or b"" for each in self.registered for hook in each.hooks
        )
        return due(self.stored, self.hosts, bundles, self.now)

    def outdated(self, stored: Stored) -> Iterator[tuple[Registered, tuple[str, ...]]]:
        """Yields configurations with the webhooks that do not trust exactly our authorities."""
        for each in self.registered:
            wrong = [
                hook.name for hook in each.hooks if hook.client_config.ca_bundle != stored.bundle
            ]
            if wrong:
                yield each, tuple(wrong)


def host_of(hook: Webhook) -> str:
    """Returns the name that the API server looks for in the certificate."""
    client = hook.client_config
    if client.service is not None:
        return f"{client.service.name}.{client.service.namespace}.svc"
    host = urlsplit(client.url or "").hostname or ""
    try:
        return str(ip_address(host))
    except ValueError:
        return host


def lines(seen: Observed) -> Iterator[Planned | Trouble]:
    """Yields what the next round would do."""
    for each in seen.registered:
        if not each.exists:
            yield Trouble(each.about, NOT_REGISTERED, f"it does not exist. {INSTALL}")
    step = seen.step
    if step is not None:
        effect = Change.CREATE if seen.secret is None else Change.UPDATE
        yield Planned(about=seen.about, place=Place.CLUSTER, effect=effect, summary=step.value)
    if seen.stored is None:
        return
    for each, names in seen.outdated(seen.stored):
        yield Planned(
            about=each.about,
            place=Place.CLUSTER,
            effect=Change.UPDATE,
            summary=f"webhooks[].clientConfig.caBundle of {', '.join(names)}",
        )


class CertificateController:
    """Keeps Secret and configurations up to date while this process is the leader."""

    def __init__(
        self, context: ControllerContext, webhooks: Iterable[WebhookNames], namespace: str
    ) -> None:
        self._client: Client = context.client
        self._clock: Clock = context.clock
        self._effects = tuple(dict.fromkeys(each.effect for each in webhooks))
        self._namespace = namespace
        self._events = ObjectEvents(context.events)
        self._round = Periodic(context.scoped(ROUND), self._work, context.metrics, context.random)

    async def run(self) -> None:
        await self._round.run()

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        try:
            seen = await self._observe()
        except (KubeError, NotOurs) as error:
            about = ObjectReference(
                api_version="v1", kind="Secret", namespace=self._namespace, name=NAME
            )
            return [Trouble(about, FOREIGN, str(error))] if scope.has(about) else []
        return [line for line in lines(seen) if scope.has(line.about)]

    def stuck(self, limit: float) -> str | None:
        return self._round.stuck(limit)

    def failing(self) -> str | None:
        return self._round.failing()

    async def _work(self) -> float:
        """Returns the seconds until the next round."""
        seen = await self._observe()
        record_observation(seen.about)
        record_plan(lines(seen))
        self._report(seen)
        stored, step = seen.stored, seen.step
        if step is not None:
            stored = await self._take(step, seen)
        wrong = tuple(seen.outdated(stored)) if stored is not None else ()
        for each, names in wrong:
            await self._trust(each, names, stored.bundle if stored else b"")
        if step or wrong:
            return SOON
        return CHECK_ROTATION if stored and stored.is_rotating else CHECK_EVERY

    async def _observe(self) -> Observed:
        secret = await self._secret()
        stored = None
        if secret is not None:
            stored = self._read(secret)
        registered = [await self._configuration(each) for each in self._effects]
        return Observed(self._namespace, secret, stored, tuple(registered), self._clock.now())

    async def _secret(self) -> Secret | None:
        try:
            return await self._client.get(SECRETS, NAME, namespace=self._namespace)
        except NotFound:
            return None

    def _read(self, secret: Secret) -> Stored | None:
        """Returns None for a damaged Secret of ours, which is written again. Raises NotOurs."""
        try:
            return Stored.of(secret.data or {})
        except Damaged as error:
            labels = secret.metadata.labels or {}
            if not OWNER_LABEL.items() <= labels.items():
                raise NotOurs(
                    f"Secret {self._namespace}/{NAME} was not created by this manager: {error}. "
                    f"Fix: kubectl --namespace={self._namespace} delete secret {NAME}"
                ) from error
            if secret.data:
                log.warning("Replacing damaged certificates of webhooks", secret=NAME, err=error)
            return None

    async def _configuration(self, effect: Effect) -> Registered:
        try:
            found: WebhookConfiguration = await self._client.get(RESOURCES[effect], NAME)
        except NotFound:
            return Registered(effect, exists=False)
        hooks = (hook for hook in found.webhooks or () if hook.name.endswith(f".{DOMAIN}"))
        return Registered(effect, tuple(hooks))

    async def _take(self, step: Step, seen: Observed) -> Stored:
        """Performs the step. The Secret is written only if no one has changed it meanwhile."""
        stored = performed(step, seen.stored, seen.hosts, seen.now)
        if seen.secret is None:  # manifests have an empty one, so that no right to create is needed
            body = {
                "metadata": {"name": NAME, "namespace": self._namespace, "labels": OWNER_LABEL},
                "data": {key: value for key, value in stored.data().items() if value},
            }
            await self._client.create(SECRETS, body, namespace=self._namespace)
        else:
            version = seen.secret.metadata.resource_version
            metadata = {"resourceVersion": version, "labels": OWNER_LABEL}
            patch = MergePatch({"metadata": metadata, "data": stored.data()})
            await self._client.patch(SECRETS, NAME, patch, namespace=self._namespace)
        log.info("Changed certificates of webhooks", step=step.value, expires=expiry(stored))
        self._events.announce(seen.about, ROTATED, f"Done: {step.value}")
        return stored

    async def _trust(self, where: Registered, names: Iterable[str], bundle: bytes) -> None:
        hooks = [{"name": name, "clientConfig": {"caBundle": bundle}} for name in names]
        patch = StrategicPatch({"webhooks": hooks})
        await self._client.patch(RESOURCES[where.effect], NAME, patch)
        log.info("Updated the CA of webhooks", kind=where.effect.value, webhooks=list(names))

    def _report(self, seen: Observed) -> None:
        for each in seen.registered:
            if each.exists:
                continue
            log.warning("Webhooks are served but not registered", kind=each.effect.value)
            self._events.warn(
                seen.about, NOT_REGISTERED, f"{each.effect.value} {NAME} does not exist. {INSTALL}"
            )
