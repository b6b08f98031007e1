"""Trains as tests/programs/parity_trainer.cpp does, with Python's
DistributedDataParallel, and compares every gradient, parameter and buffer of
every rank and step with the files that the C++ program wrote, byte for byte.

Usage: ddp_parity.py FOLDER WORLD_SIZE CONFIGURATION, which is a name of the
program's table or "all". Exits 0 if all are equal, 1 if not, 2 if a rank failed.
"""

import contextlib
import dataclasses
import json
import os
import sys
import warnings

import torch
import torch._dynamo  # DistributedDataParallel needs it: once, before the fork
import torch.distributed as dist
import torch.multiprocessing as mp
from nets import NETS
from torch import nn

warnings.simplefilter("ignore")

REDUCTIONS = 6

@dataclasses.dataclass
class Configuration:
    net: str
    options: dict = dataclasses.field(default_factory=dict)
    clear: str = "to none"
    sync_every: int = 1
    first_bucket_cap_mb: float = 1
    uneven: str = "no"
    divide_by_initial_world_size: bool = True

    def steps(self, rank, size):
        fewer = {
            "no": 0,
            "first longest": rank,
            "last longest": size - 1 - rank,
        }
        return REDUCTIONS * self.sync_every - fewer[self.uneven]


# What the words of configurations.h's table mean.
OPTIONS = {
    "views": {"gradient_as_bucket_view": True},
    "small": {"bucket_cap_mb": 0.01},
    "caps": {"bucket_cap_mb_list": [0.005, 0.05, 0.01]},
    "unused": {"find_unused_parameters": True},
    "skip": {"skip_all_reduce_unused_params": True},
    "static": {"static_graph": True},
    "own-buffers": {"broadcast_buffers": False},
    "wrapped": {},
}
FIELDS = {
    "first-cap": {"first_bucket_cap_mb": 0.01},
    "zeroed": {"clear": "to zero"},
    "kept": {"clear": "never"},
    "every-3": {"sync_every": 3},
    "first-long": {"uneven": "first longest"},
    "last-long": {"uneven": "last longest"},
    "live": {"divide_by_initial_world_size": False},
}


def read_configurations(folder):
    """Those that the C++ program knows, by name."""
    found = {}
    with open(os.path.join(folder, "configurations.txt")) as file:
        for name, net, *words in map(str.split, file.read().strip().split("\n")):
            found[name] = configuration = Configuration(net)
            for word in words:
                for field, value in FIELDS.get(word, {}).items():
                    setattr(configuration, field, value)
                if word not in FIELDS:
                    configuration.options.update(OPTIONS[word])
    return found


def state_of(net):
    """As state_of of configurations.h."""
    state = {}
    for name, parameter in net.named_parameters():
        grad = parameter.grad
        state["value." + name] = parameter.detach()
        if grad is not None and grad.is_sparse:
            state["grad." + name] = grad.to_dense()
            state["indices." + name] = grad.coalesce().indices()
        elif grad is not None:
            state["grad." + name] = grad
            strides = torch.tensor(grad.stride(), dtype=torch.int64)
            state["strides." + name] = strides
    for name, buffer in net.named_buffers():
        state["value." + name] = buffer
    return state


def differences(state, written):
    if state.keys() != written.keys():
        return ["names: " + str(state.keys() ^ written.keys())]
    found = []
    for name, tensor in state.items():
        other = written[name]
        if tensor.dtype != other.dtype or tensor.shape != other.shape:
            found.append(f"{name}: {other.dtype} {list(other.shape)} in C++")
            continue
        ours, theirs = (
            each.contiguous().reshape(-1).view(torch.uint8)
            for each in (tensor, other)
        )
        if not ours.equal(theirs):
            differ = (ours != theirs).reshape(tensor.numel(), -1).any(1)
            count = differ.sum().item()
            found.append(f"{name}: {count} of {len(differ)} values differ")
    return found


def clear_gradients(optimizer, how):
    if how != "never":
        optimizer.zero_grad(set_to_none=how == "to none")


def make_model(configuration, rank):
    torch.manual_seed(42)
    net = NETS[configuration.net]()
    for buffer in net.buffers():
        buffer.fill_(rank)
    dist._DEFAULT_FIRST_BUCKET_BYTES = int(
        configuration.first_bucket_cap_mb * 1024 * 1024
    )
    return nn.parallel.DistributedDataParallel(net, **configuration.options)


def train(configuration, rank, size):
    """Yields the net and a name for the moment, after each step and at the end.
    """
    model = make_model(configuration, rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(100 + rank)
    every = configuration.sync_every
    with model.join(
        enable=configuration.uneven != "no",
        divide_by_initial_world_size=configuration.divide_by_initial_world_size,
    ):
        for step in range(configuration.steps(rank, size)):
            inputs = torch.randn(4, 48)
            last = (step + 1) % every == 0
            if step % every == 0:
                clear_gradients(optimizer, configuration.clear)
            with contextlib.nullcontext() if last else model.no_sync():
                model(inputs, rank, step).pow(2).mean().backward()
            if last:
                optimizer.step()
            yield model.module, f"step{step}"
    clear_gradients(optimizer, "to none")
    yield model.module, "end"


def run_rank(rank, world_size, folder, names):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method="file://" + os.path.join(folder, "python_store"),
        rank=rank,
        world_size=world_size,
    )
    configurations = read_configurations(folder)
    found = {name: [] for name in names}
    for name in names:
        for net, moment in train(configurations[name], rank, world_size):
            file = f"{name}_rank{rank}_{moment}.pt"
            written = torch.load(os.path.join(folder, file))
            found[name] += [
                f"{name}, rank {rank}, {moment}: {text}"
                for text in differences(state_of(net), written)
            ]
    with open(os.path.join(folder, f"differences{rank}.json"), "w") as file:
        json.dump(found, file)
    dist.barrier()
    dist.destroy_process_group()


def main():
    folder, world_size, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    names = list(read_configurations(folder)) if wanted == "all" else [wanted]
    # By fork, so that torch is loaded once.
    context = mp.start_processes(
        run_rank,
        (world_size, folder, names),
        world_size,
        join=False,
        start_method="fork",
    )
    try:
        while not context.join():
            pass
    except mp.ProcessRaisedException as error:
        print(error)
        sys.exit(2)
    found = {name: [] for name in names}
    for rank in range(world_size):
        with open(os.path.join(folder, f"differences{rank}.json")) as file:
            for name, texts in json.load(file).items():
                found[name] += texts
    for name, texts in found.items():
        print("\n".join([""] + texts[:10]))
        print(f"{name}: {len(texts)} differences over {world_size} ranks")
    sys.exit(any(found.values()))


if __name__ == "__main__":
    main()
