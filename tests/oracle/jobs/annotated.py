"""Annotates tensors, frees one of them, and asks for too much."""

import torch

annotate = torch.cuda.memory._annotate_tensor
layer = torch.nn.Linear(2048, 2048).cuda()
annotate(layer.weight, "<b>weights</b>")
batches = [torch.zeros(512, 2048, device="cuda") for _ in range(3)]
for batch in batches:
    annotate(batch, "a batch")
annotate(batches[0], "the first batch")
gone = torch.zeros(512, 2048, device="cuda")
annotate(gone, "gone")
del gone
torch.zeros(1 << 40, device="cuda")
