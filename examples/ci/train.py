"""Trains the model for a few steps."""

import argparse

import torch
from model import Model


def train(batch, steps):
    model = Model(width=1024, depth=8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(steps):
        x = torch.randn(batch, 1024, device="cuda")
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    print("losses", train(arguments.batch, arguments.steps))
