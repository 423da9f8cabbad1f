"""The mutants fit the code: each removes what is there, once, and leaves valid Python."""

import ast

import pytest

from tests.mutants.mutant import Danger, Mutant
from tests.mutants.suite import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_changes_the_program(mutant: Mutant):
    source = mutant.path.read_text(encoding="utf-8")

    mutated = mutant.applied(source)

    assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))


def test_there_are_enough_of_each_kind():
    assert len({each.name for each in MUTANTS}) == len(MUTANTS) >= 40
    assert {each.danger for each in MUTANTS} == set(Danger)
