"""Certificates of the webhook port: no stage of a rotation leaves a client without trust."""

from base64 import b64decode
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from cryptography import x509

from pileus.admission.certificate_controller import CertificateController, NotOurs
from pileus.admission.certificates import (
    AUTHORITY_LIFETIME,
    AUTHORITY_RESERVE,
    OVERLAP,
    SERVING_LIFETIME,
    SERVING_RESERVE,
    Damaged,
    Step,
    Stored,
    due,
    performed,
)
from pileus.admission.descriptor import CERTIFICATES
from pileus.admission.names import WEBHOOKS
from pileus.cloud.interface import Cloud
from pileus.deployment.webhooks import secret
from pileus.fence import Open
from pileus.fix import fix_in
from pileus.kube.client import Client
from pileus.kube.errors import Conflict
from pileus.objects.cloud_scope import only_scope
from pileus.objects.descriptor import ControllerContext
from pileus.objects.preview import EVERYTHING, Trouble
from pileus.runtime.informers import Informers
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from tests.unit.admission.beds import Objects, configuration
from tests.unit.controllers.events import FakeEvents

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = ("hooks.kube-system.svc",)
SECRET = "/api/v1/namespaces/kube-system/secrets/cloud-controller-manager-webhook"
ROOT = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{ROOT}/mutatingwebhookconfigurations/cloud-controller-manager-webhook"
VALIDATING = f"{ROOT}/validatingwebhookconfigurations/cloud-controller-manager-webhook"


def created(now: datetime = NOW) -> Stored:
    return performed(Step.CREATE, None, HOSTS, now)


def is_trusted(stored: Stored, bundle: bytes, now: datetime) -> bool:
    """Whether a client with this bundle accepts the served certificate."""
    leaf = x509.load_pem_x509_certificate(stored.serving.certificate)
    in_time = leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc
    for authority in x509.load_pem_x509_certificates(bundle):
        if authority.subject == leaf.issuer and authority.not_valid_after_utc >= now:
            leaf.verify_directly_issued_by(authority)
            return in_time
    return False


def test_over_four_years_every_old_replica_is_trusted_by_every_api_server() -> None:
    """Replicas and API servers lag one stage behind, and are still trusted by one another."""
    stored = older = created()
    bundle = older_bundle = stored.bundle
    steps: list[Step] = []
    now = NOW
    while now < NOW + timedelta(days=1460):
        step = due(stored, HOSTS, [bundle], now)
        if step is not None:
            steps.append(step)
            older, stored = stored, performed(step, stored, HOSTS, now)
            older_bundle, bundle = bundle, stored.bundle
        for served in (older, stored):
            assert is_trusted(served, bundle, now), step
            assert is_trusted(served, older_bundle, now), step
        now += OVERLAP if step else timedelta(days=5)
        if step is None:
            older, older_bundle = stored, bundle

    assert {*steps} == {Step.RENEW, Step.ANNOUNCE, Step.PROMOTE, Step.RETIRE}
    assert steps.count(Step.ANNOUNCE) == 2


def test_a_new_authority_signs_only_when_every_webhook_trusts_it() -> None:
    stored = performed(Step.ANNOUNCE, created(), HOSTS, NOW)
    later = NOW + OVERLAP

    assert due(stored, HOSTS, [stored.bundle, created().bundle], later) is None
    assert due(stored, HOSTS, [stored.bundle, stored.bundle], NOW) is None
    assert due(stored, HOSTS, [stored.bundle, stored.bundle], later) is Step.PROMOTE


@pytest.mark.parametrize(
    ("age", "hosts", "step"),
    [
        (timedelta(0), HOSTS, None),
        (timedelta(0), (*HOSTS, "127.0.0.1"), None),
        (timedelta(0), (*HOSTS, "10.0.0.1"), Step.RENEW),
        (timedelta(0), ("other.kube-system.svc",), Step.RENEW),
        (SERVING_LIFETIME - SERVING_RESERVE + timedelta(days=1), HOSTS, Step.RENEW),
        (AUTHORITY_LIFETIME + timedelta(days=1), HOSTS, Step.CREATE),
    ],
)
def test_certificates_are_renewed_in_time_and_for_new_names(
    age: timedelta, hosts: tuple[str, ...], step: Step | None
) -> None:
    assert due(created(), hosts, [], NOW + age) is step


def test_an_authority_is_replaced_long_before_its_end() -> None:
    when = NOW + AUTHORITY_LIFETIME - AUTHORITY_RESERVE + timedelta(days=1)
    stored = performed(Step.RENEW, created(), HOSTS, when)

    assert due(stored, HOSTS, [], when) is Step.ANNOUNCE


def test_a_secret_is_read_as_it_was_written() -> None:
    stored = performed(Step.ANNOUNCE, created(), HOSTS, NOW)
    data = {key: value for key, value in stored.data().items() if value}

    assert Stored.of(data) == stored
    with pytest.raises(Damaged, match="it lacks tls.key"):
        Stored.of({**data, "tls.key": b""})
    with pytest.raises(Damaged, match="cannot be read"):
        Stored.of({**data, "ca.crt": b"no certificate"})


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


class Bed:
    def __init__(self) -> None:
        self.kube, self.clock, self.events = Objects(), Clock(), FakeEvents()
        metrics = Metrics(MetricRegistry())
        client = Client(self.kube, user_agent="test", metrics=metrics)
        context = ControllerContext(
            names=CERTIFICATES,
            scope=only_scope(Cloud(name="x")),
            client=client,
            events=self.events,
            informers=Informers(client, Random(0), 0),
            fence=Open(),
            metrics=metrics,
            clock=self.clock,
            random=Random(0),
            cluster_id=_no_id,
        )
        self.controller = CertificateController(context, WEBHOOKS, "kube-system")

    async def round(self) -> float:
        return await self.controller._work()

    async def settle(self) -> int:
        """Runs rounds until one changes nothing. Returns their number."""
        for number in range(10):
            before = len(self.kube.writes)
            await self.round()
            if len(self.kube.writes) == before:
                return number
        raise AssertionError("it does not settle")

    def stored(self) -> Stored:
        return Stored.of({k: b64decode(v) for k, v in self.kube.kept[SECRET]["data"].items()})

    def bundles(self, path: str) -> list[bytes | None]:
        return [
            b64decode(each["clientConfig"].get("caBundle", ""))
            for each in self.kube.kept[path]["webhooks"]
        ]


async def _no_id() -> str:
    raise AssertionError("certificates have nothing to do with the cloud")


@pytest.fixture
async def bed() -> Bed:
    made = Bed()
    made.kube.put(
        MUTATING, configuration("MutatingWebhookConfiguration", "https://10.1.1.1:10260/a")
    )
    made.kube.put(VALIDATING, configuration("ValidatingWebhookConfiguration", "https://[::1]/b"))
    return made


async def test_the_leader_creates_a_secret_and_writes_its_authority_into_our_webhooks(
    bed: Bed,
) -> None:
    assert await bed.settle() == 1

    stored = bed.stored()
    assert bed.bundles(MUTATING) == [stored.bundle, b""]
    assert bed.bundles(VALIDATING) == [stored.bundle, b""]
    leaf = x509.load_pem_x509_certificate(stored.serving.certificate)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(each) for each in names.get_values_for_type(x509.IPAddress)} == {
        "10.1.1.1",
        "127.0.0.1",
        "::1",
    }
    assert await bed.controller.preview(EVERYTHING) == []


async def test_a_second_leader_changes_nothing(bed: Bed) -> None:
    await bed.settle()
    second = Bed()
    second.kube, bed.kube.writes = bed.kube, []
    second.controller._client = Client(
        bed.kube, user_agent="second", metrics=Metrics(MetricRegistry())
    )

    await second.round()

    assert bed.kube.writes == []


async def test_a_plan_names_what_the_next_round_writes_and_writes_nothing(bed: Bed) -> None:
    planned = await bed.controller.preview(EVERYTHING)

    assert [line.about.kind for line in planned] == ["Secret"]
    assert bed.kube.writes == []


async def test_a_replaced_configuration_gets_its_authority_again(bed: Bed) -> None:
    await bed.settle()
    bed.kube.put(MUTATING, configuration("MutatingWebhookConfiguration", "https://10.1.1.1/a"))
    planned = await bed.controller.preview(EVERYTHING)

    await bed.settle()

    assert [line.about.kind for line in planned] == ["MutatingWebhookConfiguration"]
    assert bed.bundles(MUTATING) == [bed.stored().bundle, b""]


async def test_without_configurations_the_user_is_told_what_to_apply() -> None:
    bed = Bed()

    await bed.settle()
    planned: Any = await bed.controller.preview(EVERYTHING)

    assert "WebhookNotRegistered" in bed.events.reasons()
    fixes = {fix_in(line.message) for line in planned if isinstance(line, Trouble)}
    assert fixes == {"pileus doctor"}
    assert {line.about.kind for line in planned} == {
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    }


async def test_a_secret_of_someone_else_is_not_overwritten(bed: Bed) -> None:
    bed.kube.put(SECRET, {"metadata": {"name": "theirs"}, "data": {"password": "aGk="}})

    with pytest.raises(NotOurs, match="kubectl --namespace=kube-system delete secret"):
        await bed.round()

    assert bed.kube.writes == []


async def test_a_secret_that_helm_installed_gets_the_certificates(bed: Bed) -> None:
    """Helm sets its own label on every object of a release, whatever the chart says."""
    labels = secret()["metadata"]["labels"] | {"app.kubernetes.io/managed-by": "Helm"}
    name = {"name": "cloud-controller-manager-webhook", "namespace": "kube-system"}
    bed.kube.put(SECRET, {"metadata": {**name, "labels": labels}, "data": {}})

    await bed.settle()

    assert bed.bundles(MUTATING)[0] == bed.stored().bundle
    assert bed.kube.kept[SECRET]["metadata"]["labels"] == labels, "Helm finds its label again"


async def test_a_damaged_secret_of_ours_is_written_again(bed: Bed) -> None:
    await bed.settle()
    bed.kube.kept[SECRET]["data"]["tls.crt"] = "aGk="

    await bed.settle()

    assert bed.bundles(MUTATING)[0] == bed.stored().bundle


async def test_a_secret_that_changed_between_read_and_write_is_not_overwritten(bed: Bed) -> None:
    await bed.settle()
    bed.clock.time += timedelta(days=3650)
    seen = await bed.controller._observe()
    assert seen.step is not None
    of_another = bed.kube.put(SECRET, bed.kube.kept[SECRET] | {"data": {"ca.crt": "bmV3"}})

    with pytest.raises(Conflict):
        await bed.controller._take(seen.step, seen)

    assert bed.kube.kept[SECRET] == of_another
