"""The webhook for claims: it refuses sizes that a volume of ours can never have, and no others."""

import json
from typing import Any

import msgspec
import pytest

from pileus.admission.resize import ResizeWebhook
from pileus.admission.review import AdmissionRequest, Answer, Outcome
from pileus.cloud.abilities import Abilities
from pileus.cloud.errors import Unavailable
from pileus.cloud.interface import Cloud
from pileus.cloud.volume import VolumeState
from pileus.kube.errors import KubeError, Unreachable
from pileus.kube.model.core_v1 import CsiSource, PersistentVolume, PersistentVolumeSpec
from pileus.kube.model.meta import ObjectMeta
from pileus.kube.model.storage_v1 import StorageClass
from pileus.quantity import bytes_of
from tests.unit.admission.beds import FewVolumes, lookup, volume

OURS = "local.csi.pileus.dev"


class Objects:
    def __init__(
        self, driver: str = "local.csi.pileus.dev", *, expands: bool | None = True
    ) -> None:
        csi = CsiSource(driver=driver, volume_handle="v1")
        self.found = PersistentVolume(spec=PersistentVolumeSpec(csi=csi))
        metadata = ObjectMeta(name="fast")
        self.fast = StorageClass(metadata=metadata, allow_volume_expansion=expands)
        self.error: KubeError | None = None
        self.asked: list[str] = []

    async def volume(self, name: str) -> PersistentVolume:
        self.asked.append(name)
        if self.error is not None:
            raise self.error
        return self.found

    async def storage_class(self, name: str) -> StorageClass:
        assert name == "fast"
        return self.fast


def claim(size: str, bound: str = "pv", **spec: Any) -> msgspec.Raw:
    full = {"volumeName": bound, "storageClassName": "fast", **spec}
    body = {"spec": {**full, "resources": {"requests": {"storage": size}}}}
    return msgspec.Raw(json.dumps(body))


def resized(before: str, after: str, operation: str = "UPDATE", **spec: Any) -> AdmissionRequest:
    return AdmissionRequest(
        uid="u",
        namespace="shop",
        name="data",
        operation=operation,
        object=claim(after, **spec),
        old_object=claim(before, **spec),
    )


async def answer(
    request: AdmissionRequest,
    objects: Objects | None = None,
    volumes: FewVolumes | None = None,
    *,
    resizes: bool = True,
) -> Answer:
    kept = volumes or FewVolumes((volume("v1", size_gib=20),))
    local = Cloud(name="local", volumes=kept, abilities=Abilities(resizes_volumes=resizes))  # type: ignore[arg-type]
    return await ResizeWebhook(lookup(local), objects or Objects()).review(request)


async def test_a_growth_is_allowed() -> None:
    assert await answer(resized("20Gi", "30Gi")) == Answer()


async def test_a_size_below_that_of_the_volume_is_refused_with_the_smallest_one_possible() -> None:
    given_answer = await answer(resized("30Gi", "15Gi"))

    assert given_answer.outcome is Outcome.REFUSED
    assert given_answer.message == (
        "volume v1 of claim shop/data has 20 GiB in cloud local, and volumes cannot shrink. "
        "Fix: request 20Gi or more"
    )


async def test_a_growth_that_failed_can_be_taken_back() -> None:
    assert await answer(resized("900Gi", "25Gi")) == Answer()
    assert await answer(resized("900Gi", "20Gi")) == Answer()


async def test_a_class_that_does_not_allow_growth_is_named_with_the_fix() -> None:
    given_answer = await answer(resized("20Gi", "30Gi"), Objects(expands=None))

    assert given_answer.message == (
        "volume v1 of claim shop/data cannot grow: StorageClass fast does not allow it. "
        "Fix: kubectl patch storageclass fast --patch '{\"allowVolumeExpansion\": true}'"
    )


async def test_a_cloud_that_cannot_resize_refuses() -> None:
    given_answer = await answer(resized("20Gi", "30Gi"), resizes=False)

    assert given_answer.message.endswith("cannot grow: cloud local cannot resize volumes")


@pytest.mark.parametrize("state", [VolumeState.ERROR, VolumeState.DELETING])
async def test_a_broken_volume_does_not_grow(state: VolumeState) -> None:
    broken = FewVolumes((volume("v1", size_gib=20, state=state, reason="disk on fire"),))

    given_answer = await answer(resized("20Gi", "30Gi"), volumes=broken)

    assert given_answer.message == (
        f"volume v1 of claim shop/data cannot grow to 30 GiB: it is in state {state} in cloud "
        "local (disk on fire)"
    )


@pytest.mark.parametrize(
    "request_",
    [
        resized("20Gi", "30Gi", "CREATE"),
        resized("20Gi", "20480Mi"),
        resized("20Gi", "30Gi", bound=""),
        AdmissionRequest(uid="u", operation="UPDATE"),
    ],
    ids=["a creation", "the same size", "not bound", "no object"],
)
async def test_what_does_not_resize_a_volume_is_allowed_without_a_question(
    request_: AdmissionRequest,
) -> None:
    objects = Objects()

    assert await answer(request_, objects) == Answer()
    assert objects.asked == []


async def test_a_claim_of_another_driver_is_never_touched() -> None:
    volumes = FewVolumes((volume("v1", size_gib=20),))

    assert await answer(resized("30Gi", "1Gi"), Objects("ebs.csi.aws.com"), volumes) == Answer()
    assert volumes.asked == []


@pytest.mark.parametrize("down", ["cloud", "API server"])
async def test_what_cannot_be_checked_is_allowed_with_a_warning(down: str) -> None:
    objects, volumes = Objects(), FewVolumes((volume("v1"),))
    if down == "cloud":
        volumes.error = Unavailable("the cloud is down")
    else:
        objects.error = Unreachable("/api", "host", "refused")

    given_answer = await answer(resized("30Gi", "15Gi"), objects, volumes)

    assert given_answer.outcome is Outcome.UNKNOWN
    assert given_answer.warnings[0].startswith("the new size of shop/data was not checked")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1Gi", 1 << 30),
        ("1.5Gi", 3 << 29),
        ("1G", 10**9),
        ("1e3", 1000),
        ("1500m", 2),
        ("0", 0),
        (".5Ki", 512),
        ("+2k", 2000),
        ("1E", 10**18),
    ],
)
def test_quantities_are_read_as_kubernetes_reads_them(text: str, count: int) -> None:
    assert bytes_of(text) == count


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1.2.3", "٣", "1gi", "9" * 65, "1e999"])
def test_what_is_no_quantity_is_a_clear_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity, such as 10Gi"):
        bytes_of(text)
