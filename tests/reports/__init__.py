"""The Spark pipeline, on a real local Spark."""
