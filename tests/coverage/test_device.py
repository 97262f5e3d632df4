"""Which device is here, and which devices are of one family."""

from __future__ import annotations

from pathlib import Path

import pytest

from day0.coverage.device import Device, check_devices, present
from day0.errors import InputError


def driver(folder: Path, *names: str) -> str:
    """A folder as a driver lays it out, a file per card; returns the marker."""
    for number, name in enumerate(names):
        card = folder / "gpus" / f"0000:0{number}"
        card.mkdir(parents=True)
        (card / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 41\n")
    return str(folder / "gpus" / "*" / "information")


def test_a_name_is_found_as_a_whole(tmp_path: Path) -> None:
    marker = driver(tmp_path, "ACME H200")
    devices = {name: Device(marker=marker, shows=f"ACME {name.upper()}") for name in ("h20", "h200")}
    assert [name for name, device in devices.items() if device.is_here()] == ["h200"]
    assert present({"cpu": Device(), **devices}) == "h200"


def test_any_card_of_a_machine_counts(tmp_path: Path) -> None:
    assert Device(marker=driver(tmp_path, "ACME A1", "ACME B2-SXM"), shows="ACME B2").is_here()


def test_without_a_driver_nothing_is_here(tmp_path: Path) -> None:
    marked = Device(marker=str(tmp_path / "gpus" / "*" / "information"), shows="ACME H200")
    assert not marked.is_here()
    assert present({"h200": marked, "cpu": Device()}) == "cpu"
    with pytest.raises(InputError, match="no device"):
        present({"h200": marked})


@pytest.mark.parametrize(
    ("devices", "says"),
    (
        ({"gpu": Device(), "g1": Device(family="gpu")}, "gpu is a device and the family of g1"),
        ({"g1": Device(family="gpu", facts={"level": 1.0}), "g2": Device(family="gpu")}, "g2 does not say the same"),
    ),
)
def test_families_that_mean_nothing(devices: dict[str, Device], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        check_devices(devices, "list.yaml: devices")
    assert caught.value.where == "list.yaml: devices"
