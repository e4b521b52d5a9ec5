import torch
import torch.nn.functional as F
from torch import nn


class ConvNet(nn.Module):
    def __init__(self, width, depth, classes=100):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


class Distiller:
    def __init__(self, teacher, student, temperature=4.0):
        self.teacher = teacher.eval()
        self.student = student
        self.temperature = temperature
        self.optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    def training_step(self, images):
        teacher_logits = self.teacher(images)
        student_logits = self.student(images)
        t = self.temperature
        loss = F.kl_div(F.log_softmax(student_logits / t, 1), F.log_softmax(teacher_logits.detach() / t, 1),
                        log_target=True, reduction="batchmean") * t * t
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


distiller = Distiller(ConvNet(160, 10).cuda(), ConvNet(64, 4).cuda())
for step in range(10):
    distiller.training_step(torch.randn(64, 3, 32, 32, device="cuda"))
print("distilled")
