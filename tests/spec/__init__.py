"""Tests of the executable specification itself."""
