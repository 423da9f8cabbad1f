"""What a source says is read with care: what is odd is told, never shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.model import SshKey
from pileus.controllers.ssh_keys.authorized_keys import ALGORITHMS, read
from pileus.controllers.ssh_keys.location import BadLocation, Location, located
from tests.unit.controllers.ssh_keys.keys import PRIVATE, key, public_key

JANE = public_key("jane")


def test_an_entry_is_a_user_with_lines_as_in_authorized_keys():
    text = f"# team\n\n{JANE} jane@laptop\n  {public_key('x')}  \n"

    wanted = read({"ops": text.encode()})

    assert wanted.keys == {SshKey("ops", JANE), key("ops", "x")}
    assert wanted.is_whole


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_of_openssh_is_read(algorithm: str):
    text = public_key("x", algorithm)

    assert read({"ops": text.encode()}).keys == {SshKey("ops", text)}


@pytest.mark.parametrize(
    ("user", "text", "told"),
    [
        pytest.param("ops", "hello", "line 1: does not begin with the algorithm", id="no key"),
        pytest.param("ops", f'from="10.*" {JANE}', "options in front of it", id="options"),
        pytest.param("ops", "ssh-ed25519", "no such key", id="no body"),
        pytest.param("ops", JANE[:-9], "was a part of it lost", id="cut"),
        pytest.param("ops", JANE.replace("ed25519 ", "rsa "), "no such key", id="another's body"),
        pytest.param("ops", "", 'say "none"', id="empty"),
        pytest.param("ops", "# soon\n", 'say "none"', id="comment only"),
        pytest.param("../x", JANE, "not the name of a user", id="user"),
        pytest.param("ops", b"\xff\xfe", "UTF-8", id="bytes"),
        pytest.param("ops", PRIVATE, "PRIVATE key", id="private key"),
    ],
)
def test_what_cannot_be_used_is_told_with_its_place_and_stops_withdrawals(user, text, told):
    raw = text if isinstance(text, bytes) else text.encode()

    wanted = read({user: raw, "other": public_key("other").encode()})

    assert wanted.keys == {key("other")}, "the rest is used"
    assert not wanted.is_whole
    assert told in wanted.problems[0]
    assert f'"{user}"' in wanted.problems[0]


def test_beside_a_private_key_nothing_of_the_entry_is_used():
    wanted = read({"ops": f"{JANE}\n{PRIVATE}".encode()})

    assert not wanted.keys
    assert "known to all who may read" in wanted.problems[0]


def test_no_entry_at_all_is_no_wish_to_withdraw_everything():
    assert not read({}).is_whole


def test_none_is_the_explicit_way_to_want_no_key():
    wanted = read({"ops": b" none \n"})

    assert wanted.is_whole
    assert not wanted.keys


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(st.dictionaries(words, st.one_of(words.map(str.encode), st.binary(max_size=60))))
def test_nothing_of_what_cannot_be_read_is_ever_shown(entries: dict[str, bytes]):
    secret = "s3cr3t-W0rd"

    wanted = read({user: text + f"\n{secret}".encode() for user, text in entries.items()})

    assert not wanted.is_whole
    assert secret not in repr(wanted)


@given(st.sets(st.text("abc", min_size=1, max_size=8), min_size=1), st.randoms())
def test_order_and_comments_do_not_matter(seeds: set[str], chance):
    lines = [f"{public_key(seed)} someone" for seed in seeds]
    chance.shuffle(lines)

    wanted = read({"ops": "\n".join(lines).encode()})

    assert wanted.keys == {SshKey("ops", public_key(seed)) for seed in seeds}
    assert wanted.is_whole


def test_a_fingerprint_is_the_one_that_ssh_keygen_shows():
    known = (
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl github"
    )

    (found,) = read({"git": known.encode()}).keys

    assert found.fingerprint == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


def test_a_location_names_an_object_or_a_file():
    assert located("configmap:ops/keys") == Location("ConfigMap", "ops", "keys")
    assert str(located("secret:ops/keys")) == "Secret ops/keys"
    assert located("file:/etc/keys.yaml").name == "/etc/keys.yaml"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("confgmap:a/b", 'did you mean "configmap"'),
        ("configmap:keys", "configmap:NAMESPACE/NAME"),
        ("secret:a/b/c", "secret:NAMESPACE/NAME"),
        ("secret:A/b", "secret:NAMESPACE/NAME"),
        ("file:", "lacks the path"),
        ("/etc/keys", "names no place"),
    ],
)
def test_a_location_that_is_none_is_refused(text: str, told: str):
    with pytest.raises(BadLocation, match=told):
        located(text)
