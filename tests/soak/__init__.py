"""Long measurements, too heavy for every run of the tests: commands of their own, and short variants as tests."""
