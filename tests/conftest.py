"""One profile for property tests: no deadline, because the machine is shared, and the same examples in every run."""

from hypothesis import settings

settings.register_profile("openbook", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("openbook")
