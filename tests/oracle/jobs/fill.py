"""Takes memory until there is no more."""

import torch

held = []
while True:
    held.append(torch.empty(128 << 20, dtype=torch.uint8, device="cuda"))
