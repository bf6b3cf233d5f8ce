"""Settings for all tests."""

from hypothesis import settings

# A shared machine may stall at any moment: no test fails for being slow, and the same examples are tried every time.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
