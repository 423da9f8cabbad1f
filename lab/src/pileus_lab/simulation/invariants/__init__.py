"""What must hold: small named functions, some for every step and some for a world gone quiet."""
