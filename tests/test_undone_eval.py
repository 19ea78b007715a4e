"""Frozen parts that are set to eval mode, and set back by `train()` of the whole model (GS410)."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = {encoder}
        self.head = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
{methods}
    def forward(self, x):
        return self.head(self.encoder(x))


def freeze(part, frozen=True):
    for p in part.parameters():
        p.requires_grad = not frozen


def fit(model, epochs=3):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for epoch in range(epochs):
        {train}
        for x in torch.randn(4, 16, 4):
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        {evaluate}


def evaluate(model):
    with torch.no_grad():
        return model(torch.randn(16, 4)).mean().item()


model = Net()
{start}
fit(model)
"""
NORMED = "nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())"
DROPPED = "nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.ReLU())"
TWICE = "nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.BatchNorm1d(8))"
FREEZE = "freeze(model.encoder); model.encoder.eval()"
THRICE = f"nn.Sequential({', '.join(['nn.Linear(8, 8), nn.BatchNorm1d(8)'] * 3)})"
NORMS = (
    "for m in model.encoder.modules():\n    if isinstance(m, nn.BatchNorm1d):\n        "
    "freeze(m); m.eval()"
)
AGAIN = "        model.train()\n        model.encoder.eval()\n"
UNLESS = (
    "        {0}.train()\n"
    "        if not any(p.requires_grad for p in {0}.encoder.parameters()):\n"
    "            {0}.encoder.eval()\n"
)
EVALUATE = "model.eval(); evaluate(model)"
MISTAKES = {  # what is changed, and what the patch makes of it
    "at each epoch": ({}, AGAIN),
    "in one line": ({"train": "if True: model.train()"}, "model.train(); model.encoder.eval()\n"),
    "given a name": ({"train": "model = model.train()"}, "model.encoder.eval()\n"),
    "eval before it is frozen": ({"start": "model.encoder.eval(); freeze(model.encoder)"}, AGAIN),
    "as train(False)": ({"start": "freeze(model.encoder); model.encoder.train(False)"}, AGAIN),
    "in a chain": ({"start": "model.encoder.requires_grad_(False).eval()"}, AGAIN),
    "Dropout alone": ({"encoder": DROPPED}, AGAIN),
    "evaluated in between": ({"evaluate": EVALUATE}, AGAIN),
    "evaluated first": ({"start": f"{FREEZE}; {EVALUATE}"}, AGAIN),
    "without gradients": (
        {
            "methods": "",
            "start": f"{FREEZE}; model.encoder.forward = torch.no_grad()(model.encoder.forward)",
        },
        AGAIN,
    ),
    "after another phase": ({"start": f"fit(model); {FREEZE}"}, UNLESS.format("model")),
    "before another phase": (
        {"start": f"{FREEZE}; fit(model); freeze(model.encoder, False)"},
        UNLESS.format("model"),
    ),
    "in train() of the model": (
        {
            "methods": "\n    def train(self, mode=True):\n        super().train(mode)\n"
            "        return self\n"
        },
        "        super().train(mode)\n        self.encoder.eval()\n",
    ),
    "BatchNorm alone": (
        {"encoder": TWICE, "start": NORMS},
        "        model.encoder[1].eval()\n        model.encoder[3].eval()\n",
    ),
}
RIGHT = {
    "eval again": {"train": "model.train(); model.encoder.eval()"},
    "eval by its class": {
        "methods": "\n    def train(self, mode=True):\n        super().train(mode)"
        "\n        self.encoder.eval()\n        return self\n"
    },
    "a part that keeps its mode": {
        "encoder": "Kept(nn.Linear(4, 8), nn.BatchNorm1d(8))",
        "methods": "",
    },
    "train on purpose": {"train": "model.train(); model.encoder.train()"},
    "train on purpose, later": {"train": "model.encoder.train(); model.train()"},
    "never back": {"train": "pass"},
    "frozen alone": {"start": "freeze(model.encoder)"},
    "eval alone": {"start": "model.encoder.eval()"},
    "trained again": {"start": f"{FREEZE}; freeze(model.encoder, False)"},
    "the whole model": {"start": "freeze(model.encoder)", "evaluate": EVALUATE},
    "part by part": {
        "start": "freeze(model.encoder)",
        "evaluate": "model.encoder.eval(); model.head.eval(); evaluate(model)",
    },
    "part by part, first": {
        "start": "freeze(model.encoder); model.encoder.eval(); model.head.eval(); evaluate(model)",
    },
    "evaluated before it is frozen": {
        "start": "model.encoder.eval(); evaluate(model); freeze(model.encoder)"
    },
    "frozen and trained in turn": {
        "start": "pass",
        "train": "freeze(model.encoder, False); model.train()",
        "evaluate": FREEZE,
    },
    "frozen in part": {
        "start": "freeze(model.encoder[1]); model.encoder.eval()",
    },
    "nothing with two modes": {"encoder": "nn.Linear(4, 8)"},
    "no statistics": {
        "encoder": "nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, track_running_stats=False))"
    },
    "drops nothing": {"encoder": DROPPED.replace("0.2", "0.0")},
    "BatchNorm, again and again": {
        "start": "pass",
        "train": "model.train()\n        for m in "
        "model.encoder.modules():\n            if isinstance(m, "
        "nn.BatchNorm1d):\n                freeze(m); m.eval()",
    },
}
KEPT = """

class Kept(nn.Sequential):
    def train(self, mode=True):
        return super().train(False)
"""


def written(encoder=NORMED, methods="", train="model.train()", evaluate="pass", start=FREEZE):
    changes = {
        "encoder": encoder,
        "methods": methods,
        "train": train,
        "evaluate": evaluate,
        "start": start,
    }
    text = (
        PROGRAM.replace("\n\nclass Net", f"{KEPT}\n\nclass Net") if "Kept" in encoder else PROGRAM
    )
    for key, value in changes.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def about_modes(changes, folder, **options):
    report = diagnosed_text(written(**changes), folder, **options)
    return [one for one in report.findings if one.rule == "GS410"]


@pytest.mark.long
@pytest.mark.parametrize(("changes", "repaired"), MISTAKES.values(), ids=MISTAKES)
def test_it_is_told_and_repaired(here, changes, repaired):
    (found,) = about_modes(changes, here, verify=True)

    assert (found.severity, found.fixes[0].verified) == ("warning", True)
    assert repaired in patched(found.fixes[0].patch, here)


@pytest.mark.parametrize("changes", RIGHT.values(), ids=RIGHT)
def test_what_is_meant_is_not_told(tmp_path, changes):
    assert not about_modes(changes, tmp_path)


def test_both_places_are_told(tmp_path):
    text = written()
    (found,) = about_modes({}, tmp_path)
    places = found.location, found.related[0].location
    lines = [text.splitlines()[one.line - 1][one.col : one.end_col] for one in places]

    assert lines == ["model.train()", "model.encoder.eval()"]


@pytest.mark.long
def test_the_path_begins_at_what_is_set_to_train_mode(here):
    trainer = "    self = type('Trainer', (), {'model': model})\n    optimizer ="
    program = written(train="self.model.train()").replace("    optimizer =", trainer, 1)
    report = diagnosed_text(program, here, verify=True)
    (found,) = [one for one in report.findings if one.rule == "GS410"]

    assert found.fixes[0].verified
    assert "        self.model.encoder.eval()" in patched(found.fixes[0].patch, here)


@pytest.mark.long
def test_many_layers_are_set_by_a_loop(here):
    changes = {"encoder": f"nn.Sequential(nn.Linear(4, 8), {THRICE})", "start": NORMS}
    (found,) = about_modes(changes, here, verify=True)
    text = patched(found.fixes[0].patch, here)

    assert found.fixes[0].verified
    assert "for layer in model.modules():" in text
    assert "if isinstance(layer, nn.BatchNorm1d) and not any(p.requires_grad" in text


@pytest.mark.long
def test_all_parts_and_places_are_set_by_one_patch(here):
    program = written(
        start="freeze(model.encoder); model.encoder.eval(); freeze(model.stem); model.stem.eval()",
        evaluate="model.eval(); evaluate(model); model.train()",
    )
    program = program.replace("self.head = ", "self.stem = nn.BatchNorm1d(4)\n        self.head = ")
    program = program.replace("self.encoder(x)", "self.encoder(self.stem(x))")
    report = diagnosed_text(program, here, verify=True)
    (found,) = [one for one in report.findings if one.rule == "GS410"]
    text = patched(found.fixes[0].patch, here)

    assert found.fixes[0].verified
    assert text.count("model.encoder.eval()") == text.count("model.stem.eval()") == 3
