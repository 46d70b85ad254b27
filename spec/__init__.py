"""The specification: the text people read, and a naive executable model, the oracle of the tests."""
