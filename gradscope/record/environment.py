"""What a program runs on."""

from __future__ import annotations

import platform

import torch

from gradscope.facts import Environment


def environment(device: str = "cpu") -> Environment:
    return Environment(torch.__version__.split("+")[0], platform.python_version(), device)
