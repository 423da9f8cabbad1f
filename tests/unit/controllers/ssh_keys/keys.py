"""Public keys to test with: well-formed, and nobody's."""

from base64 import b64encode
from hashlib import sha256

from pileus.cloud.model import SshKey


def _field(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def public_key(seed: str, algorithm: str = "ssh-ed25519") -> str:
    body = _field(algorithm.encode()) + _field(sha256(seed.encode()).digest())
    return f"{algorithm} {b64encode(body).decode()}"


def key(user: str, seed: str = "") -> SshKey:
    return SshKey(user, public_key(seed or user))


PRIVATE = """-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ
-----END OPENSSH PRIVATE KEY-----
"""
