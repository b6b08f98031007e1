"""ddprun started by Slurm and by mpirun, with no word of where nodes meet."""

import sys
import tempfile

from hosts import Hosts
from job import Process, mpirun
from nodes import WORKER, Nodes
from slurm import Slurm, require_slurm
from training import require_all_seen


class Scheduled(Nodes):
    """The process on host 0 is the scheduler's, which has others there."""

    def run(self, process):
        self.job.processes.append(process)
        self.at[0] = process

    def require_nothing_left(self):
        self.wait_until_gone()


def under_slurm(program):
    """srun starts one ddprun on each node: no option says where they meet."""
    require_slurm()
    hosts = Hosts(3)
    slurm = Slurm(hosts)
    slurm.wait_until_up(30)

    def srun(*words):
        nodes = Scheduled(program, hosts)
        nodes.run(Process(
            slurm.command("srun", "-N3", "--ntasks-per-node=1",
                          "--export=ALL", *words),
            {**slurm.variables, "DDP_TOKEN": "secret",
             "TMPDIR": f"{nodes.folder.name}/tmp"}))
        return nodes
    words = [program, "--nproc-per-node=2", "bash", "-c", WORKER]
    with srun(*words) as nodes:
        nodes.wait_for_ranks(6, [0])
        for host in range(3):
            nodes.require_said(f"rank {2 * host} of 6 local 0 of 2 node {host} "
                               "of 3", 0)
        nodes.kill_rank(1)
        nodes.finish([0], 137, 10)
    with srun(*words) as nodes:
        nodes.wait_for_ranks(6, [0])
        job = slurm.output("squeue", "-h", "-o", "%i").strip()
        slurm.output("scancel", job)
        nodes.wait(lambda: not nodes.at[0].running(), "scancel does not end it")
    with tempfile.TemporaryDirectory() as folder:
        with srun(program, "--nproc-per-node=1", sys.argv[2], folder, "1",
                  "240", "0") as nodes:
            nodes.finish([0], 0, 60)
            require_all_seen(nodes, [0], 6)
    slurm.stop()


def under_mpirun(program):
    """So does mpirun; it has to be told where the first node is."""
    hosts = Hosts(3)
    with Scheduled(program, hosts) as nodes:
        nodes.run(mpirun(
            hosts, 1, [program, "--nproc-per-node=2", "bash", "-c", WORKER],
            MASTER_ADDR="n0", DDP_TOKEN="secret",
            TMPDIR=f"{nodes.folder.name}/tmp"))
        nodes.wait_for_ranks(6, [0])
        nodes.kill_rank(1)
        nodes.finish([0], 137, 10)
