"""Three training steps of a small transformer; what `--batch` says is asked of `oomscope fit`."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, required=True)
batch = parser.parse_args().batch

layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
model = nn.Sequential(nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 4), nn.Linear(256, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    tokens = torch.randint(1000, (batch, 129), device="cuda")
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
