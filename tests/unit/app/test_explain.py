"""The explanation of one object: how it stands, why, and what its reader should do."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pileus.app.explain.advice import ADVICE
from pileus.app.explain.explanation import Explanation, Leader, Message, State
from pileus.app.explain.service import balancer_lines
from pileus.cli.explain import as_json, as_text
from pileus.cli.terminal import Style
from pileus.cloud.balancer import Balancer, BalancerState, Effect, Notice
from pileus.kube.model.core_v1 import EVENTS, NODES, SERVICES, ObjectReference
from pileus.kube.patch import MergePatch
from pileus.objects.preview import Place, Planned, Scope
from pileus_lab.local.model.machines import DeleteMachine
from tests.unit.app.explained import explained, text
from tests.unit.app.scene import Scene, scene
from tests.unit.app.stage import new_node

DOCS = Path(__file__).parents[3] / "docs"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
WEB = ObjectReference(kind="Service", namespace="default", name="web")
UNREADABLE = Leader("a/b", problem="leases is forbidden")
ALIVE = Leader("kube-system/ccm", "me", NOW, is_alive=True)
CHANGE = Planned(about=WEB, place=Place.CLOUD, effect=Effect.CREATE, summary="balancer")
WAITING = Planned(
    about=WEB, place=Place.CLOUD, effect=Effect.CREATE, summary="balancer", waits_for="x"
)
TROUBLE = Message(source="now", reason="QuotaExceeded", message="no more", is_now=True)
PAST = Message(source="event", reason="QuotaExceeded", message="no more")


async def told(stage: Scene, kind: str, name: str, *flags: str) -> Explanation:
    return await explained(stage, Scope(kind, "" if kind == "Node" else "default", name), *flags)


@pytest.mark.parametrize(
    ("explanation", "state", "steps"),
    [
        (Explanation(about=WEB, is_ours=True, leader=ALIVE), State.UP_TO_DATE, "nothing to do"),
        (
            Explanation(about=WEB, is_ours=True, changes=(CHANGE,), leader=ALIVE),
            State.IN_PROGRESS,
            "wait for the manager",
        ),
        (
            Explanation(about=WEB, is_ours=True, changes=(CHANGE,), leader=Leader("a/b")),
            State.IN_PROGRESS,
            "start the manager, or check why no replica is the leader",
        ),
        (
            Explanation(about=WEB, is_ours=True, changes=(WAITING,), leader=ALIVE),
            State.WAITING,
            "wait",
        ),
        (
            Explanation(about=WEB, is_ours=True, changes=(WAITING,), leader=UNREADABLE),
            State.WAITING,
            "wait",
        ),
        (
            Explanation(
                about=WEB, is_ours=True, changes=(WAITING,), messages=(TROUBLE,), leader=ALIVE
            ),
            State.BLOCKED,
            "free something, or request a higher limit (QuotaExceeded)",
        ),
        (
            Explanation(about=WEB, is_ours=True, messages=(PAST,), leader=ALIVE),
            State.UP_TO_DATE,
            "no",
        ),
        (Explanation(about=WEB, is_ours=False, leader=Leader("a/b")), State.NOT_MANAGED, "nothing"),
    ],
)
def test_how_it_stands_and_what_to_do(explanation: Explanation, state: State, steps: str):
    assert explanation.state is state
    assert explanation.next_steps[0].startswith(steps)
    assert re.match("run: (kubectl|pileus) ", explanation.next_steps[-1])


def test_without_a_leader_nothing_is_waited_for():
    explanation = Explanation(
        about=WEB, is_ours=True, changes=(WAITING,), leader=Leader("kube-system/ccm")
    )

    assert explanation.next_steps == (
        "start the manager, or check why no replica is the leader",
        "run: kubectl get lease ccm --namespace=kube-system",
    )


async def test_a_new_node_without_a_manager() -> None:
    async with scene("n1") as stage:
        explanation = await told(stage, "Node", "n1")

    assert explanation.state is State.IN_PROGRESS
    assert "not initialized" in explanation.actual[0]
    assert explanation.desired[0].startswith("machine i-")
    assert [change.about.name for change in explanation.changes] == ["n1", "n1"]
    assert "start the manager" in explanation.next_steps[0]


async def test_a_node_that_is_well() -> None:
    async with scene("n1") as stage:
        await stage.managed(60)
        explanation = await told(stage, "Node", "n1", "--leader-elect=false")

    assert explanation.state is State.UP_TO_DATE
    assert explanation.owner == ("cloud local: it owns the provider ID",)
    assert explanation.next_steps == ("nothing to do", "run: kubectl describe node n1")


async def test_a_node_without_a_machine_is_stuck_and_told_with_its_events() -> None:
    async with scene() as stage:
        await stage.client.create(NODES, new_node("n9"))
        await stage.managed(60)
        explanation = await told(stage, "Node", "n9")

        troubles = [trouble.reason for _, trouble in (await stage.plan()).troubles]

    assert troubles == ["InstanceNotFound"], "that it is kept follows from that"
    assert explanation.state is State.BLOCKED
    assert explanation.messages[0].source == "now"
    events = [message for message in explanation.messages if message.source == "event"]
    assert {"InstanceNotFound", "NeverInitialized"} <= {message.reason for message in events}
    assert all(event.at for event in events)
    assert (
        "compare node name and provider ID with the cloud (InstanceNotFound)"
        in explanation.next_steps
    )


async def test_a_machine_that_is_gone_is_told_even_if_no_controller_minds() -> None:
    async with scene("n1") as stage:
        await stage.managed(60)
        await stage.cloud.call(DeleteMachine(machine="n1"))
        explanation = await told(stage, "Node", "n1", "--controllers=-cloud-node-lifecycle")

    assert explanation.state is State.BLOCKED
    assert "no machine in cloud local" in explanation.desired[0]


async def test_a_foreign_node_is_nobodys_business_here() -> None:
    async with scene() as stage:
        node = new_node("n1")
        await stage.client.create(NODES, {**node, "spec": {"providerID": "other://x"}})
        explanation = await told(stage, "Node", "n1")

    assert explanation.state is State.NOT_MANAGED
    assert explanation.owner == ("another cloud: local does not own other://x",)


async def test_a_service_that_is_well() -> None:
    async with scene("n1", "n2") as stage:
        uid = await stage.add_service("web", 80)
        await stage.managed(60)
        cordon = MergePatch({"spec": {"unschedulable": True}})
        await stage.client.patch(NODES, "n2", cordon)
        explanation = await told(stage, "Service", "web")
        drained = await told(stage, "Service", "web", "--service-drain-cordoned")

    assert explanation.state is State.UP_TO_DATE, text(explanation)
    assert re.match(r"load balancer on 80/TCP → node port \d+", explanation.desired[0])
    assert "members: n1, n2 (2 of 2 nodes)" in explanation.desired
    assert any(uid in line for line in explanation.owner)
    assert "managed: full (pileus.dev/manage)" in explanation.owner
    assert drained.state is State.IN_PROGRESS
    assert "not a member: n2 (cordoned)" in drained.desired


async def test_a_node_that_is_refused_is_no_member() -> None:
    taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
    async with scene("n1", "n2") as stage:
        await stage.add_service("web", 80)
        await stage.managed(60)
        await stage.client.patch(NODES, "n2", MergePatch({"spec": {"taints": [taint]}}))
        explanation = await told(stage, "Service", "web")

    assert "members: n1 (1 of 2 nodes)" in explanation.desired, text(explanation)
    assert (
        "not a member: n2 (not accepted as the machine with its provider ID; see pileus explain "
        "node n2)"
    ) in explanation.desired


async def test_a_service_that_asks_for_nonsense() -> None:
    async with scene("n1") as stage:
        await stage.add_service("web", 80)
        patch = MergePatch({"metadata": {"annotations": {"pileus.dev/manage": "ful"}}})
        await stage.client.patch(SERVICES, "web", patch, namespace="default")
        await stage.managed(60)
        explanation = await told(stage, "Service", "web")

    assert explanation.state is State.BLOCKED
    assert 'did you mean "full"?' in text(explanation)
    assert explanation.next_steps[-1] == (
        "run: kubectl annotate service web --namespace=default pileus.dev/manage=full --overwrite"
    )
    assert not any("Misconfigured" in step for step in explanation.next_steps)


async def test_a_balancer_that_serves_another_is_not_told_as_the_services_own() -> None:
    async with scene("n1") as stage:
        await stage.add_service("web", 80)
        await stage.managed(60)
        (web,) = stage.cloud.state.balancers
        await stage.add_service("thief", 80)
        patch = MergePatch({"metadata": {"annotations": {"pileus.dev/adopt": web}}})
        await stage.client.patch(SERVICES, "thief", patch, namespace="default")
        explanation = await told(stage, "Service", "thief", "--trusted-namespaces=default")
        unpermitted = await told(stage, "Service", "thief")

    assert "was not created for this Service" in text(unpermitted)
    refusal = f"balancer {web} cannot be adopted: it serves Service default/web"
    assert explanation.actual[0] == "load balancer unknown: see messages"
    assert text(explanation).count(refusal) == 1
    assert explanation.state is State.BLOCKED


def test_what_the_provider_quotes_of_its_cloud_has_no_secrets() -> None:
    secret = "the cloud answered: token=0123456789abcdef is not valid"
    balancer = Balancer(
        id="lb-1",
        state=BalancerState.FAILED,
        problem=secret,
        notices=(Notice("Odd", secret, is_warning=True),),
    )

    shown = list(balancer_lines(balancer))

    assert len(shown) == 2
    assert all("token=*** is not valid" in line for line in shown)


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"type": "ClusterIP"}, "no load balancer: its type is ClusterIP"),
        (
            {"loadBalancerClass": "metallb"},
            "a load balancer of another controller: its class is metallb",
        ),
    ],
)
async def test_a_service_that_is_not_ours(spec: dict[str, object], wanted: str) -> None:
    async with scene() as stage:
        made = {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}
        body = {"metadata": {"name": "web"}, "spec": made}
        await stage.client.create(SERVICES, body, namespace="default")
        explanation = await told(stage, "Service", "web")

    assert explanation.state is State.NOT_MANAGED
    assert explanation.desired == (wanted,)


async def test_others_events_and_normal_ones_are_left_out() -> None:
    async with scene("n1") as stage:
        for number, (kind, source) in enumerate([
            ("Warning", "kubelet"),
            ("Normal", "cloud-node-controller"),
            ("Warning", "cloud-node-controller"),
        ]):
            event = {
                "metadata": {"name": f"e{number}"},
                "involvedObject": {"kind": "Node", "name": "n1"},
                "reason": f"R{number}",
                "type": kind,
                "source": {"component": source},
            }
            await stage.client.create(EVENTS, event, namespace="default")
        explanation = await told(stage, "Node", "n1")

    assert [message.reason for message in explanation.messages] == ["R2"]


async def test_who_leads_is_told_with_the_age_of_the_lease() -> None:
    async with scene("n1") as stage:
        await stage.managed(60)
        explanation = await told(stage, "Node", "n1")

    assert "leader: none, Lease kube-system/cloud-controller-manager is not held" in text(
        explanation
    )
    assert '"alive": false' in as_json(explanation)


def test_the_text_has_all_parts_in_order():
    explanation = Explanation(
        about=WEB,
        is_ours=True,
        created=NOW,
        desired=("a load balancer",),
        actual=("none",),
        changes=(WAITING,),
        waits=("its deletion",),
        messages=(TROUBLE, Message(source="event", reason="Odd", message="m", at=NOW, count=3)),
        owner=("class: none",),
        leader=ALIVE,
    )

    assert (
        as_text(explanation, NOW.replace(minute=5), Style())
        == """\
Service default/web: blocked (created 5m ago)

  desired      a load balancer
  actual       none
  changes
    + cloud    balancer
               waits for x
  waits for    its deletion
  messages     QuotaExceeded (now): no more
               Odd (event, 3 times, 5m ago): m
  managed by   class: none
               leader: me (Lease kube-system/ccm, renewed 5m ago)
  next         free something, or request a higher limit (QuotaExceeded)
               run: pileus orphans
"""
    )


def facts(explanation: Explanation) -> list[str]:
    """Values that a reader should find once: names in the cloud, addresses, messages."""
    words = " ".join((
        *explanation.desired,
        *explanation.actual,
        *(message.message for message in explanation.messages),
    ))
    return re.findall(
        r"(?:local://\S+|(?<![\d.])\d+\.\d+\.\d+\.\d+|i-[0-9a-f]{12}|lb-[0-9a-f]{12})", words
    )


async def test_each_fact_is_said_once_and_the_end_is_a_command() -> None:
    async with scene("n1", "n2") as stage:
        await stage.add_service("web", 80)
        await stage.client.create(NODES, new_node("n9"))
        before = [await told(stage, "Node", "n1"), await told(stage, "Service", "web")]
        await stage.managed(60)
        patch = MergePatch({"metadata": {"annotations": {"pileus.dev/manage": "ful"}}})
        after = [await told(stage, "Node", name) for name in ("n1", "n9")]
        after.append(await told(stage, "Service", "web"))
        await stage.client.patch(SERVICES, "web", patch, namespace="default")
        await stage.managed(60)
        after.append(await told(stage, "Service", "web"))

    for explanation in (*before, *after):
        shown = text(explanation)
        lines = [line.strip() for line in shown.splitlines() if line.strip()]
        assert len(lines) == len(set(lines)), shown
        for fact in set(facts(explanation)):
            assert len(re.findall(rf"(?<!//){re.escape(fact)}(?![\w.])", shown)) <= 1, (fact, shown)
        assert re.match("run: (kubectl|pileus) ", lines[-1].removeprefix("next").strip()), shown


@pytest.mark.parametrize("is_now", [True, False])
def test_a_fix_is_shown_as_the_next_step_or_else_in_its_message(is_now: bool) -> None:
    command = "kubectl annotate node n1 pileus.dev/deletion=never --overwrite"
    warning = f"invalid value. Fix: {command}"
    past = Message(source="event", reason="UnknownAnnotation", message=warning)
    now = Message(source="now", reason="UnknownAnnotation", message=warning, is_now=True)
    explanation = Explanation(
        about=ObjectReference(kind="Node", name="n1"),
        is_ours=True,
        messages=(now, past) if is_now else (past,),
    )

    shown = as_text(explanation, NOW, Style())

    assert shown.count(command) == 1
    assert (f"run: {command}" in shown) == is_now


@pytest.mark.parametrize("width", [80, 120])
def test_explain_fits_the_terminal_and_its_command_can_be_pasted(width: int):
    long = ObjectReference(kind="Service", namespace="n" * 63, name="s" * 63)
    explanation = Explanation(
        about=long, is_ours=True, desired=("word " * 40,), messages=(TROUBLE,)
    )

    lines = as_text(explanation, NOW, Style(width)).splitlines()

    assert max(map(len, lines)) <= max(width, len(f"Service {'n' * 63}/{'s' * 63}: blocked"))
    command = " ".join(line.strip() for line in lines).rpartition("run: ")[2]
    assert command.replace(" \\ ", " ") == "pileus orphans"


ROW = re.compile(r"^\| (?:.*reason )?(`\w+`(?:, `\w+`)*) \|.* \| (.+) \|$", re.MULTILINE)
PAGES = (
    "reference/events.md",
    "reference/services.md",
    "reference/plan.md",
    "guides/when-a-node-is-not-deleted.md",
)


def test_advice_is_what_the_pages_say():
    said = {
        (reason, re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", advice).replace("`", ""))
        for page in PAGES
        for cell, advice in ROW.findall((DOCS / page).read_text())
        for reason in re.findall(r"\w+", cell)
    }

    assert ADVICE.items() <= said
