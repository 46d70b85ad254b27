"""The HTTP interface and the console it serves."""
