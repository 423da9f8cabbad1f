"""A controller in a package of its own, as a contributor would add one."""
