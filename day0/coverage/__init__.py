"""The operator whitelist and what it says of each need: verified, unverified, constraint or gap."""

from __future__ import annotations

from day0.coverage.constraint import Bound
from day0.coverage.device import Device
from day0.coverage.verdict import STATUSES, Coverage, Status, Verdict, judge
from day0.coverage.whitelist import Column, Evidence, Whitelist, load_whitelist, read_whitelist

__all__ = [
    "STATUSES",
    "Bound",
    "Column",
    "Coverage",
    "Device",
    "Evidence",
    "Status",
    "Verdict",
    "Whitelist",
    "judge",
    "load_whitelist",
    "read_whitelist",
]
