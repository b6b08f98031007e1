"""Runs the ResNet whose weights are in a file, written with functions alone.

resnet_oracle.py FOLDER: reads weights.pth and input.pt, writes output.pt with
the net's scores in evaluation and in training, the running statistics that the
latter leaves, the gradient of the first convolution, and the weights that
torchvision's constructor would draw from seed 3.
"""
import math
import sys

import torch
import torch.nn.functional as F

folder = sys.argv[1]
state = torch.load(folder + "/weights.pth")
case = torch.load(folder + "/input.pt")


def norm(x, name, training):
    return F.batch_norm(
        x,
        state[name + ".running_mean"],
        state[name + ".running_var"],
        state[name + ".weight"],
        state[name + ".bias"],
        training)


def convolution(x, name, stride):
    weight = state[name + ".weight"]
    return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)


def block(x, name, stride, training):
    """The stride is that of the first 3x3 convolution."""
    shortcut = x
    last = 3 if name + ".conv3.weight" in state else 2
    for i in range(1, last + 1):
        here = stride if i == last - 1 else 1
        x = convolution(x, f"{name}.conv{i}", here)
        x = norm(x, f"{name}.bn{i}", training)
        if i < last:
            x = F.relu(x)
    if name + ".downsample.0.weight" in state:
        shortcut = convolution(shortcut, name + ".downsample.0", stride)
        shortcut = norm(shortcut, name + ".downsample.1", training)
    return F.relu(x + shortcut)


def forward(x, training):
    large = state["conv1.weight"].shape[-1] == 7
    x = convolution(x, "conv1", 2 if large else 1)
    x = F.relu(norm(x, "bn1", training))
    if large:
        x = F.max_pool2d(x, 3, stride=2, padding=1)
    for layer in range(1, 5):
        number = 0
        while f"layer{layer}.{number}.conv1.weight" in state:
            stride = 2 if layer > 1 and number == 0 else 1
            x = block(x, f"layer{layer}.{number}", stride, training)
            number += 1
    return F.linear(x.mean((2, 3)), state["fc.weight"], state["fc.bias"])


def initial_weights():
    """First each layer's own, then He et al.'s over the convolutions."""
    torch.manual_seed(3)
    drawn = {
        k: torch.empty_like(v) for k, v in state.items() if v.dim() in (2, 4)}
    for name, weight in drawn.items():
        torch.nn.init.kaiming_uniform_(weight, a=math.sqrt(5))
    bound = 1 / math.sqrt(state["fc.weight"].shape[1])
    bias = torch.empty_like(state["fc.bias"])
    drawn["fc.bias"] = bias.uniform_(-bound, bound)
    for name, weight in drawn.items():
        if weight.dim() == 4:
            fan_out = weight.shape[0] * weight.shape[2] * weight.shape[3]
            weight.normal_(0, math.sqrt(2 / fan_out))
    return drawn


initial = initial_weights()
result = {}
with torch.no_grad():
    result["evaluation"] = forward(case["images"], training=False)
state["conv1.weight"].requires_grad_()
scores = forward(case["images"], training=True)
F.cross_entropy(scores, case["labels"]).backward()
result["training"] = scores.detach()
result["gradient"] = state["conv1.weight"].grad
result["running_var"] = state["layer4.1.bn2.running_var"]
result["initial"] = initial
torch.save(result, folder + "/output.pt")
