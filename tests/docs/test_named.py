"""Every known defect of the Go framework and every trap that hurt users has a test of its name."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = (ROOT / "tests", ROOT / "src" / "pileus" / "testing")
DEFECTS, TRAPS = 23, 16


def numbers_of(word: str) -> set[int]:
    named = re.compile(rf"^\s*(?:async )?def test_{word}_(\d+)_", re.MULTILINE)
    return {
        int(number)
        for place in PLACES
        for path in place.rglob("*.py")
        for number in named.findall(path.read_text())
    }


def test_every_defect_of_the_go_framework_has_a_test() -> None:
    assert numbers_of("defect") == set(range(1, DEFECTS + 1))


def test_every_trap_that_hurt_users_has_a_test() -> None:
    assert numbers_of("trap") == set(range(1, TRAPS + 1))
