import warnings

import torch

warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
torch.manual_seed(0)
indices = torch.tensor([[0, 1, 2, 2], [1, 0, 0, 2]])
values = torch.randn(4, requires_grad=True)
adjacency = torch.sparse_coo_tensor(indices, values, (3, 3), check_invariants=True)
dense = torch.randn(3, 2, requires_grad=True)
loss = torch.sparse.mm(adjacency, dense).square().sum()
loss.backward()
print(loss.item(), values.grad.tolist(), dense.grad.tolist())

rows = adjacency.detach().to_sparse_csr()
dense.grad = None
((rows @ dense).sigmoid()).sum().backward()
print(rows.values().tolist(), dense.grad.tolist())

table = torch.nn.Embedding(10, 4, sparse=True)
optimizer = torch.optim.SparseAdam(table.parameters())
for _ in range(3):
    optimizer.zero_grad()
    table(torch.tensor([1, 1, 7])).pow(2).sum().backward()
    print(table.weight.grad.is_sparse, table.weight.grad.coalesce().values().tolist())
    optimizer.step()
print(table.weight.sum().item())
print(torch.sparse.softmax(adjacency, 1).to_dense().tolist())
