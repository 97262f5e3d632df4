"""Devices of the whitelist: what is known of each, which are of one family, and which one is here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from day0.coverage.constraint import Strict
from day0.errors import InputError
from day0.inventory import Fact


class Device(Strict, frozen=True, kw_only=True):
    """A column of the whitelist.

    `marker` is a path (`*` stands for any name) that exists where a machine has the device, and `shows` a name that
    a file there must hold; a device without a marker is taken for present everywhere. Columns given for a `family`
    hold for each of its devices, under constraints on the devices' `facts`.
    """

    marker: str | None = None
    shows: str | None = None
    family: str | None = None
    facts: dict[str, Fact] = msgspec.field(default_factory=dict)

    def is_here(self) -> bool:
        """Whether the marker is found on this machine; False without one."""
        if self.marker is None:
            return False
        pattern = Path(self.marker)
        found = pattern.parent.parent.glob(str(Path(pattern.parent.name, pattern.name)))
        return any(path.exists() and (self.shows is None or _holds(path, self.shows)) for path in found)


def _holds(path: Path, name: str) -> bool:
    """Whether the file has the name as a whole: H20 is not found in H200."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return _names(text, name)


def _names(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def check_devices(devices: Mapping[str, Device], where: str) -> None:
    """Refuse a family that is a device as well, or whose devices do not say the same facts."""
    first: dict[str, tuple[str, Device]] = {}
    for name, device in devices.items():
        if device.family is None:
            continue
        if device.family in devices:
            raise InputError(f"{device.family} is a device and the family of {name}", where=where)
        elder, known = first.setdefault(device.family, (name, device))
        if device.facts.keys() != known.facts.keys():
            raise InputError(
                f"{name} does not say the same facts as {elder}, both of family {device.family}",
                where=where,
                hint=f"facts of the family: {', '.join(known.facts) or 'none'}",
            )


def called(devices: Mapping[str, Device], name: str) -> str | None:
    """The device whose `shows` is in the name that an accelerator gives itself, as a whole; None without one."""
    shown = (key for key, device in devices.items() if device.shows is not None and _names(name, device.shows))
    return next(shown, None)


def present(devices: Mapping[str, Device]) -> str:
    """The first device whose marker is found here, else the first that needs none."""
    marked = [name for name, device in devices.items() if device.is_here()]
    plain = [name for name, device in devices.items() if device.marker is None]
    if not marked + plain:
        raise InputError("no device is listed that could be present", where="operator whitelist: devices")
    return (marked + plain)[0]
