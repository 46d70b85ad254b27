"""Mistakes planted from outside, to see whether the simulator notices."""
