"""Whole scripts to start from; each runs in the tests."""
