"""Certificates made on the spot are ones that OpenSSL accepts."""

import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pileus.pki import Authority, Subject

NOW = datetime.now(UTC)


def test_server_and_client_prove_themselves_to_each_other(tmp_path: Path) -> None:
    authority = Authority("test-ca", now=NOW)
    (tmp_path / "ca").write_bytes(authority.certificate)
    server = context(
        tmp_path,
        ssl.PROTOCOL_TLS_SERVER,
        authority,
        Subject(common_name="s", names=("localhost", "127.0.0.1")),
    )
    client = context(
        tmp_path,
        ssl.PROTOCOL_TLS_CLIENT,
        authority,
        Subject(common_name="jane", organizations=("a", "b")),
    )
    server.verify_mode = ssl.CERT_REQUIRED

    peer = shake_hands(client, server)

    certificate = peer.getpeercert()
    assert certificate is not None
    subject = [pair for part in certificate["subject"] for pair in part]
    assert subject == [
        ("organizationName", "a"),
        ("organizationName", "b"),
        ("commonName", "jane"),
    ]


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> ssl.SSLObject:
    """Return the server's end of a connection that never leaves memory."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname="127.0.0.1")
    theirs = server.wrap_bio(up, down, server_side=True)
    for end in (ours, theirs, ours, theirs):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return theirs


def context(folder: Path, protocol: int, authority: Authority, subject: Subject) -> ssl.SSLContext:
    pair = authority.issue(subject, now=NOW)
    file = folder / f"{subject.common_name}.pem"
    file.write_bytes(pair.certificate + pair.key)
    made = ssl.SSLContext(protocol)
    made.load_cert_chain(file)
    made.load_verify_locations(folder / "ca")
    return made
