"""Prints Python's DDP logging data of the net that tests/statistics_test.cpp
trains: the entries that do not depend on times or the number of ranks."""

import os
import tempfile

import torch
import torch.distributed as dist

KEYS = (
    "bucket_sizes",
    "rebuilt_bucket_sizes",
    "rebuilt_per_bucket_param_indices",
    "prev_iteration_grad_ready_order_indices",
    "has_rebuilt_buckets",
    "num_parameter_tensors",
    "total_parameter_size_bytes",
    "unused_parameter_size",
    "num_buckets_reduced",
    "iteration",
)


class UnevenNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(7, 513)
        self.wide = torch.nn.Linear(513, 701)
        self.last = torch.nn.Linear(701, 3)

    def forward(self, x):
        return self.last(torch.relu(self.wide(torch.relu(self.first(x)))))


def main():
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(os.path.join(folder, "store"), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        model = torch.nn.parallel.DistributedDataParallel(
            UnevenNet(), bucket_cap_mb=1
        )
        for _ in range(3):
            model(torch.randn(5, 7)).sum().backward()
        # Stats are of the iteration before the last forward.
        model(torch.randn(5, 7)).sum().backward()
        data = model._get_ddp_logging_data()
        for key in KEYS:
            print(key, data.get(key))
        dist.destroy_process_group()


main()
