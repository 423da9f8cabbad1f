"""The declared keys of cloud.conf."""

from pileus.providers.openstack.config import SECTIONS, Auth, Kind, keys_of


def test_every_key_has_a_kind_that_fits_its_default_and_a_description():
    types = {
        Kind.TEXT: str,
        Kind.SECRET: str,
        Kind.FLAG: bool,
        Kind.NUMBER: int,
        Kind.DURATION: float,
        Kind.LIST: tuple,
    }
    for section in SECTIONS.values():
        for key in keys_of(section):
            assert type(key.default) is types[key.kind], key.name
            assert key.description.endswith("."), key.name


def test_secrets_are_not_part_of_the_text_of_a_configuration():
    secrets = [key.field for key in keys_of(Auth) if key.kind is Kind.SECRET]
    auth = Auth(
        password="hunter2",
        trustee_password="hunter2",
        application_credential_secret="hunter2",
        token="hunter2",
    )
    assert set(secrets) == {
        "password",
        "trustee_password",
        "application_credential_secret",
        "token",
    }
    assert "hunter2" not in repr(auth)
