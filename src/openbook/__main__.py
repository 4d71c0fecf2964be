"""`python -m openbook`, for where the script is not on the path."""

import sys

from openbook.cli import main

sys.exit(main())
