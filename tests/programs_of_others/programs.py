"""The programs that check.py trains: where they are and how a run is kept short."""

import dataclasses
import gzip
import pathlib
import re
import shutil

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")
DUMP = 'torch::save({}->parameters(), c10::str("rank-", group.rank(), ".pt"));\n'


@dataclasses.dataclass
class Program:
    """`name` names the patch; `checkout` the option that gives the checkout.

    `settings` are replacements (file, old, new), which are no part of the
    patch: they shorten a run, make it the same each time, print losses with
    more digits, and write each rank's parameters to rank-N.pt.
    """
    name: str
    repository: str
    commit: str
    folder: str
    executable: str
    settings: list
    data: dict  # {path in the run's folder: file}
    losses: object  # (run's folder, rank) -> [loss]; or why there are none
    configure: tuple = ()
    launcher: str = "ddprun"

    @property
    def checkout(self):
        return self.repository.rsplit("/")[-1]


def printed(pattern):
    """The losses in a rank's output."""
    def losses(folder, rank):
        path, = folder.glob(f"logs/*/attempt_0/{rank}/stdout.log")
        return [float(x) for x in re.findall(pattern, path.read_text())]
    return losses


def in_file(folder, rank):
    """The second numbers of the lines of values0.txt, values1.txt, ..."""
    lines = (folder / f"values{rank}.txt").read_text().splitlines()
    return [float(line.split(",")[1]) for line in lines]


def mnist_at(folder):
    return {f"{folder}/{name}": FASHION_MNIST / f"{name}.gz" for name in (
        "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")}


def provide(data, folder):
    """Puts a program's data into the folder of a run."""
    for name, source in data.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        opener = gzip.open if source.suffix == ".gz" else open
        with opener(source, "rb") as compressed, open(target, "wb") as plain:
            shutil.copyfileobj(compressed, plain)


PROGRAMS = [
    Program(
        "mnist", "pytorch/examples",
        "77f55b912142e11fcfdf5b530231fb9c52f181e8", "cpp/mnist", "mnist", [
            ("mnist.cpp", "kNumberOfEpochs = 10", "kNumberOfEpochs = 3"),
            ("mnist.cpp", "kTrainBatchSize = 64", "kTrainBatchSize = 60"),
            ("mnist.cpp", "kLogInterval = 10", "kLogInterval = 1"),
            ("mnist.cpp", "= train_dataset.size().value()", "= 3000"),
            ("mnist.cpp", "Loss: %.4f", "Loss: %.7f"),
            # Without dropout, whose masks differ between numbers of ranks.
            ("mnist.cpp", "model.train();", "model.eval();"),
            ("mnist.cpp", "    run.save(epoch);\n  }\n",
             "    run.save(epoch);\n  }\n" + DUMP.format("(&model)")),
        ], mnist_at("data"), printed(r"\] Loss: ([\d.]+)"),
        ("-DDOWNLOAD_MNIST=OFF",)),
    Program(
        "language_model", "prabhuomkar/pytorch-cpp",
        "4c4d060f94f4b06cf2ce8cf43fa48b320e319507",
        "tutorials/intermediate/language_model", "language-model", [
            ("CMakeLists.txt", "VERSION 3.28.6", "VERSION 3.25"),
            ("src/main.cpp", "batch_size = 20", "batch_size = 24"),
            ("src/main.cpp", "hidden_size = 1024", "hidden_size = 64"),
            ("src/main.cpp", "num_samples = 1000", "num_samples = 10"),
            ("src/main.cpp", "../../../../data/penntreebank/", ""),
            ("src/main.cpp", "setprecision(4)", "setprecision(9)"),
            ("src/main.cpp", '"Generating samples...\\n";\n',
             '"";\n' + DUMP.format("model")),
        ], {"train.txt": TEXT}, printed(r"Loss: ([\d.]+)")),
    Program(
        "nanogpt", "kikirizki/nanogpt_cpp",
        "8bb4396c140f0c29f861310518d5b1b28e8c655f", ".", "nanogpt", [
            ("main.cpp", "i <= 100000", "i <= 1000"),
            ("main.cpp", "% 1000 ==", "% 100 =="),
            ("main.cpp", "batch_size = 4", "batch_size = 6"),
            ("main.cpp", "../dataset/tiny_shakesphere/", ""),
            ("main.cpp", "loss.item<float>() << ",
             "std::setprecision(9) << loss.item<float>() << "),
            ("main.cpp", "\n  return 0;", DUMP.format("model") + "return 0;"),
        ], {"input.txt": TEXT}, printed(r"Loss: ([\d.]+)")),
    Program(
        "ppo", "mhubii/ppo_libtorch",
        "7e40b47da56dbd94eaf03f669740a8b5bb138f95", ".", "train_ppo", [
            # Of libeigen3-dev; CMake finds it, and the program does not use it.
            ("CMakeLists.txt", "include_directories(${CMAKE_CURRENT_SOURCE_DIR})",
             "include_directories(. ${EIGEN3_INCLUDE_DIRS})"),
            ("ProximalPolicyOptimization.h", "re(rd())", "re(1)"),
            ("TrainPPO.cpp", "re(rd())", "re(2)"),
            # The program begins each epoch without transitions of the last
            # one if the steps of an update divide those of an epoch.
            ("TrainPPO.cpp", "n_iter = 10000", "n_iter = 1024"),
            ("TrainPPO.cpp", "n_steps = 2048", "n_steps = 256"),
            ("TrainPPO.cpp", "n_epochs = 15", "n_epochs = 4"),
            ("TrainPPO.cpp", "mini_batch_size = 512", "mini_batch_size = 60"),
            ("TrainPPO.cpp", "    out.close();\n",
             "    out.close();\n" + DUMP.format("ac")),
        ], {}, "each rank plays its own episodes"),
    Program(
        "cent", "soumyadipghosh/eventgrad",
        "1ea64ae9608dc2e2b88704f4ea981cf1689bfaba", "dmnist/cent", "cent", [
            ("cent.cpp", "#include <iostream>", "#include <fstream>"),
            ("cent.cpp", "/afs/crc.nd.edu/user/s/sghosh2/Public/ML/mnist/", ""),
            ("cent.cpp", "num_epochs = 250", "num_epochs = 6"),
            ("cent.cpp", "file_write = 0", "file_write = 1"),
            ("cent.cpp", "fp.open(name);",
             "fp.open(name, std::ios::app), fp.precision(9);"),
            ("cent.cpp", "   // end timer\n", DUMP.format("model")),
        ], mnist_at("data"), in_file, launcher="mpirun"),
]
