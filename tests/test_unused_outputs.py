"""Parameters whose results nobody uses, in the user's own modules and in a package's."""

import torch
from test_norms_growth import train
from torch import nn

from gradscope.facts import Severity
from gradscope.record import names
from gradscope.record.sites import LIBRARY


class Encoder(nn.Module):
    """Offers a pooled output, as BERT does."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.pooler = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.hidden(x)
        return h, self.pooler(h).tanh()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = Encoder(), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x)[0])


def test_what_autograd_keeps_of_a_result_is_no_detach():
    (finding,) = train(Model(), torch.randn(8, 6))

    assert finding.evidence["parameters"] == [
        "model.encoder.pooler.weight",
        "model.encoder.pooler.bias",
    ]
    assert finding.evidence["reason"] == "unreached"
    assert finding.severity is Severity.ERROR


class Weighted(nn.Module):
    """Makes tensors of numbers of its own after the branch that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.unused = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.hidden(x)
        self.last = self.unused(h).tanh()  # the place
        return h * torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]] * 8)


def test_a_tensor_that_is_made_meanwhile_is_not_to_blame():
    (finding,) = train(Weighted(), torch.randn(8, 6))

    assert finding.evidence["reason"] == "unreached"
    assert finding.location.line == Weighted.forward.__code__.co_firstlineno + 2


class Rewrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.hidden(x).t().tolist()
        scale = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        return self.head(torch.tensor(rows).t() * scale)


def test_a_tensor_of_the_numbers_that_were_read_out_is_the_place():
    (finding,) = train(Rewrapped(), torch.randn(8, 6))

    assert finding.evidence["reason"] == "number"
    assert finding.location.line == Rewrapped.forward.__code__.co_firstlineno + 3
    assert finding.evidence["parameters"] == ["model.hidden.weight", "model.hidden.bias"]


def test_an_output_that_a_package_offers_may_be_left(monkeypatch):
    monkeypatch.setattr(names, "kind_of", lambda code: LIBRARY)

    (finding,) = train(Model(), torch.randn(8, 6))

    assert finding.severity is Severity.NOTE
