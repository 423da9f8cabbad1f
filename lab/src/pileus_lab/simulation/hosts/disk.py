"""The content of a volume: bytes, and the records that pods have written to its filesystem."""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from pileus.volumes.devices import NOTE

GIB = 1 << 30
BLOCK_LOG = 2
BLOCK = 1024 << BLOCK_LOG
SUPERBLOCK, MAGIC = 0x400, b"\x53\xef"
RUBBISH_AT = 0x2000
"""Where a filesystem that is being created has data before it has a signature."""


UNPROBED_AT = 0x18000
"""Where the node plugin does not look for data (`product.SMALLER`), and blkid does."""


@dataclass(frozen=True, slots=True)
class Strange:
    """What others have written to a disk."""

    place: Callable[[int], int]
    """Where, by the size of the disk."""
    shown: str = ""
    """What blkid prints; empty: it finds nothing."""
    is_begun: bool = False
    """Whether a format of the node plugin was interrupted before."""


STRANGE = (
    Strange(lambda size: size - BLOCK),
    Strange(lambda size: size // 2),
    Strange(lambda _: UNPROBED_AT, "TYPE=xfs\n"),
    Strange(lambda _: UNPROBED_AT, "TYPE=xfs\n", is_begun=True),
    Strange(lambda _: UNPROBED_AT, "USAGE=raid\n"),
)


class Disk:
    """Only what was written is kept; the rest is zero."""

    def __init__(self, volume: str, size: int) -> None:
        self.volume = volume
        self.size = size
        self.records: list[str] = []
        """What pods have written, in the filesystem on it."""
        self.strange: Strange | None = None
        """What others have written to it, before it was used."""
        self._written: dict[int, bytes] = {}

    def read(self, offset: int, length: int) -> bytes:
        found = bytearray(max(0, min(length, self.size - offset)))
        for at, data in self._written.items():
            first, last = max(at, offset), min(at + len(data), offset + len(found))
            if first < last:
                found[first - offset : last - offset] = data[first - at : last - at]
        return bytes(found)

    def write(self, offset: int, data: bytes) -> None:
        """Later writes are on top; one that covers an earlier one replaces it."""
        for at, old in [*self._written.items()]:
            if offset <= at and at + len(old) <= offset + len(data):
                del self._written[at]
        if any(data) or self._written:
            self._written[offset] = data

    def write_by_others(self, strange: Strange) -> None:
        self.strange = strange
        self.write(strange.place(self.size), b"of others")
        if strange.is_begun:
            self.write(self.size - len(NOTE), NOTE)

    def wipe(self) -> None:
        """The others remove what they wrote, if anything."""
        if self.strange is not None:
            self.strange = None
            self._written.clear()

    # -- as commands see it -------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._written

    @property
    def has_filesystem(self) -> bool:
        return self.read(SUPERBLOCK + 0x38, len(MAGIC)) == MAGIC

    @property
    def filesystem_size(self) -> int:
        low, high = self.read(SUPERBLOCK + 4, 4), self.read(SUPERBLOCK + 0x150, 4)
        return (int.from_bytes(high, "little") << 32 | int.from_bytes(low, "little")) * BLOCK

    def begin_format(self) -> None:
        """From now on its former content is lost, and it has no signature yet."""
        self.records.clear()
        self.write(SUPERBLOCK, bytes(0x200))
        self.write(RUBBISH_AT, b"inode table")

    def end_format(self) -> None:
        """What was written since the beginning is lost, too."""
        self.records.clear()
        self.write(RUBBISH_AT, bytes(len(b"inode table")))
        self.grow_filesystem()

    def grow_filesystem(self) -> None:
        """Write a superblock of ext4 that says that the filesystem has the size of the disk."""
        head = bytearray(0x200)
        blocks = self.size // BLOCK
        struct.pack_into("<I", head, 0x04, blocks & 0xFFFFFFFF)
        struct.pack_into("<I", head, 0x18, BLOCK_LOG)
        head[0x38:0x3A] = MAGIC
        struct.pack_into("<I", head, 0x60, 0x80)
        struct.pack_into("<I", head, 0x150, blocks >> 32)
        self.write(SUPERBLOCK, bytes(head))
