"""How long a busy server asks its clients to wait."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

_RESET = re.compile(r";\s*t=(\d+)")


def wait_asked(headers: Mapping[str, str]) -> float | None:
    """Seconds by `Retry-After` (a number or a date, RFC 9110) or by `RateLimit` (`"api";r=0;t=55`, the IETF draft).

    `headers` finds its keys in any case, as those of HTTP clients do. None where the server asks for nothing.
    """
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    if value:
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            pass
    reset = _RESET.search(headers.get("RateLimit", ""))
    return float(reset[1]) if reset else None
