"""As tests/programs/failing_attempts.cpp, with torch.distributed."""

import os
import sys

import torch
import torch.distributed as dist

failing = int(sys.argv[1]) if len(sys.argv) > 1 else 2
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
if dist.get_rank() == 0:
    print(f"attempt {attempt}: sum {ones.item():g}", flush=True)
dist.barrier()
if attempt < failing and dist.get_rank() == 1:
    os._exit(3)  # as a crash would, with its connections open
dist.destroy_process_group()
