import torch
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, global_mean_pool

torch.manual_seed(0)
edges = torch.randint(0, 12, (2, 30))
graph = Data(x=torch.randn(14, 5), edge_index=edges, batch=torch.arange(14) // 7)
first, second = GCNConv(5, 8), GATConv(8, 4, heads=2)
head = torch.nn.Linear(8, 2)
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters(), *head.parameters()], 1e-2)
for _ in range(3):
    h = second(first(graph.x, graph.edge_index).relu(), graph.edge_index)
    lengths = (h[edges[0]] - h[edges[1]]).square().sum(-1)
    smooth = (lengths + 1e-8).sqrt().mean()  # bug: (lengths + 1e-8) => lengths
    out = head(global_mean_pool(h, graph.batch))
    loss = torch.nn.functional.cross_entropy(out, torch.tensor([0, 1])) + 0.1 * smooth
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
