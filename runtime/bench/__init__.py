"""Benchmarks: a real broker driven over real sockets, beside the limits of the same machine in the same run."""
