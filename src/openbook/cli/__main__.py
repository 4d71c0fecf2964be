"""`python -m openbook.cli`, which `torchrun -m` needs."""

import sys

from openbook.cli import main

sys.exit(main())
