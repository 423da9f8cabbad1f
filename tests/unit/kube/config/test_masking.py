"""Foreign text is shown without secrets, and stays readable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.kube.config.exec import mask, secret_args, secrets_in

WORDS = st.text(st.characters(categories=["L", "N", "P"]), min_size=4, max_size=40)


@given(st.text(), st.lists(WORDS, min_size=1), st.text())
def test_no_given_secret_remains(before: str, secrets: list[str], after: str) -> None:
    text = before + "\n".join(secrets) + after

    shown = mask(text, secrets)

    assert not any(secret in shown for secret in secrets if "*" not in secret)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bad token eyJhbGciOi.eyJzdWIi.c2ln!", "bad token ***!"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("see https://u:p@host/x", "see https://***@host/x"),
        ('{"access_token": "abc", "n": 1}', '{"access_token": ***, "n": 1}'),
        ("CLIENT_SECRET=abc other=1", "CLIENT_SECRET=*** other=1"),
        (
            "k: -----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY----- end",
            "k: *** end",
        ),
        ("got Bearer  abc12345, and bearer: 'x1y2'", "got Bearer  ***, and bearer: '***'"),
        ("token=abc&region=eu", "token=***&region=eu"),
        (r"{\"token\":\"abc\"}", r"{\"token\":***"),
        ("key id AKIAIOSFODNN7EXAMPLE of ASIAIOSFODNN7EXAMPLE", "key id *** of ***"),
        ("got wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY.", "got ***."),
        ("got wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "got ***"),
        ("k8s-aws-v1.aHR0cHM6Ly9zdHM= refused", "*** refused"),
        ("ghp_0123456789abcdefABCDEF and glpat-abcdefghij0123456789", "*** and ***"),
        ("ya29.a0AfH6SMBx-y_z expired", "*** expired"),
        ("client_secret: abc, Passphrase=x", "client_secret: ***, Passphrase=***"),
        (
            "X-Amz-Signature=ab12&X-Amz-Credential=cd34&n=1",
            "X-Amz-Signature=***&X-Amz-Credential=***&n=1",
        ),
        ("sha256:" + "0a" * 32, None),
        ("open /usr/local/google-cloud-sdk/bin/gke-gcloud-auth-plugin-V2: no such file", None),
        ("request id 6f9619ff-8b86-d011-b42d-00cf4fc964ff", None),
        ("cannot resolve sts.example.com: no such host", None),
        ("profile 'prod' has no token", None),
    ],
)
def test_what_looks_secret_is_masked_and_nothing_else(text: str, shown: str | None) -> None:
    assert mask(text) == (shown or text)


def test_names_tell_which_variables_and_options_are_secret() -> None:
    assert secrets_in({"AWS_SECRET_ACCESS_KEY": "a", "HOME": "b"}) == ("a",)
    args = ("login", "--client-secret", "x", "--token=y", "--region", "z")
    assert sorted(secret_args(args)) == ["x", "y"]
