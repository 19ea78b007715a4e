"""GS303: an optimizer that refuses the layout of a gradient."""

import pytest
from corpus import diagnosed_text

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8{sparse})
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.words(x).mean(1))


model = Tagger()
optimizer = torch.optim.{made}
for step in range(4):
    x, y = torch.randint(0, 50, (16, 4)), torch.randint(0, 3, (16,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SPARSE = ", sparse=True"


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "RMSprop"])
def test_a_sparse_gradient_that_is_refused_is_told_where_its_layer_is_made(kind, tmp_path):
    made = f"{kind}(model.parameters(), lr=0.01)"
    (found,) = diagnosed_text(PROGRAM.format(sparse=SPARSE, made=made), tmp_path).findings

    assert (found.rule, found.location.line) == ("GS303", 10)
    assert found.evidence["names"] == ["model.words.weight"]
    assert found.numbers == ("1 of 3 gradients sparse",)
    assert "-        self.words = nn.Embedding(50, 8, sparse=True)" in found.fixes[0].patch
    assert "+        self.words = nn.Embedding(50, 8, sparse=False)" in found.fixes[0].patch


def test_a_dense_gradient_that_is_refused_is_made_sparse(tmp_path):
    made = "SparseAdam(list(model.words.parameters()), lr=0.01)"
    (found,) = diagnosed_text(PROGRAM.format(sparse="", made=made), tmp_path).findings

    assert (found.rule, found.location.line) == ("GS303", 10)
    assert "+        self.words = nn.Embedding(50, 8, sparse=True)" in found.fixes[0].patch


def test_a_layer_whose_gradients_are_never_sparse_goes_to_another_optimizer(tmp_path):
    made = "SparseAdam(list(model.parameters()), lr=0.01)"
    (found,) = diagnosed_text(PROGRAM.format(sparse=SPARSE, made=made), tmp_path).findings

    assert (found.rule, found.location.line) == ("GS303", 18)
    assert found.evidence["names"] == ["model.head.weight", "model.head.bias"]
    assert [one.patch for one in found.fixes] == [None]


@pytest.mark.parametrize("kind", ["SGD", "Adagrad"])
def test_optimizers_that_take_both_layouts_are_fine(kind, tmp_path):
    made = f"{kind}(model.parameters(), lr=0.01)"

    assert diagnosed_text(PROGRAM.format(sparse=SPARSE, made=made), tmp_path).findings == ()
