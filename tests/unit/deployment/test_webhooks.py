"""The objects that register webhooks, and wrong flags of `pileus manifests` about them."""

from base64 import b64encode
from typing import Any

import pytest

from pileus.app.settings import TABLE
from pileus.deployment.choice import InvalidChoice
from pileus.deployment.flags import OWN, chosen
from pileus.deployment.webhooks import webhook_objects
from pileus.settings.flags import Table
from pileus.settings.sources import gather

GATE = "--feature-gates=CloudControllerManagerWebhook=true"
ALL = ("--webhooks=*", GATE)
FILES = ("--webhook-tls-cert-file=/crt", "--webhook-tls-private-key-file=/key")


def printed(*flags: str) -> list[dict[str, Any]]:
    line = ("--cloud-provider=openstack", *flags)
    values = gather(Table((OWN, *TABLE.groups)), "pileus manifests", line, {}).values
    return list(webhook_objects(chosen(values, lambda path: path.encode())))


def kinds(*flags: str) -> list[str]:
    return [each["kind"] for each in printed(*flags)]


MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ((), []),
        (ALL, ["Service", "Secret", MUTATING, VALIDATING]),
        (("--webhooks=persistentvolume-labels", GATE), ["Service", "Secret", MUTATING]),
        (("--webhooks=*,-persistentvolume-labels", GATE), ["Service", "Secret", VALIDATING]),
        ((*ALL, *FILES), ["Service", MUTATING, VALIDATING]),
        ((*ALL, "--webhook-secure-port=0"), []),
        ((*ALL, "--dry-run"), []),
        (
            (*ALL, "--external", "--webhook-url=https://ccm.example:10260"),
            ["Secret", MUTATING, VALIDATING],
        ),
    ],
)
def test_what_is_printed_follows_from_the_flags(flags: tuple[str, ...], found: list[str]) -> None:
    assert kinds(*flags) == found


def test_no_webhook_can_block_the_cluster() -> None:
    hooks = [hook for each in printed(*ALL) for hook in each.get("webhooks", ())]

    assert len(hooks) == 2
    for hook in hooks:
        assert hook["failurePolicy"] == "Ignore"
        assert hook["timeoutSeconds"] <= 5
        assert hook["sideEffects"] == "None"
        assert "caBundle" not in hook["clientConfig"]


def test_a_given_authority_and_address_are_in_the_configurations() -> None:
    flags = (*ALL, *FILES, "--webhook-ca-file=/ca", "--webhook-url=https://[::1]:9/")
    (mutating, _) = printed(*flags)

    assert mutating["webhooks"][0]["clientConfig"] == {
        "url": "https://[::1]:9/admission/persistentvolume-labels",
        "caBundle": b64encode(b"/ca").decode(),
    }


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((*ALL, "--external"), "--webhooks and --external need --webhook-url"),
        (("--webhook-url=https://x",), "--webhook-url needs --webhooks"),
        ((*ALL, "--webhook-url=http://x"), '"http://x" is not an address: use https://HOST:PORT'),
        ((*ALL, "--webhook-url=https://x/y"), "is not an address"),
        ((*ALL, "--webhook-ca-file=/ca"), "--webhook-ca-file needs --webhooks and --webhook-tls"),
        (("--webhooks=*",), "--webhooks needs --feature-gates"),
        (("--webhooks=persistentvolume-label", GATE), 'did you mean "persistentvolume-labels"'),
    ],
)
def test_wrong_flags_are_refused_with_the_fix(flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidChoice) as refusal:
        printed(*flags)

    assert message in str(refusal.value)
