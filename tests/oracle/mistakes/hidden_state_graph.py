import torch
from torch import nn


class CharModel(nn.Module):
    def __init__(self, vocab=256, dim=1024):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.cell = nn.GRUCell(dim, dim)
        self.decoder = nn.Linear(dim, vocab)

    def forward(self, chunk, hidden):
        outputs = []
        for token in chunk.unbind(1):
            hidden = self.cell(self.embed(token), hidden)
            outputs.append(self.decoder(hidden))
        return torch.stack(outputs, 1), hidden


model = CharModel().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
text = torch.randint(0, 256, (64, 32 * 60 + 1), device="cuda")

hidden = torch.zeros(64, 1024, device="cuda")
for start in range(0, text.size(1) - 1, 32):
    chunk, target = text[:, start:start + 32], text[:, start + 1:start + 33]
    output, hidden = model(chunk, hidden)
    loss = criterion(output.flatten(0, 1), target.flatten())
    loss.backward(retain_graph=True)
optimizer.step()
optimizer.zero_grad()
print("perplexity", loss.exp().item())
