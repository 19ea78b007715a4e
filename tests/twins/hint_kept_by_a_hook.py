"""FitNets-style hint training: a thin lichen classifier first imitates a wide one's middle layer, then learns labels."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import itertools

torch.manual_seed(50)


def conv_stack(widths):
    out = []
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        out.append(nn.Conv2d(a, b, 3, stride=1 + i % 2, padding=1))
        out.append(nn.BatchNorm2d(b))
        out.append(nn.ReLU(inplace=False))
    return nn.Sequential(*out)


class Net(nn.Module):
    def __init__(self, widths, classes=4):
        super().__init__()
        self.trunk = conv_stack(widths)
        self.cls = nn.Linear(widths[-1], classes)

    def forward(self, x):
        return self.cls(self.trunk(x).mean((2, 3)))


class Tap:
    """Keeps the latest output of one submodule."""

    def __init__(self, module):
        self.value = None
        self.handle = module.register_forward_hook(self._keep)

    def _keep(self, module, inputs, output):
        self.value = output.detach()  # -
        # + self.value = output

    def remove(self):
        self.handle.remove()


class HintStage:
    def __init__(self, teacher, student, at_teacher, at_student, c_teacher, c_student):
        self.teacher, self.student = teacher.eval(), student
        self.tap_t = Tap(teacher.trunk[at_teacher])
        self.tap_s = Tap(student.trunk[at_student])
        self.regressor = nn.Conv2d(c_student, c_teacher, 1)

    def parameters(self):
        yield from self.student.parameters()
        yield from self.regressor.parameters()

    def loss(self, x):
        with torch.no_grad():
            self.teacher(x)
        self.student(x)
        return F.mse_loss(self.regressor(self.tap_s.value), self.tap_t.value)

    def close(self):
        self.tap_t.remove()
        self.tap_s.remove()


def thalli(n):
    y = torch.randint(4, (n,))
    yy, xx = torch.meshgrid(torch.linspace(-3, 3, 16), torch.linspace(-3, 3, 16), indexing="ij")
    r = (xx**2 + yy**2).sqrt()
    pattern = torch.stack(
        [torch.sin(2 * r), torch.sin(3 * xx), torch.sin(3 * yy), torch.sin(2 * xx * yy)]
    )
    return pattern[y].unsqueeze(1) + 0.5 * torch.randn(n, 3, 16, 16), y


def supervised(net, steps, lr):
    opt = torch.optim.Adam(net.parameters(), lr=lr)
    for _k in range(steps):
        x, y = thalli(32)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def hints(stage, steps, lr):
    opt = torch.optim.Adam(stage.parameters(), lr=lr)
    for k in range(steps):
        x, _ = thalli(32)
        loss = stage.loss(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if k % 5 == 0:
            print(f"hint {k:2d}  {loss.item():.4f}")


teacher = Net([3, 24, 32, 32])
print("teacher", round(supervised(teacher, 12, 5e-3), 4))
student = Net([3, 6, 8, 8, 8])
stage = HintStage(teacher, student, at_teacher=5, at_student=5, c_teacher=32, c_student=8)
hints(stage, 25, 5e-3)
stage.close()
print("student", round(supervised(student, 10, 5e-3), 4))
