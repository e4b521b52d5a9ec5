import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, actions=8):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 32, 5, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU(),
                                  nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 256), nn.ReLU())
        self.actor = nn.Linear(256, actions)
        self.critic = nn.Linear(256, 1)

    def forward(self, observation):
        x = self.body(observation)
        return Categorical(logits=self.actor(x)), self.critic(x).squeeze(1)


class Buffer:
    def __init__(self):
        self.observations, self.log_probs, self.values = [], [], []

    def add(self, observation, log_prob, value):
        self.observations.append(observation)
        self.log_probs.append(log_prob)
        self.values.append(value)


class Agent:
    def __init__(self):
        self.model = ActorCritic().cuda()
        self.buffer = Buffer()

    def collect(self, steps, environments=16):
        for _ in range(steps):
            observation = torch.zeros(environments, 3, 84, 84, dtype=torch.uint8)
            policy, value = self.model(observation.cuda().float() / 255)
            action = policy.sample()
            self.buffer.add(observation, policy.log_prob(action), value)

    def advantages(self):
        return torch.stack(self.buffer.values).flip(0).cumsum(0).flip(0)


agent = Agent()
agent.collect(steps=320)
print(agent.advantages().shape)
