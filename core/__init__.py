"""The pure state machine and everything sans-I/O: codecs, connection protocol, group committer."""
