# slow: compiles
import torch
import torch.nn as nn

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 1))
x = torch.randn(3, 4)
import io

for dynamo in (True, False):
    try:
        torch.onnx.export(m, (x,), io.BytesIO(), dynamo=dynamo)
        print("exported")
    except Exception as e:
        print(type(e).__name__)
