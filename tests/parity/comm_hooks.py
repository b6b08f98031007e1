"""Runs Python's communication hooks and model averagers on gradients that
tests/support/comm_hooks.h has too, and writes the results of each rank and step
to FOLDER/rank<rank>.pt: a dictionary of lists of tensors.

Usage: comm_hooks.py FOLDER WORLD_SIZE
"""

import os
import sys
import types
import warnings
from collections import OrderedDict

import torch
import torch._dynamo  # DistributedDataParallel needs it: once, before the fork
import torch.distributed as dist
import torch.distributed.algorithms.ddp_comm_hooks.default_hooks as default
import torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook as power
import torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks as quant
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import (
    noop_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import (
    PeriodicModelAverager,
)
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager,
)

warnings.simplefilter("ignore")

STEPS = 6
SHAPES = [
    (40, 60),
    (60,),
    (60, 40),
    (16, 8, 3, 3),
    (40, 60),
    (33,),
    (5, 3),
    (64, 48),
]

# Its own asserts three dimensions, which batched_powerSGD_hook does not pass.
_orthogonalize = power._orthogonalize
power._orthogonalize = lambda matrices, epsilon=0: _orthogonalize(
    matrices if matrices.dim() == 3 else matrices.unsqueeze(0), epsilon
)


def all_gather(outputs, tensor, group, async_op):
    """The quantization hooks expect one tensor for all ranks, as NCCL has."""
    dist.all_gather(outputs, tensor, group)
    future = torch.futures.Future()
    future.set_result([torch.stack(outputs)])
    return types.SimpleNamespace(get_future=lambda: future)


quant.dist = types.SimpleNamespace(
    group=dist.group, get_rank=dist.get_rank, all_gather=all_gather
)


def parameters():
    torch.manual_seed(3)
    return [torch.randn(shape) for shape in SHAPES]


def gradients(step, rank):
    torch.manual_seed(1000 * step + rank)
    return [torch.randn(shape) for shape in SHAPES]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(parameters())

    def forward(self, inputs):
        loss = torch.zeros(())
        for weight, values in zip(self.weights, inputs):
            loss = loss + (weight * values).sum()
        return loss


def power_state(**options):
    return power.PowerSGDState(
        None, **{"start_powerSGD_iter": 2, **options}
    )


def subgroup(size):
    parts = [[0, 1], [2]] if size == 3 else [[0, 1], [2, 3]]
    return dist.new_subgroups_by_enumeration(parts)[0]


def hooks(size):
    """State and hook by name."""
    yield "fp16", None, default.fp16_compress_hook
    yield "bf16", None, default.bf16_compress_hook
    yield "allreduce", None, default.allreduce_hook
    for rank in 1, 2, 4:
        state = power_state(matrix_approximation_rank=rank)
        yield f"power{rank}", state, power.powerSGD_hook
    yield "power_cold", power_state(
        start_powerSGD_iter=0, use_error_feedback=False, warm_start=False
    ), power.powerSGD_hook
    yield "power_batched_shapes", power_state(
        matrix_approximation_rank=2,
        batch_tensors_with_same_shape=True,
        orthogonalization_epsilon=1e-8,
        random_seed=12345,
        min_compression_rate=1,
    ), power.powerSGD_hook
    yield "power_whole", power_state(), power.batched_powerSGD_hook
    yield "power_fp16", power_state(), default.fp16_compress_wrapper(
        power.powerSGD_hook
    )
    for local in True, False:
        state = PostLocalSGDState(None, subgroup(size), 2, local)
        yield f"post_local_{local}", state, post_localSGD_hook
    yield "quantized", None, quant.quantization_pertensor_hook
    yield "quantized_channels", None, quant.quantization_perchannel_hook
    yield "noop", None, noop_hook


def waiting(hook):
    """Several buckets' callbacks would start collectives in any order."""

    def run(state, bucket):
        future = hook(state, bucket)
        future.wait()
        return future

    return run


def train(state, hook, rank):
    model = nn.parallel.DistributedDataParallel(Net(), bucket_cap_mb=0.01)
    model.register_comm_hook(state, waiting(hook))
    results = []
    for step in range(STEPS):
        model.zero_grad()
        model(gradients(step, rank)).backward()
        results += [weight.grad.clone() for weight in model.module.weights]
    return results


def averagers(size):
    yield "periodic", PeriodicModelAverager(period=3, warmup_steps=2)
    small = 1 if size == 3 else 2
    yield "hierarchical", HierarchicalModelAverager(
        OrderedDict([(1, small), (2, small), (4, size)]), warmup_steps=1
    )


def average(averager, rank):
    weights = [nn.Parameter(weight) for weight in parameters()]
    results = []
    for step in range(STEPS):
        for i, gradient in enumerate(gradients(step, rank)):
            if i != 1:
                weights[i].grad = gradient
                weights[i].data -= 0.1 * gradient
        averager.average_parameters(iter(weights))
        results += [weight.detach().clone() for weight in weights]
    return results


def run_rank(rank, size, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method="file://" + os.path.join(folder, "python_store"),
        rank=rank,
        world_size=size,
    )
    results = {name: train(s, hook, rank) for name, s, hook in hooks(size)}
    for name, averager in averagers(size):
        results[name] = average(averager, rank)
    torch.save(results, os.path.join(folder, f"rank{rank}.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(
        run_rank,
        (int(sys.argv[2]), sys.argv[1]),
        int(sys.argv[2]),
        start_method="fork",
    )
