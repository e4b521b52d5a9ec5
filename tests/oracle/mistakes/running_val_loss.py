import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab=8000, dim=512, depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, 8, 4 * dim, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(dim, 5)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def batches(count):
    for _ in range(count):
        yield torch.randint(0, 8000, (32, 128)), torch.randint(0, 5, (32,))


device = torch.device("cuda")
model = Encoder().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
criterion = nn.CrossEntropyLoss()

for epoch in range(3):
    model.train()
    for tokens, targets in batches(10):
        optimizer.zero_grad()
        outputs = model(tokens.to(device))
        criterion(outputs, targets.to(device)).backward()
        optimizer.step()

    total_loss = 0.0
    model.eval()
    for tokens, targets in batches(40):
        outputs = model(tokens.to(device))
        total_loss += criterion(outputs, targets.to(device))
    print(f"epoch {epoch}: validation loss {total_loss / 40:.3f}")
