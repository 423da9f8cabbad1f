"""Serving certificates: made where none is given, read anew when files change."""

import logging
import stat
from pathlib import Path

import pytest
from cryptography import x509

from pileus.admission.settings import WebhookSettings
from pileus.app.settings import TABLE
from pileus.pki import KeyPair
from pileus.server.errors import BadCertificate
from pileus.server.serving_certificates import Certificates, subject
from pileus.server.settings import ServingOptions, SniPair
from pileus.server.tls import NamedPair, Tls
from pileus.settings.declare import build
from pileus.settings.sources import gather
from tests.unit.server.people import FixedClock, serving_pair

OLD, NEW = serving_pair("old.test").pair, serving_pair("new.test").pair


def put(folder: Path, pair: KeyPair) -> ServingOptions:
    certificate, key = folder / "tls.crt", folder / "tls.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return ServingOptions(cert_file=str(certificate), key_file=str(key))


class RecordingTls(Tls):
    def __init__(self) -> None:
        super().__init__(ServingOptions())
        self.used: list[tuple[NamedPair, ...]] = []

    def use_pairs(self, pairs):
        super().use_pairs(pairs)
        self.used.append(tuple(pairs))


@pytest.mark.parametrize(
    ("bound", "names"),
    [
        ("0.0.0.0", ("localhost", "127.0.0.1")),
        ("::", ("localhost", "127.0.0.1")),
        ("127.0.0.1", ("localhost", "127.0.0.1")),
        ("192.0.2.7", ("localhost", "127.0.0.1", "192.0.2.7")),
    ],
)
def test_a_self_signed_certificate_is_for_localhost_and_the_bound_address(
    bound: str, names: tuple[str, ...]
):
    assert subject(bound).names == names


def test_without_files_a_certificate_lives_in_memory():
    (pair,) = Certificates(ServingOptions(), FixedClock()).read()

    leaf = x509.load_pem_x509_certificates(pair.pair.certificate)[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_a_certificate_directory_is_filled_once_and_then_kept(tmp_path: Path):
    options = ServingOptions(cert_dir=str(tmp_path / "new" / "folder"))

    first = Certificates(options, FixedClock()).read()
    second = Certificates(options, FixedClock()).read()

    assert first == second
    key = tmp_path / "new" / "folder" / "cloud-controller-manager.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.with_suffix(".crt").exists()


def test_the_certificate_of_the_webhooks_has_a_name_of_its_own_in_its_directory(tmp_path: Path):
    given = gather(TABLE, "ccm", [f"--webhook-cert-dir={tmp_path}"], {})
    options = build(WebhookSettings, given.values).serving

    Certificates(options, FixedClock()).read()

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cloud-controller-manager-webhook.crt",
        "cloud-controller-manager-webhook.key",
    ]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(BadCertificate, match=f"--cert-dir={tmp_path}/file"):
        Certificates(ServingOptions(cert_dir=str(tmp_path / "file")), FixedClock())


def test_certificate_and_key_go_together(tmp_path: Path):
    with pytest.raises(BadCertificate, match="go together"):
        Certificates(ServingOptions(cert_file="a.crt"), FixedClock())


def test_a_missing_file_is_named(tmp_path: Path):
    options = ServingOptions(cert_file=f"{tmp_path}/a.crt", key_file=f"{tmp_path}/a.key")

    with pytest.raises(BadCertificate, match=f"{tmp_path}/a.crt: No such file"):
        Certificates(options, FixedClock()).read()


def test_pairs_for_host_names_stand_behind_the_default_one(tmp_path: Path):
    files = put(tmp_path, NEW)
    options = ServingOptions(sni=(SniPair(files.cert_file, files.key_file, ("a.test",)),))

    default, named = Certificates(options, FixedClock()).read()

    assert default.source == "self-signed certificate"
    assert (named.pair, named.names) == (NEW, ("a.test",))


def test_changed_files_are_shown_and_unchanged_ones_left_alone(tmp_path: Path):
    certificates, tls = Certificates(put(tmp_path, OLD), FixedClock()), RecordingTls()
    certificates.show(tls)

    certificates.refresh(tls)
    put(tmp_path, NEW)
    certificates.refresh(tls)

    assert [pairs[0].pair for pairs in tls.used] == [OLD, NEW]


def test_a_torn_change_is_logged_once_and_the_old_pair_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    certificates, tls = Certificates(put(tmp_path, OLD), FixedClock()), RecordingTls()
    certificates.show(tls)

    (tmp_path / "tls.crt").write_bytes(NEW.certificate)
    certificates.refresh(tls)
    certificates.refresh(tls)

    assert [pairs[0].pair for pairs in tls.used] == [OLD]
    errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == ["Keeping the previous serving certificates"]

    (tmp_path / "tls.key").write_bytes(NEW.key)
    certificates.refresh(tls)

    assert [pairs[0].pair for pairs in tls.used] == [OLD, NEW]


def test_a_certificate_that_vanishes_goes_on_being_shown(tmp_path: Path):
    certificates, tls = Certificates(put(tmp_path, OLD), FixedClock()), RecordingTls()
    certificates.show(tls)

    (tmp_path / "tls.crt").unlink()
    certificates.refresh(tls)

    assert [pairs[0].pair for pairs in tls.used] == [OLD]
