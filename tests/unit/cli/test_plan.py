"""`pileus plan`: how it is asked, what it prints, and with which code it ends."""

import io
import json
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from pileus.app.errors import NoApiServer
from pileus.app.plan import Plan, PlanLine
from pileus.cli.cluster_command import (
    SET_PROVIDER,
    Request,
    Runner,
    parsed_object,
    run_cluster_command,
)
from pileus.cli.main import dispatch
from pileus.cli.plan import COMMAND, as_json, as_text, exit_code
from pileus.cli.terminal import Style, Terminal
from pileus.cloud.balancer import Effect
from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.preview import EVERYTHING, Place, Planned, Scope, Trouble
from pileus.settings.values import Values

PLAIN = Style()
WEB = ObjectReference(kind="Service", namespace="shop", name="web", uid="u1")
NODE = ObjectReference(kind="Node", name="n1", uid="u2")


def told(
    effect: Effect,
    summary: str,
    *details: str,
    about: ObjectReference = WEB,
    place: Place = Place.CLOUD,
    waits_for: str = "",
) -> PlanLine:
    line = Planned(
        about=about,
        place=place,
        effect=effect,
        summary=summary,
        details=details,
        waits_for=waits_for,
    )
    return PlanLine("service-lb-controller", line)


FULL = Plan(
    (
        told(Effect.CREATE, "balancer web", "listener 80/TCP → 30080"),
        told(Effect.REPLACE, "address", "10.0.0.1 → 10.0.0.2"),
        told(Effect.UPDATE, "status.loadBalancer", place=Place.CLUSTER, waits_for="the balancer"),
        told(Effect.DELETE, "node", about=NODE, place=Place.CLUSTER),
        PlanLine("service-lb-controller", Trouble(WEB, "Odd", "a range does not parse")),
    ),
    failures={"node-route-controller": "the cloud is down"},
    skipped={"node-ipam-controller": "no cluster CIDR"},
)


def test_a_plan_is_shown_by_object_with_signs_waits_troubles_and_a_sum():
    assert (
        as_text(FULL, EVERYTHING, PLAIN)
        == """\
Node n1
  - cluster  node

Service shop/web
  + cloud    balancer web
             listener 80/TCP → 30080
  ± cloud    address
             10.0.0.1 → 10.0.0.2
  ~ cluster  status.loadBalancer
             waits for the balancer

± is replaced: existing connections break.

Blocked
  ! Service shop/web: Odd: a range does not parse
  ! node-route-controller: no plan: the cloud is down

Skipped node-ipam-controller: no cluster CIDR

Plan: 1 to add, 1 to change, 1 to replace, 1 to delete; 1 waiting
"""
    )


@pytest.mark.parametrize(
    ("plan", "scope", "text"),
    [
        (Plan(), EVERYTHING, "No changes. Cluster and cloud match the desired state.\n"),
        (Plan(), Scope("Node", "", "n1"), "No changes. Node n1 matches the desired state.\n"),
        (
            Plan((told(Effect.CREATE, "balancer"),)),
            EVERYTHING,
            "Plan: 1 to add, 0 to change, 0 to replace, 0 to delete\n",
        ),
        (
            Plan(failures={"a": "b"}),
            EVERYTHING,
            "No known changes, but the plan is incomplete: see Blocked above.\n",
        ),
    ],
)
def test_the_last_line_says_it_all(plan: Plan, scope: Scope, text: str):
    assert as_text(plan, scope, PLAIN).endswith(text)


def test_what_is_in_the_way_of_many_alike_is_told_of_a_few():
    nodes = [ObjectReference(kind="Node", name=f"n{number:02}") for number in range(12)]
    troubles = [PlanLine("a", Trouble(node, "InstanceNotFound", "none")) for node in nodes]

    many = as_text(Plan((*troubles, FULL.lines[-1])), EVERYTHING, PLAIN)
    some = as_text(Plan(tuple(troubles[:10])), EVERYTHING, PLAIN)

    assert many.count("InstanceNotFound: none") == 3
    assert "  ! 9 more: InstanceNotFound (-o json lists all)\n" in many
    assert "Service shop/web: Odd" in many
    assert some.count("InstanceNotFound: none") == 10


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_no_line_is_wider_than_it(width: int):
    long = told(
        Effect.CREATE, "balancer " + "word " * 60, "field: " + "10.0.0.1, " * 40 + "x" * 200
    )

    lines = as_text(Plan((long,)), EVERYTHING, Style(width)).splitlines()

    assert max(map(len, lines)) <= width
    assert "".join(lines).count("x") == 200, "what has no space is broken, not lost"


def test_colours_are_only_for_those_who_see_them():
    coloured = as_text(FULL, EVERYTHING, Style(120, has_colour=True))

    assert "\x1b[32m+\x1b[0m cloud" in coloured
    assert "\x1b[31m-\x1b[0m cluster" in coloured
    assert "\x1b[" not in as_text(FULL, EVERYTHING, Style(120))


def test_the_document_for_programs_has_everything():
    document = json.loads(as_json(FULL))

    assert document["version"] == 1
    assert document["summary"] == {
        "create": 1,
        "update": 1,
        "replace": 1,
        "delete": 1,
        "waiting": 1,
        "whole": False,
    }
    assert document["changes"][2] == {
        "controller": "service-lb-controller",
        "object": {"kind": "Service", "namespace": "shop", "name": "web", "uid": "u1"},
        "place": "cluster",
        "action": "update",
        "summary": "status.loadBalancer",
        "details": [],
        "waitsFor": "the balancer",
    }
    assert document["troubles"][0]["reason"] == "Odd"
    assert document["failures"] == [
        {"controller": "node-route-controller", "message": "the cloud is down"}
    ]
    assert document["skipped"] == [{"controller": "node-ipam-controller", "why": "no cluster CIDR"}]


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (Plan(), 0),
        (Plan(skipped={"a": "b"}), 0),
        (Plan((told(Effect.CREATE, "balancer"),)), 2),
        (Plan((told(Effect.CREATE, "balancer", waits_for="x"),)), 2),
        (Plan(failures={"a": "b"}), 1),
        (Plan((PlanLine("a", Trouble(WEB, "Odd", "odd")),)), 1),
        (FULL, 1),
    ],
)
def test_the_exit_code_tells_nothing_changes_and_not_whole_apart(plan: Plan, code: int):
    assert exit_code(plan) == code


@pytest.mark.parametrize(
    ("words", "scope"),
    [
        ([], EVERYTHING),
        (["node", "n1"], Scope("Node", "", "n1")),
        (["no/n1"], Scope("Node", "", "n1")),
        (["service", "shop/web"], Scope("Service", "shop", "web")),
        (["svc", "web"], Scope("Service", "context-namespace", "web")),
        (["service/shop/web"], Scope("Service", "shop", "web")),
        (["pvc", "shop/data"], Scope("PersistentVolumeClaim", "shop", "data")),
        (["claim", "data"], Scope("PersistentVolumeClaim", "context-namespace", "data")),
        (["pv", "pvc-1"], Scope("PersistentVolume", "", "pvc-1")),
        (["persistentvolumes/pvc-1"], Scope("PersistentVolume", "", "pvc-1")),
        (["VolumeAttachment", "csi-1"], Scope("VolumeAttachment", "", "csi-1")),
    ],
)
def test_objects_are_named_as_kubectl_names_them(words: list[str], scope: Scope):
    assert parsed_object(words).scope("context-namespace") == scope


KNOWN = "known: node, service, pvc, pv, volumeattachment"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["servce", "a"], f'unknown kind "servce" ({KNOWN})\ndid you mean service?'),
        (["pod", "a/b"], f'unknown kind "pod" ({KNOWN})'),
        (["pv", "a/b"], "expected pv NAME"),
        (["pvc"], "expected pvc [NAMESPACE/]NAME"),
        (["-n", "a", "pvc", "b/c"], "--namespace=a contradicts pvc b/c"),
        (["node"], 'expected node NAME, but got "node"'),
        (["node", "a", "b"], "expected node NAME"),
        (["service", "/web"], "expected service [NAMESPACE/]NAME"),
        (["service", "a/b/c"], "expected service [NAMESPACE/]NAME"),
        (["-n", "a", "node", "b"], "--namespace=a needs an object in a namespace"),
        (["-n", "a"], "--namespace=a needs an object in a namespace"),
        (["-n", "a", "service", "b/c"], "--namespace=a contradicts service b/c"),
    ],
)
def test_words_that_name_no_object_are_refused_with_the_usage(words: list[str], message: str):
    code, out, err = called(*words)

    assert (code, out) == (1, "")
    assert err.startswith(f"Error: {message}")
    assert "Usage: pileus plan [KIND [NAMESPACE/]NAME] [flags]\n" in err


def called(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = dispatch(["plan", *arguments], Terminal(out, err, {}))
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_yaml_has_the_fields_of_json(form: str):
    request = Request(EVERYTHING, Values({"output": form}), cast("Any", None), cast("Any", None))
    text = request.data(as_json(FULL))

    assert request.as_data
    assert yaml.safe_load(text) == json.loads(as_json(FULL))
    assert text.startswith("version:" if form == "yaml" else "{")


@pytest.mark.parametrize(
    ("untrusted", "fix"),
    [
        pytest.param(False, "check that the API server runs at this address", id="silent"),
        pytest.param(True, "compare the CA of the kubeconfig with that", id="untrusted"),
    ],
)
def test_an_api_server_that_cannot_be_used_is_reported_with_the_fix(
    tmp_path: Path, *, untrusted: bool, fix: str
):
    def work(_request: Request, _run: Runner) -> int:
        message = "failed to wait for apiserver being healthy: cannot connect"
        raise NoApiServer(message, untrusted=untrusted)

    file = tmp_path / "kubeconfig"
    clusters = [{"name": "a", "cluster": {"server": "https://127.0.0.1:9"}}]
    contexts = [{"name": "a", "context": {"cluster": "a"}}]
    file.write_text(
        json.dumps({"current-context": "a", "clusters": clusters, "contexts": contexts})
    )
    terminal = Terminal(io.StringIO(), err := io.StringIO(), {})
    flags = [f"--kubeconfig={file}", "--cloud-provider=local"]

    assert run_cluster_command("pileus plan", COMMAND, flags, terminal, work) == 1
    assert f"cannot connect\nFix: {fix}" in err.getvalue()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "xml"], 'Error: --output cannot be "xml" (known: text, json, yaml)'),
        (["-o", "jsn"], "did you mean -o json?"),
        (["--kubconfig=x"], "did you mean --kubeconfig?"),
        (["pods", "a", "--cloud-provider=local"], 'unknown kind "pods"'),
        (
            [],
            f"Error: --cloud-provider is not set\n{SET_PROVIDER}\nUsage:",
        ),
        (
            ["--cloud-provider=opnstack", "--kubeconfig=/no/such"],
            'Error: --cloud-provider: unknown cloud provider "opnstack"',
        ),
        (
            ["--cloud-provider=local", "--kubeconfig=/no/such"],
            "Error: invalid configuration: --kubeconfig=/no/such: cannot read it: No such file",
        ),
    ],
)
@pytest.mark.real_time
def test_what_is_wrong_with_the_command_line_is_said_and_ends_with_1(
    arguments: list[str], message: str
):
    code, out, err = called(*arguments)

    assert code == 1
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_help_shows_its_own_flags_and_where_the_others_are():
    code, out, _ = called("--help")

    assert code == 0
    assert "pileus plan [KIND [NAMESPACE/]NAME] [flags]" in out
    assert "Kinds: node, service, pvc, pv, volumeattachment\n" in out
    assert "--output" in out
    assert "pileus run --help" in out
    assert len(out.splitlines()) < 22
