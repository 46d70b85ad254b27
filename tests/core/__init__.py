"""Tests of the core: by claim, by model, by planted bug."""
