"""Content encoder that should not carry the speaker: a classifier tries to read the speaker from it."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)


class Content(nn.Module):
    def __init__(self, d_in=20, d=12):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d_in, 32), nn.ELU(), nn.Linear(32, d))
        self.dec = nn.Sequential(nn.Linear(d + 4, 32), nn.ELU(), nn.Linear(32, d_in))
        self.style = nn.Embedding(5, 4)

    def forward(self, frames, who):
        z = self.enc(frames)
        return z, self.dec(torch.cat((z, self.style(who)), dim=-1))


class SpeakerReader(nn.Module):
    def __init__(self, d=12, speakers=5):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, 24), nn.ReLU(), nn.Linear(24, speakers))

    def forward(self, z):
        return self.net(z)


class Session:
    def __init__(self, weight=0.2, start_confusion=15):
        self.content, self.reader = Content(), SpeakerReader()
        self.opt_c = torch.optim.Adam(self.content.parameters(), lr=2e-3)
        self.opt_r = torch.optim.Adam(self.reader.parameters(), lr=2e-3)
        self.weight, self.start_confusion = weight, start_confusion
        self.voices = torch.randn(5, 20)

    def batch(self, n=48):
        who = torch.randint(0, 5, (n,))
        return 0.5 * torch.randn(n, 20).cumsum(1) + self.voices[who], who

    def step(self, it):
        frames, who = self.batch()
        z, recon = self.content(frames, who)
        loss_r = F.cross_entropy(self.reader(z.detach()), who)
        loss_c = F.mse_loss(recon, frames)
        # + self.opt_r.zero_grad()
        # + loss_r.backward()
        # + self.opt_r.step()
        if it >= self.start_confusion:
            log_p = F.log_softmax(self.reader(z), dim=1)
            loss_c = loss_c - self.weight * log_p.mean()
        self.opt_r.zero_grad()  # -
        loss_r.backward()  # -
        self.opt_r.step()  # -
        self.opt_c.zero_grad()
        loss_c.backward()
        self.opt_c.step()
        return loss_c.item(), loss_r.item()


session = Session()
for it in range(60):
    c, r = session.step(it)
    if it % 10 == 0 or it == 59:
        print(f"it {it} content {c:.3f} reader {r:.3f}")
