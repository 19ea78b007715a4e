"""How large values and gradients are, by leaf, by step, by layer and in time."""
