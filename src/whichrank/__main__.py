"""`python -m whichrank` is the command `whichrank`."""

import sys

from whichrank.surface.cli import main

sys.exit(main())
