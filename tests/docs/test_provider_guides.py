"""The guides for provider authors name everything that a provider can declare, return or raise."""

import inspect
import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pileus.cloud import errors
from pileus.cloud.abilities import Abilities, Limits, PagedList, Requests
from pileus.cloud.balancer import Balancer, BalancerState, Notice, Part, Wish
from pileus.cloud.errors import CloudError
from pileus.cloud.model import Route
from pileus_lab.simulation.clouds import truth

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
WRITE = (GUIDES / "write-a-provider.md").read_text()
SIMULATE = (GUIDES / "simulate-your-provider.md").read_text()
EASY = {"id", "name", "is_warning", "owner", "reason", "message"}
"""What these fields are is clear from their names."""


def _names(of: type) -> set[str]:
    return {one.name for one in fields(of)} - EASY


def _unnamed(page: str, names: Iterable[str]) -> list[str]:
    return sorted(one for one in names if not re.search(rf"\b{one}\b", page))


@pytest.mark.parametrize(
    "of", [Abilities, Requests, PagedList, Limits, Route, Balancer, Wish, Notice]
)
def test_every_field_of_the_contract_is_in_the_guide(of: type):
    assert not _unnamed(WRITE, _names(of))


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
