import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn


class GPT(nn.Module):
    def __init__(self, vocab=20000, dim=768, depth=6):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(dim, 12, 4 * dim, batch_first=True) for _ in range(depth))
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(x)


def new_training():
    model = GPT().cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)


def train_step(model, optimizer, tokens):
    loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def first_run(path):
    model, optimizer = new_training()
    train_step(model, optimizer, torch.randint(0, 20000, (1, 128), device="cuda"))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, path)


def finetune(path):
    model, optimizer = new_training()
    checkpoint = torch.load(path, map_location="cuda")
    model.load_state_dict(checkpoint["model"])
    for step in range(5):
        train_step(model, optimizer, torch.randint(0, 20000, (4, 256), device="cuda"))
    print("step", step)


path = os.path.join(tempfile.mkdtemp(), "ckpt.pt")
first_run(path)
finetune(path)
