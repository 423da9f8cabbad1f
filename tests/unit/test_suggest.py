from hypothesis import given
from hypothesis import strategies as st

from pileus.suggest import closest, did_you_mean

WORDS = ("openstack", "hetzner", "local")


def test_a_slip_of_the_finger_is_recognised():
    assert did_you_mean("opnestack", WORDS) == ' (did you mean "openstack"?)'


def test_upper_and_lower_case_do_not_matter():
    assert closest("HETZNER", WORDS) == "hetzner"


def test_a_word_like_no_other_suggests_nothing():
    assert did_you_mean("zzz", WORDS) == ""
    assert did_you_mean("local", ()) == ""


def test_a_much_longer_word_is_another_word():
    assert closest("nonsense", ("full", "members", "none")) is None
    assert closest("non", ("full", "members", "none")) == "none"


@given(st.lists(st.text(min_size=1)), st.text())
def test_only_known_words_are_ever_suggested(known, word):
    assert closest(word, known) in {None, *known}


@given(st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1))
def test_a_known_word_is_closest_to_itself(known):
    assert closest(known[0], known) == known[0]
