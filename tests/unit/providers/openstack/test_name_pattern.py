"""Patterns of users match like `re` and `fnmatch` do, and in linear time."""

import re
import sys
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.providers.openstack.name_pattern import MOST_CHARACTERS, name_pattern

NAMES = st.text("ab-1", max_size=12)
ATOMS = st.sampled_from([
    "a",
    "b",
    "-",
    "1",
    ".",
    r"\-",
    r"\d",
    r"\w",
    r"\D",
    "[ab]",
    "[^a-b]",
    "[]a]",
])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        inner.map(lambda one: f"(?:{one})*"),
        inner.map(lambda one: f"(?:{one})+?"),
        inner.map(lambda one: f"(?:{one})?"),
    ),
    max_leaves=6,
)


@given(expression=EXPRESSIONS, name=NAMES)
def test_an_expression_matches_whole_names_like_re(expression: str, name: str) -> None:
    assert name_pattern(f"~{expression}")(name) == bool(re.fullmatch(expression, name))
    assert name_pattern(f"~^{expression}$")(name) == bool(re.fullmatch(expression, name))


@given(
    glob=st.lists(
        st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]", "[a-b]", "[^]", ".", "+", "[", "|"])
    ).map("".join),
    name=st.text("ab.+[|^", max_size=8),
)
def test_a_glob_matches_like_fnmatch(glob: str, name: str) -> None:
    assert name_pattern(glob)(name) == fnmatchcase(name, glob)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("~^public-.*$", "public-1", "private-public-1"),
        ("~^(public|ext)-v4$", "ext-v4", "ext-v6"),
        ("~^a$|^b$", "b", "ab"),
        ("~pub", "pub", "pub-a"),
        ("!~pub.*", "ext", "pub-a"),
        (r"~pub\+\*\{.", "pub+*{a", "pubb"),
        ("pub", "pub", "pub-a"),
        ("!pub-*", "ext", "pub-a"),
        ("pub-{a,b}-{1,2}", "pub-b-1", "pub-c-1"),
        ("pub-{a,{b,c}}", "pub-c", "pub-"),
        ("a{b", "a{b", "ab"),
        ("", "", "a"),
    ],
)
def test_patterns_that_people_write(pattern: str, yes: str, no: str) -> None:
    matches = name_pattern(pattern)
    assert (matches(yes), matches(no)) == (True, False)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("~a{2}", "repetitions in braces are not supported"),
        ("~(?=a)b", "only groups"),
        ("~" + "(" * 30 + "a" + ")" * 30, "20 in each other"),
        ("~(a", r"missing \)"),
        ("~a)", r"unexpected \)"),
        ("~[a", "only closed sets"),
        ("~[[:alpha:]]", "only closed sets"),
        (r"~[\D]", "only closed sets"),
        (r"~[+-\.]", "only closed sets"),
        ("~*a", r"\* at this place"),
        ("~a**", r"\* at this place"),
        ("~a$b", r"\$ at this place"),
        (r"~\bpub", r"\\b is not supported"),
        ("~a\\", "is not supported"),
        ("{" + ",".join(map(str, range(40_000))) + "}", "more than 255"),
    ],
)
def test_what_is_not_understood_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        name_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "~" + ".?" * 40,
        "~" + "(a*)*" * 30 + "b",
        "~" + "(a|a)*" * 40 + "b",
        "~" + "((((a?)*)*)*)*" * 17,
        "*a" * 120 + "b",
        "{a,a}" * 50 + "b",
        "{a,b,?,*}" * 28,
    ],
)
def test_the_cost_of_a_hostile_pattern_is_bounded(pattern: str) -> None:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        name_pattern(pattern[: MOST_CHARACTERS + 1])("a" * 255)
    except ValueError:
        pass  # cut in the middle of a group
    finally:
        sys.setprofile(None)

    assert calls < 255 * MOST_CHARACTERS * 3
