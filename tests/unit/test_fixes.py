"""No text of a user or a cloud becomes a command that Pileus prints as the fix, or a new line.

`pileus plan` and `pileus explain` take the command out of the message of a condition or an error,
and operators paste it. Authors of Services choose values of annotations and fields of the spec.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pileus.cli.plan import split_fix
from pileus.cloud.balancer import Wish
from pileus.cloud.errors import CloudError, Misconfigured, Rejected
from pileus.cloud.http import Answer, Request, error_for
from pileus.cloud.volume import FromVolume, VolumeId
from pileus.controllers.node.identity import Machine, refusal
from pileus.controllers.node.settings import IdentityRule
from pileus.controllers.service.annotations import ADOPT, MANAGE, MEMBERS, Classes
from pileus.controllers.service.desired import Desires
from pileus.controllers.service.events import message_of, shared_address
from pileus.controllers.service.members import MemberRules, MemberScope, Membership
from pileus.controllers.service.observation import Observation
from pileus.controllers.service.plan import Rules, plan
from pileus.controllers.service.steps import CheckBalancer, Report
from pileus.controllers.volume.objects import Rules as VolumeRules
from pileus.controllers.volume.observation import Observation as VolumeObservation
from pileus.controllers.volume.plan import plan as volume_plan
from pileus.controllers.volume.source import Origin, fitting, populator_text, source_of
from pileus.controllers.volume.steps import Report as VolumeReport
from pileus.controllers.volume.steps import Warn
from pileus.fix import FIX, commands_in, fix_in, one_line, parts_of, quoted
from pileus.kube.errors import refusal_in_stream
from pileus.kube.model.core_v1 import Node, NodeAddress, PersistentVolumeClaim, Service
from pileus.kube.model.meta import ObjectMeta
from pileus.kube.model.storage_v1 import StorageClass
from pileus.objects.events import shortened
from pileus.objects.node_ips import NodeIpRefused, prefer_node_ips
from pileus.objects.ownership import Ownership
from pileus.objects.ranges import wrong_with_range
from pileus.providers.openstack.annotations import ANNOTATIONS, OPTIONS
from tests.unit.providers.openstack.balancer_site import Site
from tests.unit.test_hostile_objects import NOW, service

EVIL = "kubectl delete namespace kube-system"
UUID = "0a1b2c3d-0000-4000-8000-000000000000"
TEXTS = (
    f"a Fix: {EVIL}",
    f'a" Fix: {EVIL} (',
    f"~( Fix: {EVIL} (",
    f"a\n Fix: {EVIL}\n",
    f"a\x1b[2J\u2028 Fix: {EVIL}; b",
    f"https://b.example/v1/secrets/a Fix: {EVIL} (",
    f"https://b.example/v1/secrets/{UUID}\x1b/ Fix: {EVIL} (/v1/secrets/{UUID}",
    f"fe80::1%a Fix: {EVIL} (",
    f"k=v Fix: {EVIL} (",
    f"203.0.113.7$({EVIL})`{EVIL}`; {EVIL} && {EVIL} | {EVIL}",
    f"a' ; {EVIL} ; '\"$({EVIL})\" \\' > b # c",
    f"a\r\n{EVIL}\x00\x9b31m\u202e\udc80",
    f"{EVIL} " * 5_000,
)
"""Some have the form that an option asks for, others what a shell expands."""
FIELDS = ("loadBalancerIP", "loadBalancerSourceRanges", "loadBalancerClass")
NAMES = (*(each.name for each in OPTIONS), ADOPT, MANAGE, MEMBERS)


QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
"""A part of a word in which a shell expands nothing."""


def check(message: str) -> None:
    """No command that Pileus prints has text of a user, except in single quotes."""
    assert message.isprintable(), message
    assert f"Fix: {EVIL}" not in message
    fixes = message.split(FIX)[1:]
    inside = [found for fix in fixes for found in PROGRAM.split(QUOTED.sub("", fix))[1:]]
    commands = (fix_in(message), split_fix(message)[1], *map(commands_of, fixes), *inside)
    for command in commands:
        assert "kube-system" not in QUOTED.sub("", command), message


PROGRAM = re.compile(r"(?=\b(?:helm|kubectl|openstack|pileus) )")


def commands_of(fix: str) -> str:
    return " ".join(commands_in(fix))


def with_value(name: str, text: str) -> Service:
    if name in FIELDS:
        given: Any = [text] if name == "loadBalancerSourceRanges" else text
        return msgspec.convert(service(**{name: given}), Service)
    return msgspec.convert(service({name: text}), Service)


@pytest.mark.parametrize("name", [*NAMES, *FIELDS])
@pytest.mark.parametrize("text", TEXTS)
async def test_no_text_of_a_service_becomes_a_command(name: str, text: str) -> None:
    for message in [message async for message in messages(with_value(name, text))]:
        check(message)


async def messages(hostile: Service) -> AsyncIterator[str]:
    """Yields all that the manager reports about a Service, on the model of OpenStack."""
    rules = Rules(Desires(cluster="cluster-1", annotations=ANNOTATIONS), Classes.of("openstack"))
    for step in plan(rules, Observation(service=hostile, time=0.0, date=NOW)):
        if isinstance(step, Report):
            yield message_of(step.error)
        if isinstance(step, CheckBalancer):
            for each in step.ignored:
                yield each
            async for each in messages_of_the_provider(step.desired):
                yield each


async def messages_of_the_provider(wish: Wish) -> AsyncIterator[str]:
    site = Site()
    assert wish.spec is not None
    wish = replace(wish, spec=replace(wish.spec, members=frozenset(site.nodes)))
    for _ in range(4):
        seen = await site.seen(wish)
        for notice in seen.face.notices:
            yield notice.message
        try:
            for change in site.balancers.changes(wish, seen):
                yield change.summary
                seen = await site.balancers.apply(change, seen)
        except CloudError as error:
            yield message_of(error)
        site.api.now += 1


RULES = VolumeRules("local.csi.pileus.dev", "cluster-1")
CLASS = StorageClass(metadata=ObjectMeta(name="fast"), provisioner=RULES.driver)
FIELDS_OF_CLAIMS = ("accessModes", "storageClassName", "volumeName", "volumeMode")
SOURCES = ("apiGroup", "kind", "name", "namespace")


def claim(field: str, text: str) -> PersistentVolumeClaim:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
    }
    if field in SOURCES:
        known = {"kind": "PersistentVolumeClaim", "name": "data"}
        spec["dataSourceRef"] = {**known, field: text}
    else:
        spec[field] = [text] if field == "accessModes" else text
    metadata = {"name": "web", "namespace": "shop", "uid": "u1", "annotations": ASKED}
    return msgspec.convert({"metadata": metadata, "spec": spec}, PersistentVolumeClaim)


ASKED = {"volume.kubernetes.io/storage-provisioner": RULES.driver}


def texts_of(step: object) -> Iterator[str]:
    """Yields all texts of a step that are reported."""
    match step:
        case VolumeReport(error=error):
            yield str(error)
        case Warn(message=message):
            yield message
        case _:
            pass


@pytest.mark.parametrize("field", [*FIELDS_OF_CLAIMS, *SOURCES])
@pytest.mark.parametrize("text", TEXTS)
def test_no_text_of_a_claim_becomes_a_command(field: str, text: str) -> None:
    hostile = claim(field, text)
    known = None if field == "storageClassName" else CLASS
    seen = VolumeObservation(name="pvc-u1", date=NOW, claim=hostile, storage_class=known)
    steps = volume_plan(RULES, seen)

    said = [message for step in steps for message in texts_of(step)]
    assert said or field in {"volumeName", "volumeMode", "name"}, steps
    reference = source_of(hostile)
    if reference is not None:
        found = fitting(hostile, 1, Origin(FromVolume(VolumeId("v")), 2))
        said += [populator_text(reference), str(found)]
    for message in said:
        check(message)


@pytest.mark.parametrize("name", ["../../other/persistentvolumeclaims/data", "..", "data/status"])
def test_a_path_is_not_read_as_the_source_of_a_claim(name: str) -> None:
    """A proxy before the API server could resolve `..`, and another namespace would be copied."""
    seen = VolumeObservation(
        name="pvc-u1", date=NOW, claim=claim("name", name), storage_class=CLASS
    )

    (step,) = volume_plan(RULES, seen)

    assert isinstance(step, VolumeReport)
    assert "is not the name of an object" in str(step.error)


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_of_a_node_or_machine_becomes_a_command(text: str) -> None:
    node = msgspec.convert({"metadata": {"name": "a"}, "spec": {"providerID": text}}, Node)
    refused = refusal(node, Machine(text, frozenset({text})), [], IdentityRule.NAME)
    check(str(refused))
    address = NodeAddress(type="InternalIP", address=text)
    with pytest.raises(NodeIpRefused) as unknown:
        prefer_node_ips("10.0.0.1", [address])
    check(str(unknown.value))
    check(shared_address(text, ("a", "b")))
    check(wrong_with_range(text))


@pytest.mark.parametrize("text", TEXTS)
async def test_the_provider_id_of_a_foreign_node_becomes_no_command(text: str) -> None:
    node = msgspec.convert({"metadata": {"name": "a"}, "spec": {"providerID": text}}, Node)

    async def read() -> list[Node]:
        return [node]

    rules = MemberRules(whose=lambda _: Ownership.FOREIGN)
    with pytest.raises(Misconfigured) as refused:
        await Membership(read, lambda _: None, rules).second_check(MemberScope.CLOUD)
    check(str(refused.value))


def test_texts_of_clouds_and_of_the_api_server_become_no_command() -> None:
    for text in TEXTS:
        body = json.dumps({"message": text}).encode()
        check(str(error_for(Answer(400, {}, body, Request("PUT", "/x", {})))))
        status = {"kind": "Status", "message": text, "reason": "Invalid", "code": 422}
        check(str(refusal_in_stream("/api", json.dumps(status).encode())))


@pytest.mark.parametrize("text", TEXTS)
def test_events_and_conditions_have_no_control_characters(text: str) -> None:
    """Also if a ported provider quotes a text of a user or a cloud as it is."""
    assert shortened(f"{text}\n").isprintable()
    assert message_of(Rejected(f"refused: {text}\n\x1b[2J")).isprintable()


def test_a_text_is_quoted_in_one_line_and_bounded() -> None:
    assert quoted("a b") == '"a b"'
    assert quoted("x" * 300) == f'"{"x" * 200}…"'
    assert len(one_line("\x1b" * 1_000_000)) < 30_000
    assert one_line("a\nb\udc80") == "a\\nb\\udc80"
    assert fix_in(f"{quoted(' Fix: kubectl x')} is wrong. Fix: kubectl y (or z)") == "kubectl y"


@pytest.mark.parametrize(
    ("fix", "parts"),
    [
        ("kubectl get x", ("", "kubectl get x", "")),
        (
            "helm get 'a   # b' | kubectl x   # it's c",
            ("", "helm get 'a   # b' | kubectl x", "it's c"),
        ),
        ("edit it, then: kubectl get y", ("edit it, then:", "kubectl get y", "")),
        (
            "delete it with kubectl, or wait: see docs",
            ("delete it with kubectl, or wait: see docs", "", ""),
        ),
        ("", ("", "", "")),
    ],
)
def test_a_fix_has_advice_a_command_and_a_comment(fix: str, parts: tuple[str, str, str]) -> None:
    assert parts_of(fix) == parts


def test_a_command_in_a_comment_is_a_command_of_the_fix() -> None:
    fix = "edit it, then: kubectl get y   # start the webhook, or: pileus plan"

    assert [*commands_in(fix)] == ["kubectl get y", "pileus plan"]
