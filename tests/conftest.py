"""One profile for property tests: no deadline, because the machine is shared, and the same examples in every run.

One thread, because tests fork: a child would wait for ever for the threads that only its parent has.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings

settings.register_profile("openbook", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("openbook")
