"""The client: its sans-I/O parts alone, then the whole against a real broker."""
