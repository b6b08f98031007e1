"""One ddprun that starts those of all hosts."""

import contextlib
import os
import re
import shutil
import signal
import time

from hosts import Hosts
from nodes import WORKER, Nodes, command_of, processes_on
import ssh

SECRET = "hush-hush"
SAY = ("echo", "${local_rank}", "a 'quoted' $word")
REMOTE_SHELL = "/dev/shm/remote_shell.sh"  # a path without spaces


@contextlib.contextmanager
def by_remote_shell(program, hosts, *options, shell=REMOTE_SHELL,
                    left_for=2, words=("bash", "-c", WORKER)):
    """A job that one ddprun on n0 starts on all of its hosts; seconds after
    it no process of it is left."""
    here = os.path.dirname(os.path.abspath(__file__))
    shutil.copy(f"{here}/remote_shell.sh", REMOTE_SHELL)
    with Nodes(program, hosts) as nodes:
        nodes.at[0] = nodes.beside(
            0, program, f"--rsh={shell}", *options, *words, DDP_TOKEN=SECRET,
            HOLDERS=" ".join(map(str, hosts.holders)), OMP_NUM_THREADS="1",
            TMPDIR=f"{nodes.folder.name}/tmp")
        yield nodes
        nodes.wait(lambda: not any(processes_on(hosts, host)
                                   for host in range(len(hosts.holders))),
                   "processes are left", left_for)


def echoes(nodes):
    """Waits for ranks that said their numbers, and two words."""
    nodes.finish([0], 0, 20)
    lines = sorted(nodes.at[0].text().splitlines())
    nodes.require(lines == [f"[{rank}] {local} a 'quoted' $word" for
                            rank, local in enumerate((0, 1, 0, 0))],
                  f"the output is {lines}")


def hosts_by_remote_shell(program):
    """One ddprun starts the others, and ends them, whatever way it ends."""
    hosts = Hosts(3)
    three = "--hosts=n0:2,n1:1,n2:1"
    with by_remote_shell(program, hosts, three, words=SAY) as nodes:
        echoes(nodes)
    with by_remote_shell(
            program, hosts, three, "--env=WORD=two words",
            words=("bash", "-c", "[[ $RANK != 3 ]] || sleep 3;"  # others wait
                   "echo $PWD, $WORD, ${HOLDERS:-none}, "
                   "${DDP_REMOTE_LAUNCHER:-none}, ${DDP_TOKEN:-none}")) as nodes:
        nodes.finish([0], 0, 15)
        for rank, holders in (
                (0, " ".join(map(str, hosts.holders))), (3, "none")):
            nodes.require_said(f"[{rank}] {os.getcwd()}, two words, {holders}, "
                               "none, none\n", 0)
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with by_remote_shell(program, hosts, three) as nodes:
            nodes.wait_for_ranks(4, [0])
            commands = [command_of(pid) for host in range(3)
                        for pid in processes_on(hosts, host)]
            nodes.require(SECRET not in str(commands), "the secret is seen")
            nodes.send(0, number)
            nodes.finish([0], code, 5)
            stopped = set(re.findall(r"\[(\d)\] stopped", nodes.at[0].text()))
            nodes.require(number == signal.SIGINT or len(stopped) == 4,
                          f"of the ranks, {stopped} were asked to stop")
    with by_remote_shell(program, hosts, "--hosts=n1:1",
                         shell="tail -f /dev/null") as nodes:
        nodes.wait(lambda: "has not yet started ddprun on n1"
                   in nodes.at[0].text(), "the wait is not told of", 20)
        nodes.send(0, signal.SIGINT)
        nodes.finish([0], 130, 10)
    deaf = ("bash", "-c", WORKER.replace("trap", "trap '' INT TERM #"))
    with by_remote_shell(program, hosts, three, words=deaf) as nodes:
        nodes.wait_for_ranks(4, [0])
        nodes.send(0, signal.SIGINT)
        # The same signal within half a second is the same request.
        nodes.wait(lambda: nodes.at[0].text().count("stopping all ranks") == 3,
                   "not all nodes were told")
        time.sleep(1)
        nodes.require(nodes.at[0].running(), "ranks ended at once")
        nodes.interrupt(0, [0])
    for host in range(3):
        with by_remote_shell(program, hosts, three) as nodes:
            nodes.wait_for_ranks(4, [0])
            nodes.kill_rank(host, signal.SIGUSR2)
            nodes.finish([0], 128 + signal.SIGUSR2, 5)


def cut_off_n1(nodes, shell):
    """Kills the shell that leads there, and waits for the end."""
    pids = [pid for pid in processes_on(nodes.hosts, 0)
            if any(word.endswith(shell) for word in command_of(pid)[:2]) and
            "n1" in command_of(pid)]
    os.kill(pids[0], signal.SIGKILL)
    nodes.finish([0], 75, 10)
    nodes.require_said(
        f"n1 was disconnected: {shell} ended with exit code 137", 0)


def hosts_lost(program):
    """Hosts that cannot be reached, and a remote launcher that is killed."""
    hosts = Hosts(3)
    with by_remote_shell(program, hosts, "--hosts=n0,n1,n7") as nodes:
        nodes.finish([0], 75, 5)
        nodes.require_said("ddprun was not started on n7: remote_shell.sh "
                           "ended with exit code 255: connect to host n7 port "
                           "22: No route to host\n", 0)
    many = ",".join(f"n{host}" for host in range(7, 37))
    with Nodes(program, hosts) as nodes:  # of three descriptors each
        nodes.at[0] = nodes.beside(
            0, "bash", "-c", 'ulimit -Sn 64; exec "$0" "$@"', program,
            "--rsh=false", f"--hosts={many}", "true")
        nodes.finish([0], 75, 10)
        nodes.require_said("false ended with exit code 1", 0)
    with by_remote_shell(program, hosts, "--hosts=n0,n1,n2") as nodes:
        nodes.wait_for_ranks(3, [0])
        cut_off_n1(nodes, "remote_shell.sh")
    with by_remote_shell(program, hosts, "--hosts=n0,n1,n2",
                         left_for=10) as nodes:
        nodes.wait_for_ranks(3, [0])
        nodes.send(0, signal.SIGKILL)


def hosts_by_ssh(program):
    """The same by OpenSSH: output, exit codes, Ctrl-C, a shell that dies."""
    ssh.require_ssh()
    hosts = Hosts(3)
    servers = ssh.Servers(hosts)

    @contextlib.contextmanager
    def job(*options, **words):
        servers.start()
        with by_remote_shell(program, hosts, "--hosts=n0:2,n1,n2", *options,
                             shell=ssh.SHELL, **words) as nodes:
            yield nodes
            nodes.wait_until_gone()
            servers.stop()

    with job(words=SAY) as nodes:
        echoes(nodes)
    with job() as nodes:
        nodes.wait_for_ranks(4, [0])
        nodes.interrupt(0, [0])
    with job() as nodes:
        nodes.wait_for_ranks(4, [0])
        nodes.kill_rank(2)
        nodes.finish([0], 137, 5)
    with job() as nodes:
        nodes.wait_for_ranks(4, [0])
        cut_off_n1(nodes, "ssh")
    with job() as nodes:
        nodes.wait_for_ranks(4, [0])
        nodes.send(0, signal.SIGKILL)


def check_nodes(program):
    """An example tells what is off between nodes, and that nothing is."""
    hosts = Hosts(3)
    three = ["--hosts=n0,n1,n2", "--port-range=20000-20009"]
    example = f"{os.path.dirname(program)}/../examples/check_nodes"

    def outcome(code, *options):
        with by_remote_shell(program, hosts, *three, *options,
                             words=(example, "20004")) as nodes:
            nodes.finish([0], code, 60)
            print(nodes.at[0].text(), flush=True)
            return nodes.at[0].text()

    text = outcome(0, "--env=DDP_DEVICE=cpu")
    for host in range(3):
        assert re.search(rf"^\[{host}\] n{host} \(10.9.0.{host + 1}\): "
                         r"LibTorch .*, clock [+-]0\.\d s$", text, re.M)
    for pair in ("n0 and n1", "n0 and n2", "n1 and n2"):
        found = re.search(rf"^\[\d\] {pair}: (\d+\.\d) Gbit/s", text, re.M)
        assert found and float(found[1]) > 0, f"no bandwidth of {pair}"

    with open("/etc/hosts") as file:
        names = file.read()
    for wrong in ("10.9.0.77 n2", "10.9.0.2 n2", ""):
        with open("/etc/hosts", "w") as file:
            file.write(names.replace("10.9.0.3 n2", wrong))
        # Where it is started from, it is reached all the same.
        text = outcome(1, "--env=DDP_DEVICE=cpu")
        for host in (0, 1):
            assert (f"[{host}] n{host}: the name n2 does not lead to that node "
                    "(10.9.0.3 does)\n") in text, "not said"
    with open("/etc/hosts", "w") as file:
        file.write(names)

    hosts.drop(2, "20000-20009")
    text = outcome(1)
    for host in (0, 1):
        assert (f"[{host}] n{host}: cannot connect to n2 at 10.9.0.3 port "
                "20004\n") in text
    assert "Gbit" not in text
    hosts.drop(0, "20000-20009")  # nor can they meet
    text = outcome(124, "--join-timeout=4")
    assert re.search("after 4.0 s.* waiting for", text)
