"""The local hub of `tests/hub_server.py`, for tests of what reads from one."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hub_server import fake_hub

__all__ = ["fake_hub"]
