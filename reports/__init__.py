"""The Spark pipeline: campaigns as jobs, analysis, audit, the report."""
