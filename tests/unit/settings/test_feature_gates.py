"""Feature gates: known names are taken, others refused, groups switch many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.settings import feature_gates as gates
from pileus.settings.feature_gates import KNOWN, Gates, Stage, parse_gates


def test_a_gate_has_its_default_until_it_is_asked_for():
    assert not Gates().enabled(gates.WEBHOOK)
    assert Gates().enabled(gates.LOGGING_BETA)
    assert Gates(asked={"CloudControllerManagerWebhook": True}).enabled(gates.WEBHOOK)


def test_all_alpha_switches_the_alpha_gates_that_are_not_named():
    asked = Gates(asked=parse_gates("AllAlpha=true,CloudControllerManagerWebhook=false"))

    assert asked.enabled(gates.WATCH_BASED_ROUTES)
    assert not asked.enabled(gates.WEBHOOK)
    assert asked.enabled(gates.LOGGING_BETA)


def test_all_beta_switches_the_beta_gates():
    assert not Gates(asked={"AllBeta": False}).enabled(gates.LOGGING_BETA)


@given(st.dictionaries(st.sampled_from(sorted(KNOWN)), st.booleans()))
def test_what_is_asked_by_name_always_counts(asked: dict[str, bool]):
    assert all(Gates(asked=asked).enabled(KNOWN[name]) is on for name, on in asked.items())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Foo=true", "unrecognized feature gate: Foo"),
        ("Foo=true,Bar=true", "[unrecognized feature gate: Foo, unrecognized feature gate: Bar]"),
        ("AllAlpha", "missing bool value for AllAlpha"),
        (
            "AllAlpha=x",
            'invalid value of AllAlpha=x, err: strconv.ParseBool: parsing "x": invalid syntax',
        ),
        (
            "DeclarativeValidation=false",
            "cannot set feature gate DeclarativeValidation to false, feature is locked to true",
        ),
        (
            "CloudControllerManagerWebhooks=true",
            (
                "unrecognized feature gate: CloudControllerManagerWebhooks"
                ' (did you mean "CloudControllerManagerWebhook"?)'
            ),
        ),
    ],
)
def test_a_wrong_gate_is_refused(text: str, message: str):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- the whole message is held below
        parse_gates(text)

    assert str(caught.value) == message


def test_a_locked_gate_may_be_set_to_what_it_is():
    assert parse_gates("DeclarativeValidation=true") == {"DeclarativeValidation": True}


def test_some_forty_gates_of_the_library_are_known():
    assert len(gates.LIBRARY) == 41
    assert not [gate for gate in gates.LIBRARY if gate.stage is Stage.ALPHA and gate.default]
