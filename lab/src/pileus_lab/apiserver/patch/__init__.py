"""The three kinds of patch, as pure functions from object and patch to object."""
