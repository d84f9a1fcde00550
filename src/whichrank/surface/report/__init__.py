"""A page that can be mailed: one HTML file with everything in it, about one job.

`gather` keeps what an analyzer was told, `page` makes the page of it. The page needs no network, follows the reader's
light or dark setting, and prints. May be imported from here by `surface.cli`: `gather`, `page`.
"""

from __future__ import annotations
