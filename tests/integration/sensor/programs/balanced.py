"""Gradient accumulation of which shares may be changed: see `losses_job`."""

import sys

from whichrank.testbed.bench.mitigate.losses_job import main

main()
sys.exit(0)
