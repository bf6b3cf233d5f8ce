"""Runs that show what the package does: a small GPT, scenarios, demo, benchmarks. The package never imports this."""
