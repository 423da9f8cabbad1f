"""`pileus orphans`: what it prints, when it asks, and with which code it ends."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pileus.app.errors import CommandFailed
from pileus.app.orphans import Orphan, OrphanReport, OrphanVolume
from pileus.app.settings import TABLE
from pileus.cli.main import dispatch
from pileus.cli.orphans import COMMAND, agreed, as_text, document, exit_code
from pileus.cli.terminal import Style, Terminal
from pileus.cloud.balancer import Balancer, BalancerState, Ingress, Owner
from pileus.cloud.volume import Volume, VolumeId, VolumeState
from pileus.settings.flags import Table
from pileus.settings.sources import gather
from tests.unit.cloud.fakes import Change

GONE = Orphan(
    owner=Owner("c1", "u1"),
    balancer=Balancer(
        id="lb-1", state=BalancerState.READY, ingress=(Ingress(ip="10.0.0.1"),), members=3
    ),
    changes=(Change(),),
)
SILENT = Orphan(owner=Owner("c1", "u2"), trouble="the cloud is down")
OTHERS = replace(GONE, owner=Owner("c1", "u3"), service="Service shop/web, of class example.com/x")


class Person(io.StringIO):
    """Someone at a terminal."""

    def isatty(self) -> bool:
        return True


class Screen(Terminal):
    """A terminal that someone sees."""

    __slots__ = ()

    def width(self, stream: object) -> int:
        return 80


def terminal(*, typing: str | None = None) -> Terminal:
    if typing is None:
        return Terminal(io.StringIO(), io.StringIO(), {})
    return Screen(io.StringIO(), io.StringIO(), {}, Person(typing))


def values(*flags: str):
    return gather(Table((COMMAND.flags, *TABLE.groups)), "pileus orphans", flags, {}).values


def test_each_is_shown_with_what_it_is_and_what_its_deletion_would_do():
    assert (
        as_text(OrphanReport("c1", 5, (GONE, SILENT)), Style())
        == """\
Deleted Service with UID u1
  load balancer lb-1: ready, 10.0.0.1, 3 members
  + balancer

Deleted Service with UID u2
  ! the cloud is down

2 orphaned load balancers (checked 5 tagged with cluster c1)
"""
    )
    assert as_text(OrphanReport("c1", 0, ()), Style()) == (
        "No orphaned load balancers (checked 0 tagged with cluster c1)\n"
    )


@pytest.mark.parametrize(
    ("orphans", "failed", "code"),
    [
        ((), None, 0),
        ((GONE,), None, 2),
        ((GONE,), {}, 0),
        ((GONE,), {GONE.owner: "busy"}, 1),
        ((SILENT,), None, 1),
        ((OTHERS,), None, 2),
        ((GONE, OTHERS), {}, 2),
    ],
)
def test_the_exit_code(orphans: tuple[Orphan, ...], failed: Mapping[Owner, str] | None, code: int):
    assert exit_code(OrphanReport("c1", 5, orphans), failed) == code


@pytest.mark.parametrize(("answer", "is_agreed"), [("yes\n", True), ("y\n", False), ("", False)])
def test_only_a_whole_yes_is_one(answer: str, is_agreed: bool):
    someone = terminal(typing=answer)

    assert agreed(OrphanReport("c1", 5, (GONE,)), values("--delete"), someone) is is_agreed
    assert "Delete 1 orphaned load balancer of cluster c1?" in someone.err.getvalue()  # type: ignore[attr-defined]


def test_where_nobody_can_be_asked_nothing_is_deleted_without_yes():
    found = OrphanReport("c1", 5, (GONE,))

    with pytest.raises(CommandFailed, match="no terminal for a confirmation"):
        agreed(found, values("--delete"), terminal())
    assert agreed(found, values("--delete", "--yes"), terminal())


def test_of_a_service_that_is_there_nothing_is_deleted():
    found = OrphanReport("c1", 5, (GONE, OTHERS))
    someone = terminal(typing="yes\n")

    shown = as_text(found, Style()).split("\n\n")[1]
    agreed(found, values("--delete"), someone)
    made = document(found, {})["orphans"]

    assert shown == (
        "Service shop/web, of class example.com/x: not served with these flags, kept\n"
        "  load balancer lb-1: ready, 10.0.0.1, 3 members"
    )
    assert "Delete 1 orphaned load balancer of cluster c1?" in someone.err.getvalue()  # type: ignore[attr-defined]
    assert [each["deleted"] for each in made] == [True, False]  # type: ignore[attr-defined]


def test_that_everything_is_an_orphan_is_not_taken_for_granted():
    everyone = OrphanReport("c1", 4, (GONE,) * 4)

    with pytest.raises(CommandFailed, match="Check --cluster-id"):
        agreed(everyone, values("--delete", "--yes"), terminal())
    assert agreed(everyone, values("--delete"), terminal(typing="yes\n"))
    assert agreed(OrphanReport("c1", 3, (GONE,) * 3), values("--delete", "--yes"), terminal())


def test_the_document_for_programs():
    found = OrphanReport("c1", 5, (GONE, SILENT))

    made = json.loads(json.dumps(document(found, {SILENT.owner: "the cloud is down"})))

    assert (made["version"], made["cluster"], made["owners"]) == (1, "c1", 5)
    assert made["orphans"][0] == {
        "uid": "u1",
        "service": "",
        "id": "lb-1",
        "state": "ready",
        "addresses": ["10.0.0.1"],
        "changes": [{"action": "create", "summary": "balancer"}],
        "deleted": True,
        "trouble": "",
    }
    assert made["orphans"][1]["deleted"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["orphans", "all", "--cloud-provider=local"], 'expected no arguments, but got "all"'),
        (["orphans", "--delet"], "did you mean --delete?"),
        (
            ["explain", "--cloud-provider=local"],
            "Usage: pileus explain (KIND [NAMESPACE/]NAME) [flags]",
        ),
        (["explain", "nod", "a", "--cloud-provider=local"], "did you mean node?"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_1(arguments: list[str], message: str):
    someone = terminal()

    assert dispatch(arguments, someone) == 1
    assert message in someone.err.getvalue()  # type: ignore[attr-defined]


def test_volumes_are_shown_as_kept_and_count_as_found():
    volume = Volume(
        id=VolumeId("vol-1"), owner=Owner("c1", "pvc-u9"), size_gib=3, state=VolumeState.AVAILABLE
    )
    found = OrphanReport("c1", 5, (), volumes=(OrphanVolume(volume),))

    assert as_text(found, Style()) == (
        "Volume vol-1: available, 3 GiB, of pvc-u9\n"
        "  kept: it has neither PersistentVolume nor claim, but its data may be needed\n"
        "\n"
        "No orphaned load balancers, 1 orphaned volume (checked 5 tagged with cluster c1)\n"
    )
    assert exit_code(found, None) == 2
    assert document(found, None)["volumes"] == [
        {"id": "vol-1", "owner": "pvc-u9", "state": "available", "sizeGiB": 3}
    ]
