"""`python -m bench.stalls.no_snapshot_age up ...` runs a broker that renders its metrics for each scrape instead of
caching them."""

from __future__ import annotations

import sys

from barnabas.metrics import exposition

if __name__ == "__main__":
    from barnabas.cli.main import main

    exposition.SNAPSHOT_AGE_S_MAX = 0.0
    sys.exit(main())
