"""Trainings that change the language on their way; the Python side.

language_trainer.py FOLDER PHASE, three ranks, by phase:
  0  writes the initial weights
  1  (C++) all the way, and the first half
  2  all the way, the first half, C++'s half loaded and written as it is, and
     C++'s half gone on with
  3  (C++) the same with Python's half, and the way of phase 2's C++ half
  4  Python's half by way of C++, and the comparison: for each optimizer a line
     for each way, with "equal" or the largest relative difference
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HALF = 5
STEPS = 10


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(7, 33, bias=False)
        self.b = torch.nn.Linear(33, 19, bias=False)
        self.c = torch.nn.Linear(19, 3, bias=False)

    def forward(self, x):
        return self.c(self.b(self.a(x).tanh()).tanh())


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3
    ),
    "step-lr": lambda p: torch.optim.SGD(p, lr=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "libtorch-adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, lr_decay=0.1),
}


def train(folder, new_optimizer, lr_steps, before, after, last_step):
    net = Net()
    content = torch.load(f"{folder}/{before}.pt")
    if before == "initial":
        content = {"model": content, "step": 0}
    net.load_state_dict(content["model"])
    optimizer = new_optimizer(net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, lr_steps, 0.1)
    if "optimizer" in content:
        optimizer.load_state_dict(content["optimizer"])
        scheduler.load_state_dict(content["scheduler"])
    # Which never rebuilds its buckets. A run that is gone on with would else
    # have others in its first step than the run that was never stopped.
    model = DistributedDataParallel(net, find_unused_parameters=True)
    rank = dist.get_rank()
    for step in range(content["step"], last_step):
        torch.manual_seed(1000 * step + rank)
        x = torch.randn(4, 7)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        scheduler.step()
    if rank == 0:
        content = {
            "model": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "step": last_step,
        }
        torch.save(content, f"{folder}/{after}.pt")
    dist.barrier()


def tensors_of(value, where=""):
    """All tensors and numbers in it, by their places."""
    if isinstance(value, torch.Tensor):
        return {where: value.double().flatten()}
    if isinstance(value, dict):
        parts = [tensors_of(v, f"{where}.{k}") for k, v in value.items()]
        return {k: v for part in parts for k, v in part.items()}
    return {}


def difference(folder, a, b):
    a = tensors_of(torch.load(f"{folder}/{a}.pt"))
    b = tensors_of(torch.load(f"{folder}/{b}.pt"))
    if a.keys() != b.keys():
        return f"other parts: {sorted(a.keys() ^ b.keys())}"
    if all(torch.equal(a[key], b[key]) for key in a):
        return "equal"
    largest = max(
        ((a[key] - b[key]).abs().max() / a[key].abs().max()).item() for key in a
    )
    return f"{largest:.1e}"


def main():
    folder, phase = sys.argv[1:]
    torch.set_num_threads(1)
    if phase == "0":
        torch.manual_seed(3)
        torch.save(Net().state_dict(), f"{folder}/initial.pt")
        return
    dist.init_process_group("gloo")
    for name, new_optimizer in OPTIMIZERS.items():

        def go_on(before, after, last_step):
            before = before if before == "initial" else f"{name}.{before}"
            lr_steps = HALF if name == "step-lr" else STEPS + 1
            after = f"{name}.{after}"
            train(folder, new_optimizer, lr_steps, before, after, last_step)

        if phase == "2":
            go_on("initial", "py-all", STEPS)
            go_on("initial", "py-half", HALF)
            go_on("cpp-half", "cpp-half-py", HALF)
            go_on("cpp-half", "cpp-py", STEPS)
        else:
            go_on("py-half-cpp", "py-cpp-py", STEPS)
        if phase == "4" and dist.get_rank() == 0:
            for one, other in (
                ("cpp-all", "cpp-py-cpp"),
                ("py-all", "py-cpp-py"),
                ("cpp-all", "py-all"),
                ("cpp-all", "cpp-py"),
                ("py-all", "py-cpp"),
            ):
                found = difference(folder, f"{name}.{one}", f"{name}.{other}")
                print(f"{name} {one} {other}: {found}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
