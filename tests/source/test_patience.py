"""What busy servers ask for, in each of the spellings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from day0.source.patience import wait_asked


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "12"}, 12.0),
        ({"Retry-After": " 0 "}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"RateLimit": '"api";r=0;t=55'}, 55.0),
        ({"Retry-After": "3", "RateLimit": '"api";r=0;t=55'}, 3.0),
    ],
)
def test_seconds_asked_for(headers: dict[str, str], seconds: float | None) -> None:
    assert wait_asked(headers) == seconds


def test_a_date_to_come() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    waited = wait_asked({"Retry-After": later})
    assert waited is not None and 28 < waited <= 30
