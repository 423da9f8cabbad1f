"""The guides for provider authors name everything that a provider can declare, return or raise."""

import ast
import inspect
import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from tools import contract_reference

from pileus.cloud import errors
from pileus.cloud.abilities import Abilities, Limits, PagedList, Requests
from pileus.cloud.balancer import Balancer, BalancerState, Notice, Part, Wish
from pileus.cloud.errors import CloudError
from pileus.cloud.model import AddressType, Route
from pileus_lab.simulation.clouds import truth

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
WRITE = (GUIDES / "write-a-provider.md").read_text()
SIMULATE = (GUIDES / "simulate-your-provider.md").read_text()
EASY = {"id", "name", "is_warning", "owner", "reason", "message"}
"""What these fields are is clear from their names."""


SAYS_ITSELF = {"id", "state", "port", *(one.name for one in AddressType)}
"""Fields of the reference that need no text."""


def _classes() -> list[ast.ClassDef]:
    sections = contract_reference.SECTIONS.values()
    return [
        contract_reference.classes(module)[name] for module, names in sections for name in names
    ]


def _names(of: type) -> set[str]:
    return {one.name for one in fields(of)} - EASY


def _unnamed(page: str, names: Iterable[str]) -> list[str]:
    """Returns the names that the page does not show as code."""
    shown = set(re.findall(r"[\w.]+", "\n".join(re.findall(r"`+[^`]+`+", page))))
    shown |= {part for one in shown for part in one.split(".")}
    return sorted(one for one in names if one not in shown)


@pytest.mark.parametrize(
    "of", [Abilities, Requests, PagedList, Limits, Route, Balancer, Wish, Notice]
)
def test_every_field_of_the_contract_is_in_the_guide(of: type):
    assert not _unnamed(WRITE, _names(of))


def test_the_reference_of_the_contract_is_what_the_classes_say():
    assert contract_reference.PAGE.read_text() == contract_reference.page(), "run `make docs`"


def test_every_class_that_a_provider_gets_or_returns_is_in_the_reference():
    """Those of the modules that only the core uses are not."""
    listed = {name for _, names in contract_reference.SECTIONS.values() for name in names}
    modules = {module for module, _ in contract_reference.SECTIONS.values()}
    made = {
        name
        for module in modules
        for name, one in vars(module).items()
        if is_dataclass(one) and getattr(one, "__module__", "") == module.__name__
    }

    assert made - listed == set()


@pytest.mark.parametrize("made", _classes(), ids=lambda made: made.name)
def test_every_field_of_the_contract_has_a_row_with_its_meaning(made: ast.ClassDef):
    _, _, table = contract_reference.page().partition(f"\n### {made.name}\n")
    rows = dict(
        re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", table.partition("\n##")[0], re.MULTILINE)
    )
    names = {name for name, *_ in contract_reference.fields_of(made)}

    assert rows.keys() == names
    assert {name for name, text in rows.items() if not text.strip()} <= SAYS_ITSELF


def test_every_ability_has_a_row():
    rows = set(re.findall(r"^\| `(\w+)` \|", WRITE, re.MULTILINE))

    assert not {one.name for one in fields(Abilities)} - rows


def test_every_error_part_and_state_is_in_the_guide():
    kinds = {
        name
        for name, one in vars(errors).items()
        if inspect.isclass(one) and issubclass(one, CloudError) and one is not CloudError
    }

    assert {"NeedsMembers", "Throttled"} <= kinds
    assert not _unnamed(WRITE, kinds)
    assert not _unnamed(WRITE, [f"Part.{one.name}" for one in Part])
    assert not _unnamed(WRITE, [one.name for one in BalancerState])


@pytest.mark.parametrize("of", [truth.Balancer, truth.Volume, truth.Truth])
def test_every_fact_that_the_simulation_judges_by_is_in_the_guide(of: type):
    assert not _unnamed(SIMULATE, _names(of))


@pytest.mark.parametrize("page", [WRITE, SIMULATE], ids=["write", "simulate"])
def test_the_guides_give_every_blocking_write_a_key(page: str):
    """The key comes first; without one, a late write could undo a newer one."""
    calls: list[Any] = re.findall(r"blocking\.write\(\s*([^,]+),\s*([^,)]+)", page)

    assert calls
    assert all("sdk" not in key and "sdk" in function for key, function in calls)
