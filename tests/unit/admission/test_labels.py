"""The webhook for new PersistentVolumes: what it adds, what it keeps, and what it never touches."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.admission.labels import LabelsWebhook, patch
from pileus.admission.review import AdmissionRequest, Answer, Outcome
from pileus.cloud.errors import Unavailable
from pileus.cloud.volume import VolumeNames
from pileus.kube.model.core_v1 import PersistentVolume
from pileus.volumes.persistent_volumes import placement
from tests.unit.admission.beds import HERE, REGION, ZONE, FewVolumes, cloud, lookup, volume

OPENSTACK = VolumeNames(drivers=("cinder.csi.openstack.org",), sources=("cinder",))


def csi(driver: str, handle: str = "v1") -> dict[str, Any]:
    return {"csi": {"driver": driver, "volumeHandle": handle}}


def request(spec: dict[str, Any], operation: str = "CREATE", **metadata: Any) -> AdmissionRequest:
    body = {"metadata": {"name": "pv", **metadata}, "spec": spec}
    return AdmissionRequest(uid="u", operation=operation, object=msgspec.Raw(json.dumps(body)))


async def answer(asked: AdmissionRequest, **places: FewVolumes) -> Answer:
    clouds = [cloud(name, each, OPENSTACK) for name, each in places.items()]
    return await LabelsWebhook(lookup(*clouds)).review(asked)


@pytest.mark.parametrize(
    "spec",
    [
        csi("local.csi.pileus.dev"),
        csi("cinder.csi.openstack.org"),
        {"cinder": {"volumeID": "v1"}},
        {"flexVolume": {"driver": "pileus.dev/local", "options": {"volumeID": "v1"}}},
    ],
    ids=["ours", "other driver of the cloud", "in-tree", "flex"],
)
async def test_a_volume_of_the_cloud_gets_labels_and_affinity(spec: dict[str, Any]) -> None:
    given_answer = await answer(request(spec), local=FewVolumes((volume("v1"),)))

    assert given_answer.outcome is Outcome.CHANGED
    assert list(given_answer.patch) == [
        {"op": "add", "path": "/metadata/labels", "value": HERE},
        {
            "op": "add",
            "path": "/spec/nodeAffinity",
            "value": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": REGION, "operator": "In", "values": ["north"]},
                                {"key": ZONE, "operator": "In", "values": ["a"]},
                            ]
                        }
                    ]
                }
            },
        },
    ]


@pytest.mark.parametrize(
    "spec",
    [
        csi("ebs.csi.aws.com"),
        csi("other.csi.pileus.dev"),
        {"hostPath": {"path": "/data"}},
        {"awsElasticBlockStore": {"volumeID": "v1"}},
        {"flexVolume": {"driver": "acme/disk", "options": {"volumeID": "v1"}}},
        {},
    ],
)
async def test_a_volume_of_another_driver_is_allowed_without_a_question_to_the_cloud(
    spec: dict[str, Any],
) -> None:
    volumes = FewVolumes((volume("v1"),))

    assert await answer(request(spec), local=volumes) == Answer()
    assert volumes.asked == []


async def test_labels_that_people_set_are_kept_and_a_contradiction_is_a_warning() -> None:
    asked = request(csi("local.csi.pileus.dev"), labels={ZONE: "b", "app": "shop"})

    given_answer = await answer(asked, local=FewVolumes((volume("v1"),)))

    labels = [each for each in given_answer.patch if str(each["path"]).startswith("/metadata")]
    assert labels == [
        {
            "op": "add",
            "path": "/metadata/labels/topology.kubernetes.io~1region",
            "value": "north",
        }
    ]
    assert given_answer.warnings == (f'label {ZONE}="b", but the volume is in "a"',)


@pytest.mark.parametrize(
    ("error", "kept"),
    [(Unavailable("the cloud is down"), ("v1",)), (None, ())],
    ids=["cloud down", "volume missing"],
)
async def test_what_cannot_be_found_out_is_allowed_with_a_warning(
    error: Unavailable | None, kept: tuple[str, ...]
) -> None:
    volumes = FewVolumes(tuple(map(volume, kept)), error)

    given_answer = await answer(request(csi("local.csi.pileus.dev")), local=volumes)

    assert given_answer.outcome is Outcome.UNKNOWN
    assert given_answer.patch == ()
    assert "the PersistentVolume label controller adds" in given_answer.warnings[0]


async def test_of_several_clouds_the_one_that_has_the_volume_answers() -> None:
    here = FewVolumes((volume("v1", {ZONE: "z"}),))

    given_answer = await answer(
        request({"cinder": {"volumeID": "v1"}}), first=FewVolumes(), second=here
    )

    assert given_answer.patch[0] == {"op": "add", "path": "/metadata/labels", "value": {ZONE: "z"}}


async def test_an_affinity_of_others_is_kept_and_extended_in_each_alternative() -> None:
    rack = {"key": "rack", "operator": "In", "values": ["1"]}
    terms = [{"matchExpressions": [rack]}, {"matchFields": [rack]}]
    spec = {
        **csi("local.csi.pileus.dev"),
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }

    given_answer = await answer(request(spec), local=FewVolumes((volume("v1", {ZONE: "a"}),)))

    zone = {"key": ZONE, "operator": "In", "values": ["a"]}
    root = "/spec/nodeAffinity/required/nodeSelectorTerms"
    assert list(given_answer.patch)[1:] == [
        {"op": "add", "path": f"{root}/0/matchExpressions/-", "value": zone},
        {"op": "add", "path": f"{root}/1/matchExpressions", "value": [zone]},
    ]


async def test_only_creations_are_changed() -> None:
    volumes = FewVolumes((volume("v1"),))

    asked = request(csi("local.csi.pileus.dev"), "UPDATE")

    assert await answer(asked, local=volumes) == Answer()


KEYS = st.sampled_from([ZONE, REGION, "rack", "a/b~c"])
LABELS = st.dictionaries(KEYS, st.sampled_from(["a", "b"]))


@given(st.none() | LABELS, LABELS, st.none() | st.lists(st.lists(KEYS, max_size=2), max_size=2))
def test_what_an_object_has_is_never_replaced(
    labels: dict[str, str] | None, topology: dict[str, str], terms: list[list[str]] | None
) -> None:
    """The patch, applied by hand, adds and nothing else; the second time there is none."""
    body: dict[str, Any] = {"metadata": {"name": "pv"}, "spec": csi("x")}
    if labels is not None:
        body["metadata"]["labels"] = dict(labels)
    if terms is not None:
        made = [
            {"matchExpressions": [{"key": key, "operator": "Exists"} for key in term]}
            for term in terms
        ]
        body["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": made}}
    before = msgspec.convert(body, PersistentVolume)

    missing = placement(before, topology)
    after = msgspec.convert(_applied(body, list(patch(before, missing))), PersistentVolume)

    now = after.metadata.labels or {}
    assert (labels or {}).items() <= now.items()
    assert topology.keys() <= now.keys()
    assert placement(after, topology).is_empty or not topology


def _applied(body: dict[str, Any], operations: list[Any]) -> dict[str, Any]:
    for operation in operations:
        *path, last = (
            part.replace("~1", "/").replace("~0", "~")
            for part in operation["path"].removeprefix("/").split("/")
        )
        where: Any = body
        for part in path:
            where = where[int(part) if isinstance(where, list) else part]
        if isinstance(where, list):
            where.append(operation["value"])
        else:
            where[last] = operation["value"]
    return body
