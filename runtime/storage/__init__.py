"""The storage engine: journal, logs, index, checkpoints, recovery."""
