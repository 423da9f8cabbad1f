"""Which fields each kind has, and how JSON becomes an object of that kind."""
