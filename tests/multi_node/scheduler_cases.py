"""ddprun started by Slurm and by mpirun, with no word of where nodes meet."""

import os
import shutil
import sys
import tempfile

from hosts import Hosts, command, skip
from job import Process
from nodes import WORKER, Nodes
from slurm import Slurm, require_slurm
from training import require_all_seen


class Scheduled(Nodes):
    """The process on host 0 is the scheduler's, which has others there."""

    def start(self, words, **variables):
        process = Process(words, {
            **variables, "DDP_TOKEN": "secret",
            "TMPDIR": f"{self.folder.name}/tmp"})
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
        nodes.start(slurm.command("srun", "-N3", "--ntasks-per-node=1",
                                  "--export=ALL", *words), **slurm.variables)
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
    if not shutil.which("mpirun") or "Open MPI" not in command(
            "mpirun", "--version"):
        skip("there is no Open MPI")
    hosts = Hosts(3)
    agent = "/dev/shm/remote_agent.sh"
    command("ln", "-s", os.path.join(
        os.path.dirname(os.path.realpath(__file__)), "remote_agent.sh"), agent)
    with Scheduled(program, hosts) as nodes:
        nodes.start(
            hosts.on(0) +
            ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", agent,
             "--mca", "orte_tmpdir_base", "/dev/shm", "--host",
             "n0:1,n1:1,n2:1", "-x", "MASTER_ADDR=n0", "-x", "DDP_TOKEN",
             program, "--nproc-per-node=2", "bash", "-c", WORKER],
            HOLDERS=" ".join(map(str, hosts.holders)))
        nodes.wait_for_ranks(6, [0])
        nodes.kill_rank(1)
        nodes.finish([0], 137, 10)
