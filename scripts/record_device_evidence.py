"""Puts what `day0 ops verify --output FILE` measured on a machine with a device into operator_whitelist.yaml.

python scripts/record_device_evidence.py FILE
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from record_operator_evidence import WHITELIST

from day0.coverage.recording import merged, whitelist_text
from day0.source.data_files import load_yaml


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    found = json.loads(parser.parse_args().file.read_text("utf-8"))
    document = load_yaml(WHITELIST)
    document["devices"] = {**found["devices"], **document["devices"]}
    WHITELIST.write_text(whitelist_text(merged(document, found["entries"], found["runs"])), "utf-8")


if __name__ == "__main__":
    main()
