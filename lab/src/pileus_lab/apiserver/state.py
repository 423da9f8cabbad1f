"""The parts of a running server, except for its sockets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from uuid import UUID

from pileus.clock import Clock, rfc3339
from pileus.pki import signing_key
from pileus_lab.apiserver.access import Authorizer
from pileus_lab.apiserver.allocation import Allocator, Ranges
from pileus_lab.apiserver.identity import StaticTokens, TokenSigner, User
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.resources.catalog import Catalog
from pileus_lab.apiserver.store import HISTORY, Shelf, Store

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
BODY_LIMIT = 3 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a server behaves; every field has a default."""

    ranges: Ranges = field(default_factory=Ranges)
    history: int = HISTORY
    bookmark_every: float = 60.0
    """Seconds between bookmarks of a watch that requests them."""
    watch_timeout: float = 1800.0
    """Minimum seconds until a watch ends by itself; the maximum is twice that."""
    tokens: Mapping[str, User] = field(default_factory=dict[str, User], repr=False)
    """Static bearer tokens."""
    client_authority: str = ""
    """PEM of the CA of client certificates, published in a ConfigMap."""
    token_key: bytes = field(default=b"", repr=False)
    """PEM of the key that signs service-account tokens; a new one if empty."""
    max_in_flight: int = 400
    """Maximum number of requests in progress, without watches; further ones get 429."""


class State:
    def __init__(self, *, clock: Clock, random: Random, store: Store, options: Options) -> None:
        self.clock = clock
        self.random = random
        self.store = store
        self.options = options
        self.catalog = Catalog()
        self.allocator = Allocator(options.ranges, random)
        self.authorizer = Authorizer(store)
        self.signer = TokenSigner(options.token_key or signing_key()[0])
        self.tokens = StaticTokens(options.tokens)
        services = store.shelf("services")
        for entry in services.entries.values():
            self.allocator.observe(None, entry)
        services.observers.append(self.allocator.observe)

    def shelf(self, resource: Resource) -> Shelf:
        return self.store.shelf(resource.shelf)

    def now(self) -> str:
        return stamp(self.clock.now())

    def new_uid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def generate_name(self, prefix: str) -> str:
        suffix = "".join(self.random.choices(_SUFFIX, k=_SUFFIX_LENGTH))
        return f"{prefix[: 63 - _SUFFIX_LENGTH]}{suffix}"


def stamp(moment: datetime) -> str:
    return rfc3339(moment, "seconds")
