"""The guard that every test runs under, seen to fail."""

import torch
from conftest import leftovers
from torch.nn.modules import module
from torch.utils._python_dispatch import TorchDispatchMode


def test_a_mode_a_hook_and_a_switch_are_seen():
    class Forgotten(TorchDispatchMode):
        pass

    assert leftovers() == []

    hook = module.register_module_forward_hook(lambda *_: None)
    with Forgotten(), torch.autograd.set_detect_anomaly(True, check_nan=False), torch.no_grad():
        found = leftovers()
    hook.remove()

    assert found == ["_global_forward_hooks", "Forgotten", "anomaly mode", "no_grad"]
    assert leftovers() == []
