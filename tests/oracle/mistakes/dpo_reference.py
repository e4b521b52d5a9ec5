import copy

import torch
import torch.nn.functional as F
from torch import nn


class Policy(nn.Module):
    def __init__(self, vocab=12000, dim=384, depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, 6, 4 * dim, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class DPOTrainer:
    def __init__(self, policy, beta=0.1):
        self.policy = policy.cuda()
        self.reference = copy.deepcopy(self.policy)
        self.beta = beta
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-6)

    def log_probs(self, model, tokens):
        logits = model(tokens)[:, :-1].log_softmax(-1)
        return logits.gather(2, tokens[:, 1:, None]).squeeze(2).sum(1)

    def training_step(self, chosen, rejected):
        ref_chosen = self.log_probs(self.reference, chosen)
        ref_rejected = self.log_probs(self.reference, rejected)
        margin = self.log_probs(self.policy, chosen) - self.log_probs(self.policy, rejected)
        loss = -F.logsigmoid(self.beta * (margin - (ref_chosen - ref_rejected).detach())).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


trainer = DPOTrainer(Policy())
for step in range(4):
    pair = torch.randint(0, 12000, (2, 16, 192), device="cuda")
    trainer.training_step(pair[0], pair[1])
print("done")
