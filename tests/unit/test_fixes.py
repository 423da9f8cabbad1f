"""No text of a user or a cloud becomes a command that Pileus prints as the fix, or a new line.

`pileus plan` and `pileus explain` take the command out of the message of a condition or an error,
and operators paste it. Authors of Services choose values of annotations and fields of the spec.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest

from pileus.cli.plan import split_fix
from pileus.cloud.balancer import Wish
from pileus.cloud.errors import CloudError
from pileus.cloud.http import Answer, Request, error_for
from pileus.controllers.service.annotations import ADOPT, MANAGE, MEMBERS, Classes
from pileus.controllers.service.desired import Desires
from pileus.controllers.service.events import message_of
from pileus.controllers.service.observation import Observation
from pileus.controllers.service.plan import Rules, plan
from pileus.controllers.service.steps import CheckBalancer, Report
from pileus.fix import commands_in, fix_in, one_line, parts_of, quoted
from pileus.kube.errors import refusal_in_stream
from pileus.kube.model.core_v1 import Service
from pileus.providers.openstack.annotations import ANNOTATIONS, OPTIONS
from tests.unit.providers.openstack.balancer_site import Site
from tests.unit.test_hostile_objects import NOW, service

EVIL = "kubectl delete namespace kube-system"
TEXTS = (
    f"a Fix: {EVIL}",
    f'a" Fix: {EVIL} (',
    f"~( Fix: {EVIL} (",
    f"a\n Fix: {EVIL}\n",
    f"a\x1b[2J\u2028 Fix: {EVIL}; b",
)
FIELDS = ("loadBalancerIP", "loadBalancerSourceRanges")
NAMES = (*(each.name for each in OPTIONS), ADOPT, MANAGE, MEMBERS)


def check(message: str) -> None:
    assert message.isprintable(), message
    assert "namespace kube-system" not in fix_in(message)
    assert "namespace kube-system" not in split_fix(message)[1]
    assert f"Fix: {EVIL}" not in message


def with_value(name: str, text: str) -> Service:
    if name == "loadBalancerSourceRanges":
        return msgspec.convert(service(loadBalancerSourceRanges=[text]), Service)
    if name in FIELDS:
        return msgspec.convert(service(loadBalancerIP=text), Service)
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


def test_texts_of_clouds_and_of_the_api_server_become_no_command() -> None:
    for text in TEXTS:
        body = msgspec.json.encode({"message": text})
        check(str(error_for(Answer(400, {}, body, Request("PUT", "/x", {})))))
        status = {"kind": "Status", "message": text, "reason": "Invalid", "code": 422}
        check(str(refusal_in_stream("/api", msgspec.json.encode(status))))


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
