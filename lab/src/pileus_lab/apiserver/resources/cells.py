"""Cells that several tables share."""

from pileus_lab.apiserver.resource import Column
from pileus_lab.apiserver.tree import Obj, name_of, text

NONE = "<none>"
UNKNOWN = "<unknown>"


def created(value: Obj) -> object:
    """The moment of creation; `table.py` turns it into an age."""
    return text(value, "metadata", "creationTimestamp")


NAME = Column("Name", name_of)
AGE = Column("Age", created, type="age")
