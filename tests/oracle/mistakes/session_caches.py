from collections import OrderedDict

import torch
from torch import nn


class KVModel(nn.Module):
    def __init__(self, dim=1024, depth=8):
        super().__init__()
        self.keys = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.values = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))

    def prefill(self, x):
        cache = []
        for key, value in zip(self.keys, self.values):
            cache.append((key(x), value(x)))
            x = x + torch.softmax(x @ cache[-1][0].transpose(1, 2), -1) @ cache[-1][1]
        return x, cache


class ChatServer:
    def __init__(self, model, max_sessions=8):
        self.model = model.cuda().half().eval()
        self.sessions = OrderedDict()
        self.max_sessions = max_sessions

    @torch.inference_mode()
    def handle(self, user, prompt):
        hidden, cache = self.model.prefill(prompt)
        self.sessions[user] = cache
        self.sessions.move_to_end(user)
        return hidden[:, -1]


server = ChatServer(KVModel())
for request in range(400):
    prompt = torch.randn(1, 512, 1024, device="cuda", dtype=torch.half)
    server.handle(f"user{request}", prompt)
print(len(server.sessions))
