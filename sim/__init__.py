"""The simulated world: network, disk, clock, actors, faults, checkers, traces."""
