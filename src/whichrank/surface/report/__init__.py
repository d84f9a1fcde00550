"""A page that can be mailed: one HTML file with everything in it, about the incidents of one job.

`make` reads what paths hold, `gather` keeps what an analyzer is reported and reports, `scene` what surrounded an
incident. `page` makes the HTML of it, and has a module for each part. The page needs no network and no script, follows
the reader's light or dark setting, fits a phone, and prints. May be imported from here: `make`, `gather`, `page`.
"""

from __future__ import annotations
