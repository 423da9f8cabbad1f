"""A Node whose machine is gone is deleted, guardedly; one whose machine is stopped is tainted."""
