"""The Go framework's provider interface in Python, for porting a provider method by method."""
