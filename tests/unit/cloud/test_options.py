import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.errors import Misconfigured
from pileus.cloud.options import (
    CREATE_ONLY,
    FLAG,
    MOST_PROBLEMS,
    NAMES,
    RECREATE,
    TEXT,
    Option,
    Options,
    integer,
    meant_for,
    one_of,
)

INTERNAL = Option("acme.example/internal", FLAG, False, "No public address.", RECREATE)
SIZE = Option("acme.example/size", one_of("small", "large"), "small", "Size.", CREATE_ONLY)
WEIGHT = Option("acme.example/weight", integer(1, 10), 5, "Share of traffic.")
ZONES = Option("acme.example/zones", NAMES, (), "Zones to use.")
ANNOTATIONS = Options(INTERNAL, SIZE, WEIGHT, ZONES, namespace="acme.example/")
TOKEN = Option("token", integer(0, 9), 0, "Who we are.", secret=True)
CONFIG = Options(Option("region", TEXT, "", "Where."), TOKEN)


def test_values_are_typed_and_default_where_nothing_was_given():
    values = ANNOTATIONS.read({
        "acme.example/internal": "true",
        "acme.example/zones": " a, b ,",
        "other/size": "huge",
    })

    assert values[INTERNAL] is True
    assert values[ZONES] == ("a", "b")
    assert (values[SIZE], SIZE in values) == ("small", False)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(Misconfigured) as told:
        ANNOTATIONS.read({
            "acme.example/internal": "yes",
            "acme.example/sise": "small",
            "acme.example/size": "lage",
            "acme.example/weight": "11",
        })

    assert str(told.value) == (
        'acme.example/internal: invalid value "yes": must be true or false; '
        'unknown annotation "acme.example/sise" (did you mean "acme.example/size"?); '
        'acme.example/size: invalid value "lage": must be one of small, large '
        '(did you mean "large"?); '
        'acme.example/weight: invalid value "11": must be a whole number from 1 to 10'
    )


def test_a_mistake_leaves_the_other_values_usable():
    parsed = ANNOTATIONS.parse({"acme.example/weight": "x", "acme.example/size": "large"})

    assert (parsed.values[WEIGHT], parsed.values[SIZE]) == (5, "large")
    assert len(parsed.problems) == 1


def test_config_values_may_come_typed_from_a_file():
    values = Options(INTERNAL, WEIGHT, ZONES).read({
        INTERNAL.name: True,
        WEIGHT.name: 7,
        ZONES.name: ["a", "b"],
    })

    assert (values[INTERNAL], values[WEIGHT], values[ZONES]) == (True, 7, ("a", "b"))


def test_a_secret_is_never_shown():
    with pytest.raises(Misconfigured, match="token has an invalid value: must be a whole number"):
        CONFIG.read({"token": "hunter2"})

    assert repr(CONFIG.read({"token": "7"})) == "Values(token)"


def test_a_change_says_what_it_does():
    before, after = ANNOTATIONS.read({}), ANNOTATIONS.read({INTERNAL.name: "1", WEIGHT.name: "5"})

    assert [option.on_change for option in ANNOTATIONS.changed(before, after)] == [RECREATE]


def test_the_reference_has_one_line_per_option():
    lines = ANNOTATIONS.reference().splitlines()

    assert lines[2] == (
        "| `acme.example/internal` | true or false | `false` "
        "| recreates the object: connections break | No public address. |"
    )
    assert len(lines) == 2 + 4


def test_declaring_an_option_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        Options(SIZE, SIZE)


def test_several_namespaces_are_read_each():
    """An option outside of the first namespace read as its default: a public load balancer."""
    private = Option("service.beta.example/acme-internal", FLAG, False, "No public address.")
    both = Options(SIZE, private, namespace=("acme.example/", "service.beta.example/acme-"))

    values = both.read({private.name: "true", SIZE.name: "large", "service.beta.example/x": "y"})

    assert (values[private], values[SIZE]) == (True, "large")
    (problem,) = both.problems({"service.beta.example/acme-intrenal": "true"})
    assert problem.endswith('(did you mean "service.beta.example/acme-internal"?)')


@pytest.mark.parametrize("namespace", ["acme.example/", ("acme.example/", "acme.dev/"), ()])
def test_an_option_outside_of_every_namespace_cannot_be_declared(namespace):
    stray = Option("service.beta.example/acme-internal", FLAG, False, "No public address.")

    with pytest.raises(ValueError, match="service.beta.example/acme-internal: declared outside"):
        Options(stray, namespace=namespace)


@given(st.lists(st.sampled_from([INTERNAL, SIZE, WEIGHT, ZONES]), unique=True), st.data())
def test_whatever_is_declared_is_read(options, data):
    prefixes = st.sampled_from(["", "acme.", "acme.example/", "acme.example/s", "other/"])
    namespace = data.draw(st.lists(prefixes).map(tuple))
    texts = {"true": INTERNAL, "large": SIZE, "7": WEIGHT, "z": ZONES}
    given_values = {o.name: text for text, o in texts.items() if o in options}

    try:
        declared = Options(*options, namespace=namespace)
    except ValueError:
        return

    values = declared.read(given_values)
    assert all(option in values for option in options)


@pytest.mark.parametrize(
    ("annotations", "fixes"),
    [
        ({"acme.example/sise": "large"}, ("acme.example/sise-", "acme.example/size=large")),
        ({"acme.example/sise": "x"}, ("acme.example/sise-",)),
        ({"acme.example/size": "lage"}, ("acme.example/size=large",)),
        ({"acme.example/weight": "11"}, ("acme.example/weight-",)),
        ({"acme.example/qqq": "1", "acme.example/size": "small"}, ("acme.example/qqq-",)),
    ],
)
def test_mistakes_come_with_the_arguments_of_kubectl_annotate_that_fix_them(annotations, fixes):
    assert ANNOTATIONS.corrections(annotations) == fixes


def test_a_value_that_others_chose_does_nothing_in_a_pasted_command():
    free = Options(Option("acme.example/note", TEXT, "", "Any text."), namespace="acme.example/")

    assert free.corrections({"acme.example/note-": "$(reboot); x"})[-1] == (
        "acme.example/note='$(reboot); x'"
    )


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.booleans() | st.none()))
def test_no_input_does_worse_than_be_refused(given_values):
    parsed = Options(INTERNAL, SIZE, WEIGHT, ZONES).parse(given_values)

    mistakes = len(given_values) - sum(
        option in parsed.values for option in (INTERNAL, SIZE, WEIGHT, ZONES)
    )
    assert len(parsed.problems) == min(mistakes, MOST_PROBLEMS + 1)


def test_a_wish_carries_what_was_declared_and_mistakes_are_told():
    given = {
        "acme.example/size": "lage",
        "acme.example/sise": "small",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "other.io/x": "y",
    }

    assert meant_for(ANNOTATIONS, given) == {"acme.example/size": "lage"}
    assert len(ANNOTATIONS.problems(given)) == 2
    assert ANNOTATIONS.problems({"other.io/x": "y"}) == ()


def test_who_declares_nothing_gets_all_but_what_is_surely_not_meant_for_it():
    given = {
        "pileus.dev/manage": "full",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "other.io/x": "y",
    }

    assert meant_for(None, given) == {"other.io/x": "y"}


def test_an_option_that_is_declared_twice_is_refused_with_both_texts():
    first = Option("acme.example/size", TEXT, "", "Size of the balancer.")
    second = Option("acme.example/size", TEXT, "", "Size of the disk.")

    with pytest.raises(ValueError, match="declared twice") as caught:
        Options(first, second, namespace="acme.example/")

    assert str(caught.value) == (
        'option "acme.example/size" is declared twice, as "Size of the balancer." and as '
        '"Size of the disk.": remove or rename one of them'
    )
