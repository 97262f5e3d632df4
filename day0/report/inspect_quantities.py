"""Counts and sizes as a person reads them."""

from __future__ import annotations


def count_text(count: int) -> str:
    """A parameter count with three figures: 2.78T, 596M, 12.3K."""
    for factor, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= 0.9995 * factor:  # 999.6 million is 1B, not 1000M
            return f"{count / factor:.3g}{letter}" if count < 999.5 * factor else f"{count / factor:.0f}{letter}"
    return str(count)


def bytes_text(size: int) -> str:
    """A size in binary units with up to four figures: 1.42 TiB, 27 KiB."""
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
