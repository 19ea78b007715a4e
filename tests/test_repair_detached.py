"""A tensor that is detached for one loss and read by another one as well."""

import json
from pathlib import Path

import pytest

SCRIPT = """import torch
from torch import nn

torch.manual_seed(0)
G, D = nn.Linear(4, 2), nn.Linear(2, 1)
opt_g = torch.optim.SGD(G.parameters(), lr=0.1)
opt_d = torch.optim.SGD(D.parameters(), lr=0.1)
for _ in range(4):
    fake = G(torch.randn(8, 4)){}
    d_loss = D(fake{}).mean() - D(torch.ones(8, 2)).mean()
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    g_loss = -D(fake).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
"""


def test_only_the_loss_that_must_not_train_it_gets_it_detached(gradscope, tmp_path):
    (tmp_path / "gan.py").write_text(SCRIPT.format(".detach()", ""))
    done = gradscope("fix", "gan.py", "--write", "--unsafe")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "gan.py").read_text() == SCRIPT.format("", ".detach()")


def test_what_the_plain_repair_breaks_is_repaired_with_it(gradscope, tmp_path):
    """Without the `detach` alone autograd would run through the generator a second time."""
    (tmp_path / "gan.py").write_text(SCRIPT.format(".detach()", ""))
    done = gradscope("trace", "gan.py", "--format", "json")

    (found,) = json.loads(done.stdout)["findings"]
    assert [fix["verified"] for fix in found["fixes"]] == [True]
    assert "drop the `.detach()`" in found["fixes"][0]["title"]
    assert "D(fake.detach())" in found["fixes"][0]["patch"]


TWO = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 8), nn.Linear(8, 4)]
        self.heads = {"a": nn.Linear(4, 1)}
        self.out = nn.Linear(1, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.out(self.heads["a"](x))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(4):
    optimizer.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
"""


def test_two_findings_of_one_kind_in_a_function_are_repaired_by_one_patch(gradscope, tmp_path):
    (tmp_path / "net.py").write_text(TWO)
    done = gradscope("trace", "net.py", "--format", "json")

    first, second = [one["fixes"][0]["patch"] for one in json.loads(done.stdout)["findings"]]
    assert first == second
    assert "ModuleList" in first and "ModuleDict" in first


def test_what_numpy_computes_is_computed_in_torch(gradscope, tmp_path):
    twin = Path(__file__).parent / "twins" / "softplus_in_numpy.py"
    done = gradscope("trace", str(twin), "--format", "json")

    (found,) = json.loads(done.stdout)["findings"]
    fix = found["fixes"][0]
    assert fix["verified"]
    assert "torch.log1p(torch.exp(arr)) * torch.pi" in fix["patch"]
    assert "soft.to(torch.float32)" in fix["patch"]


LATE = """import torch
from torch import nn

torch.manual_seed(0)
body, late, head = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 1)
model = nn.ModuleList([body, late, head])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(12):
    x = torch.randn(8, 4)
    hidden = body(x){}
    if step > 6:
        hidden = hidden + late(x)
    loss = ({}(hidden) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.long
def test_a_layer_that_the_program_uses_later_is_not_called_dead(gradscope, tmp_path):
    """Neither in the trial of a patch, which ends earlier, nor in a run that a NaN has ended."""
    told = []
    for detach, root in ((".detach()", "head"), ("", "(1 + 0 / torch.zeros(())) * head")):
        (tmp_path / "late.py").write_text(LATE.format(detach, root))
        done = gradscope("trace", "late.py", "--format", "json")
        told += json.loads(done.stdout)["findings"]

    detached, divided = told
    assert detached["fixes"][0]["verified"]
    assert "remains" not in json.dumps(detached["fixes"][0])
    assert (detached["rule"], divided["rule"]) == ("GS403", "GS201")


SPARE = """import torch
torch.manual_seed(0)
net = torch.nn.ModuleDict({name: torch.nn.Linear(4, 4) for name in ("mean", "std", "spare")})
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.randn(8, 4)
spare = net["spare"](x)
std = torch.nn.functional.relu(net["std"](x))
loss = (torch.log(std + 1e-6) + (x - net["mean"](x)).square() / std.square()).mean()
loss.backward()
optimizer.step()
"""


def test_a_layer_that_was_dead_before_refutes_no_patch(gradscope, tmp_path):
    """The run that failed ended before any gradient was measured."""
    (tmp_path / "net.py").write_text(SPARE)
    done = gradscope("trace", "net.py", "--format", "json")

    (found,) = json.loads(done.stdout)["findings"]
    assert found["rule"] == "GS201"
    assert found["fixes"][0]["verified"]


FLAT = """import torch
from torch import nn
torch.manual_seed(0)
first, second = nn.Linear(4, 3), nn.Linear(3, 1)
with torch.no_grad():
    first.bias[:] = -50
opt = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for step in range(3):
    h = torch.sigmoid(second(torch.relu(first(torch.randn(8, 4)))))
    h += 1
    loss = h.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_what_was_flat_before_refutes_no_patch_of_the_graph(gradscope, tmp_path):
    (tmp_path / "net.py").write_text(FLAT)
    done = gradscope("trace", "net.py", "--format", "json")

    (found,) = json.loads(done.stdout)["findings"]
    assert found["rule"] == "GS303"
    assert found["fixes"][0]["verified"]
    assert "+    h = h + 1" in found["fixes"][0]["patch"]


def test_a_view_of_numpy_is_cut_where_its_memory_was_detached(gradscope, tmp_path):
    (tmp_path / "flat.py").write_text("""import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Linear(4, 4), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
for _ in range(4):
    h = body(torch.randn(8, 4))
    flat = h.detach().numpy().ravel()
    loss = head(torch.from_numpy(flat).view(-1, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")
    done = gradscope("trace", "flat.py", "--format", "json")

    (found,) = json.loads(done.stdout)["findings"]
    assert (found["evidence"]["reason"], found["location"]["line"]) == ("detach", 9)
    assert found["fixes"][0]["verified"] is True
    assert "+    flat = h.ravel()" in found["fixes"][0]["patch"]


PLACES = """import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(5, 4) * 0.02).unsqueeze(0)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return self.out(x + self.places)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    net(torch.randn(8, 5, 4)).square().mean().backward()
    optimizer.step()
"""


def test_a_method_of_a_parameter_is_called_on_all_that_it_is_made_of(gradscope, tmp_path):
    (tmp_path / "places.py").write_text(PLACES)
    done = gradscope("trace", "places.py", "--format", "json")

    fix = json.loads(done.stdout)["findings"][0]["fixes"][0]
    assert fix["verified"] is True
    assert "self.places = nn.Parameter((torch.randn(5, 4) * 0.02).unsqueeze(0))" in fix["patch"]
