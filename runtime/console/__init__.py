"""The console: one page, served from these files as they are."""
