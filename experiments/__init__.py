"""Runs that show what the package does: a small GPT, scenarios, the demo, benchmarks. The package never imports this."""
