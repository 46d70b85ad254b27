"""Proofs that run the shipped functions on symbolic integers."""
