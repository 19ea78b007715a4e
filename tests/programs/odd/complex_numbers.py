import torch

torch.manual_seed(0)
phase = torch.randn(6, dtype=torch.complex64, requires_grad=True)
optimizer = torch.optim.Adam([phase], lr=0.1)
signal = torch.randn(6)
for _ in range(4):
    spectrum = torch.fft.fft(signal * phase.conj())
    loss = (spectrum.abs() - 1).square().mean() + (phase * phase.conj()).real.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), phase.grad.tolist())
layer = torch.nn.Linear(3, 3, dtype=torch.complex128)
torch.view_as_real(layer(torch.randn(2, 3, dtype=torch.complex128))).square().sum().backward()
print(layer.weight.grad.tolist(), torch.polar(torch.ones(2), torch.ones(2)).angle().tolist())
