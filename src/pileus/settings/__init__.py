"""Settings of the program: kinds of values, flags, and where their values come from."""
