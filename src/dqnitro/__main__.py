"""`python -m dqnitro`."""

import sys

from dqnitro.cli import main

sys.exit(main())
