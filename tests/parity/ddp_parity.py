"""Trains as tests/programs/parity_trainer.cpp does, with Python's
DistributedDataParallel, and compares every gradient, parameter and buffer of
every rank and step with the files that the C++ program wrote, bit for bit.

Usage: ddp_parity.py FOLDER WORLD_SIZE. Exits 0 if all are equal, else 1.
"""

import json
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

warnings.simplefilter("ignore")

DTYPES = {"F32": torch.float32, "I64": torch.int64}


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        raw = bytearray(data[begin:end])
        tensor = torch.frombuffer(raw, dtype=DTYPES[entry["dtype"]])
        tensors[name] = tensor.reshape(entry["shape"])
    return tensors


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.norm = nn.BatchNorm2d(5)
        self.wide = nn.Linear(5 * 6 * 6, 1703)
        self.last = nn.Linear(1703, 7)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.last(torch.relu(self.wide(x.flatten(1))))


def differences(net, written):
    expected = {}
    for name, parameter in net.named_parameters():
        expected["grad." + name] = parameter.grad
        expected["value." + name] = parameter.detach()
    for name, buffer in net.named_buffers():
        expected["value." + name] = buffer
    if expected.keys() != written.keys():
        return ["names: " + str(expected.keys() ^ written.keys())]
    return [
        f"{name}: {(tensor != written[name]).sum().item()} of "
        f"{tensor.numel()} elements differ"
        for name, tensor in expected.items()
        if not torch.equal(tensor, written[name])
    ]


def train(rank, world_size, folder, failures):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method="file://" + os.path.join(folder, "python_store"),
        rank=rank,
        world_size=world_size,
    )
    torch.manual_seed(42)
    net = Net()
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(100 + rank)
    for step in range(5):
        inputs = torch.randn(4, 3, 8, 8)
        target = torch.randint(0, 7, (4,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), target).backward()
        optimizer.step()
        name = f"rank{rank}_step{step}.safetensors"
        written = read_safetensors(os.path.join(folder, name))
        for text in differences(net, written):
            failures.put(f"rank {rank}, step {step}: {text}")
    dist.barrier()
    dist.destroy_process_group()


def main():
    folder, world_size = sys.argv[1], int(sys.argv[2])
    failures = mp.get_context("spawn").Queue()
    context = mp.spawn(
        train, (world_size, folder, failures), world_size, join=False
    )
    while not context.join():
        pass
    failures.put(None)
    found = list(iter(failures.get, None))
    for text in found[:20]:
        print(text)
    print(f"{len(found)} differences over {world_size} ranks and 5 steps")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
