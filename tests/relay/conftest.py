"""These tests run in the environment with Relay; see tests/test_relay_suite.py."""

from __future__ import annotations

import os

from boltgen.frontend.relay.versions import installed_tvm

# TVM would look for schedules of its authors' on the network, twice per build.
os.environ.setdefault("TOPHUB_LOCATION", "NONE")

found = installed_tvm()
if found is None or not found.has_relay:
    collect_ignore_glob = ["test_*.py"]
