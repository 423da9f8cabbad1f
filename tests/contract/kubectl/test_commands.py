"""The real kubectl, on the real server and on ours: what it says, line by line, is the same."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

import pytest

from tests.contract.api.conftest import BINARIES
from tests.contract.kubectl.session import Said, Session
from tests.contract.kubectl.themes import THEMES, Line

pytestmark = [
    pytest.mark.real_cluster,
    pytest.mark.xdist_group("kubectl"),
    pytest.mark.skipif(not os.environ.get(BINARIES), reason=f"{BINARIES} is not set"),
    pytest.mark.timeout(300),
]

UNDESCRIBED = {"  <empty>", "  <no description>"}
"""How `kubectl explain` shows that a description is missing."""


@pytest.mark.parametrize("theme", THEMES)
def test_kubectl_says_the_same_on_both_servers(both: tuple[Session, Session], theme: str) -> None:
    lines = THEMES[theme]
    with ThreadPoolExecutor(2) as side_by_side:
        real, ours = side_by_side.map(lambda session: _played(session, theme, lines), both)

    wrong = [_difference(*each) for each in zip(lines, real, ours, strict=True)]
    if any(wrong):
        pytest.fail("\n".join(filter(None, wrong)), pytrace=False)


def _played(session: Session, theme: str, lines: tuple[Line, ...]) -> list[Said]:
    session.play(f"create namespace {theme}")
    own = replace(session, namespace=theme)
    return [own.play(line.text) for line in lines]


def _difference(line: Line, real: Said, ours: Said) -> str:
    """Tell what ours said otherwise than the table allows; empty if nothing."""
    if line.ours:
        as_told = line.ours in ours.said and line.ours not in real.said
        return "" if as_told else f"$ kubectl {line.text}\n{real.said}\n   ours:\n{ours.said}"
    if line.within:
        ours = replace(ours, lines=tuple(each for each in ours.lines if each not in UNDESCRIBED))
        real = Said(
            real.code, _shared(ours.lines, real.lines), _shared(ours.complaints, real.complaints)
        )
    spoke = bool(ours.lines or ours.complaints) or not line.within
    return "" if ours == real and spoke else _told(line, real, ours)


def _shared(ours: tuple[str, ...], real: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(line for line in ours if line in real)


def _told(line: Line, real: Said, ours: Said) -> str:
    expected, found = (list(each.lines + each.complaints) for each in (real, ours))
    missing = [f"   - {each}" for each in expected if each not in found]
    extra = [f"   + {each}" for each in found if each not in expected]
    codes = f"(exit {real.code}, ours {ours.code})"
    return "\n".join([f"$ kubectl {line.text} {codes}", *(missing + extra or ["   order"])])


def test_kubectl_watches_the_same(both: tuple[Session, Session]) -> None:
    real, ours = (_watched(session) for session in both)

    assert ours == real


def _watched(session: Session) -> list[str]:
    """Tell what a watch shows while an object comes, changes and goes."""
    with session.follow("get configmaps -n default --watch -l watch=kubectl") as shown:
        session.play("create configmap watched-before -n default")
        session.play("label configmap watched-before -n default watch=kubectl")
        head = list(islice(shown, 2))
        session.play('patch configmap watched-before -n default -p \'{"data":{"a":"b"}}\'')
        session.play("delete configmap watched-before -n default")
        return [*head, *islice(shown, 2)]
