import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn


class QNetwork(nn.Sequential):
    def __init__(self, actions=6):
        super().__init__(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(64 * 9 * 9, 512), nn.ReLU(), nn.Linear(512, actions))


class Agent:
    def __init__(self, capacity=100_000):
        self.q = QNetwork().cuda()
        self.memory = deque(maxlen=capacity)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=1e-4)

    def remember(self, state, action, reward, next_state):
        self.memory.append((state, action, reward, next_state))

    def learn(self, batch_size=32):
        states, actions, rewards, next_states = zip(*random.sample(self.memory, batch_size))
        with torch.no_grad():
            target = torch.tensor(rewards).cuda() + 0.99 * self.q(torch.stack(next_states).cuda()).max(1).values
        chosen = self.q(torch.stack(states).cuda()).gather(1, torch.tensor(actions).cuda()[:, None])
        loss = F.smooth_l1_loss(chosen[:, 0], target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def play(agent, frames):
    state = torch.zeros(4, 84, 84, device="cuda")
    for frame in range(frames):
        next_state = torch.cat((state[1:], torch.rand(1, 84, 84, device="cuda")))
        agent.remember(state, random.randrange(6), 0.0, next_state)
        state = next_state
        if frame >= 1000 and frame % 200 == 0:
            agent.learn()


play(Agent(), frames=9_000)
print("trained")
