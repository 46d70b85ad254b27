"""Programs that use Dovetail, each to be read from top to bottom and run against a broker (`make serve`)."""
