"""Every flag of the program, one file per group or two."""
