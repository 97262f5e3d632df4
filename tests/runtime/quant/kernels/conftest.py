"""Kernels run under Triton's interpreter where there is no accelerator; it is chosen before triton is imported."""

from __future__ import annotations

import os

import torch

if not torch.accelerator.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
