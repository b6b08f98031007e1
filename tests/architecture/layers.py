"""Where a file belongs and what it may include: the one table of layers.

The lowest comes first: a file includes from its own layer and from those before
it in the table. A line names a folder, whose subfolders belong to it if they
have no lines of their own. A public header belongs to the layer of the one
source of its name; others stand behind their layer. `private`: the folder's
headers, but for the public ones, are for files in that folder alone.

layers.py SOURCE_FOLDER    prints what is wrong
"""

import collections
import os
import pathlib
import re
import sys

SUFFIXES = (".h", ".cpp")

LAYERS = """
        common                    # without LibTorch: files, names, addresses, text, processes
private launcher                  # ddprun
        ddp/support               # tasks with a time limit, tensors and values as plain memory | check export process_group_options
        ddp/environment           # settings from launchers and the program
        ddp/failure               # failure store, heartbeat, crash handler, flight recorder
        ddp/backends              # gloo, NCCL, interfaces of the backends below, shared parts
private ddp/backends/shm          # shared memory
private ddp/backends/mpi          # MPI
private ddp/backends/hierarchical # shared memory within hosts, gloo between them
        ddp/process_group         # collectives, bounded waits, agreement between ranks | work
        ddp/debug                 # the checks and records of DDP_DEBUG
        ddp/rendezvous            # the store, and the location of each rank
        ddp/init                  # forming, splitting and wrapping groups
        ddp/model                 # state and comparison of modules
        ddp/random                # seeds | random
        ddp/reducer/buckets       # parameters, their buckets, and the reduction of a bucket | reducer_options
        ddp/reducer/core          # hooks, the end of backward, agreement on unused parameters | reducer_target
        ddp/reducer/observers     # observers of the core: times, layouts, checks | statistics
        ddp/reducer               # the class that assembles the parts above
        ddp/comm_hooks            # half precision, PowerSGD, quantization, chains of hooks | default_hooks
        ddp/model_averaging       # periodic averaging of parameters
        ddp/wrapper               # DistributedDataParallel, forward over several devices | distributed_data_parallel share_forward tensor_traversal
        ddp/optim                 # ZeRO, fused steps, gradient scaler, optimizers' states | amp optimizers zero_redundancy_optimizer
        ddp/nn                    # synchronized batch-norm
        ddp/spawn                 # ranks that a program starts
private samplers                  # samplers and the data loader
private checkpoint                # files, training states, folders of checkpoints
        ddp/elastic               # changing numbers of nodes, saving on a signal
        ddp/include               # the umbrella header | ddp
        ddp/commands              # ddp-flightrecorder, ddp-timeline
private checkpoint/command        # ddp-checkpoint
private launcher/store            # the helper that serves the store
private launcher/etcd             # the helper that talks to an etcd
"""

MAX_FILES = 25  # in a folder of sources and private headers
MAX_LINES = 400  # in a file
MAX_CORE_LINES = 900  # in all of these, which a backward runs through
CORE = [f"ddp/reducer/core/{name}{suffix}"
        for name in ("backward_reducer", "gradient_reduction", "gradient_hook")
        for suffix in SUFFIXES]

# What is compiled, and where its public headers are.
COMPONENTS = {
    "common": None,
    "ddp": "ddp/include/ddp",
    "samplers": "samplers/include/ddp/samplers",
    "checkpoint": "checkpoint/include/ddp/checkpoint",
    "launcher": None,
}
# They see public headers only, beside their own.
USERS = ("examples", "bench")
# They know nothing of LibTorch.
PLAIN = ("common", "launcher")
BESIDES = (".txt", ".md", ".py", ".json", ".sh")  # what else may lie there
INCLUDE = re.compile(r'^\s*#\s*include\s*(.*\S)', re.MULTILINE)


class Layer:
    def __init__(self, line, number):
        line, _, headers = line.partition("|")
        line, _, self.text = (part.strip() for part in line.partition("#"))
        *private, self.folder = line.split()
        self.private = private == ["private"]
        self.headers = headers.split()
        self.number = number


def component_of(path):
    return path.partition("/")[0]


def is_user(path):
    return component_of(path) in USERS


def read_layers():
    return [Layer(line, number)
            for number, line in enumerate(LAYERS.strip().splitlines())]


class Tree:
    """The files by path, and what is wrong with them."""

    def __init__(self, root, layers):
        self.layers = {layer.folder: layer for layer in layers}
        self.text, self.strangers = {}, []
        for folder in (*COMPONENTS, *USERS):
            for path in sorted((root / folder).rglob("*")):
                name = path.relative_to(root).as_posix()
                if path.suffix in SUFFIXES:
                    self.text[name] = path.read_text()
                elif path.is_file() and path.suffix not in BESIDES:
                    self.strangers.append(name)
        known = (*COMPONENTS, *USERS, "tests", "build")
        self.other_folders = [
            folder.name for folder in root.iterdir() if folder.name not in known
            and any(path.suffix in SUFFIXES for path in folder.rglob("*"))]
        self.lists = {component: (root / component / "CMakeLists.txt").read_text()
                      for component, headers in COMPONENTS.items() if headers}
        # By what stands in an #include.
        self.public = {}
        for component in filter(None, COMPONENTS.values()):
            prefix = component.partition("include/")[0] + "include/"
            for path in self.text:
                if path.startswith(component + "/"):
                    self.public[path[len(prefix):]] = path
        self.public_paths = set(self.public.values())
        self.sources = collections.defaultdict(list)
        for path in self.text:
            if path.endswith(".cpp"):
                name = component_of(path), pathlib.PurePath(path).stem
                self.sources[name].append(path)

    def find(self, include):
        """The path of a file of ours, or None."""
        if include in self.public:
            return self.public[include]
        return include if include in self.text else None

    def layer(self, path):
        """A file's, or None."""
        if path in self.public_paths:
            name = pathlib.PurePath(path).stem
            component = component_of(path)
            for layer in self.layers.values():
                if (name in layer.headers
                        and component_of(layer.folder) == component):
                    return layer
            sources = self.sources[component, name]
            if len(sources) != 1:
                # A header of templates alone, beside the component's others.
                return self.layers.get(component) if component != "ddp" else None
            path = sources[0]
        folder = os.path.dirname(path)
        while folder and folder not in self.layers:
            folder = os.path.dirname(folder)
        return self.layers.get(folder)

    def includes(self, path):
        for include in INCLUDE.findall(self.text[path]):
            found = self.find(include[1:-1])
            if found:
                yield found

    def spellings(self):
        """Includes that could lead past the table."""
        own = "|".join((*COMPONENTS, *USERS, "tests"))
        for path, text in self.text.items():
            component, user = component_of(path), is_user(path)
            for include in INCLUDE.findall(text):
                name = include[1:-1]
                if not user and (include[0] != "<" or ".." in name):
                    yield f"{path}: {include} is no <path from the root>"
                elif "include/ddp/" in name:
                    yield f"{path}: {include} is not how a user writes it"
                elif user and "/internal/" in name:
                    yield f"{path} includes {name}, which is internal"
                elif not user and re.match(f"({own})/", name):
                    if not self.find(name):
                        yield f"{path} includes {name}, which is not there"
                    elif is_user(name):
                        yield f"{path} includes {name}, a program's"
                if (component in PLAIN and re.match("(torch|ATen|c10)/", name)
                        and not path.startswith("launcher/store/")):
                    yield f"{path} includes {name}: it shall not know LibTorch"

    def rows(self):
        """Lines of the table that mean nothing."""
        public = {pathlib.PurePath(path).stem for path in self.public_paths}
        for layer in self.layers.values():
            if not any(path.startswith(layer.folder + "/") for path in self.text):
                yield f"{layer.folder} has a line in layers.py, and no file"
            for name in layer.headers:
                if name not in public:
                    yield f"{name}.h has a place in layers.py, and is no header"
        for path in self.strangers:
            yield f"{path}: neither a header nor a source nor a script"
        for folder in self.other_folders:
            yield f"{folder} has sources, and layers.py does not know it"
        for path in self.public_paths:
            component, _, listed = path.partition("/")
            if f"  {listed}" not in self.lists[component]:
                yield f"{path} is not in the file set of {component}/CMakeLists.txt"

    def arrows(self):
        """What is wrong with each #include."""
        for path in self.text:
            user = is_user(path)
            own = None if user else self.layer(path)
            if not user and not own:
                yield f"{path} is in no layer: give it one in layers.py"
                continue
            for include in self.includes(path):
                if is_user(include):
                    continue  # its own, or said by spellings()
                other = self.layer(include)
                if not other:
                    continue  # said above
                public = include in self.public_paths
                if path in self.public_paths and not public:
                    yield f"{path}, a public header, includes {include}, a private one"
                if user and not public:
                    yield f"{path} includes {include}, which is no public header"
                elif not user and other.number > own.number:
                    yield (f"{path} includes {include}: {own.folder} comes "
                           f"before {other.folder}")
                elif (not user and other.private and not public
                      and not path.startswith(other.folder + "/")):
                    yield f"{path} includes {include}, which is private"

    def cycles(self):
        done, way = set(), []

        def visit(path):
            if path in way:
                cycle = way[way.index(path):] + [path]
                yield "a cycle: " + " -> ".join(cycle)
            elif path not in done and not path.endswith("-inl.h"):
                way.append(path)
                for include in self.includes(path):
                    yield from visit(include)
                way.pop()
                done.add(path)

        for path in self.text:
            yield from visit(path)

    def sizes(self):
        files = collections.Counter(
            os.path.dirname(path) for path in self.text
            if not is_user(path) and path not in self.public_paths)
        for folder, count in files.items():
            if count > MAX_FILES:
                yield f"{folder} has {count} files: {MAX_FILES} at most"
        for path, text in self.text.items():
            lines = text.count("\n")
            if not is_user(path) and lines > MAX_LINES:
                yield f"{path} has {lines} lines: {MAX_LINES} at most"
        lines = sum(self.text[path].count("\n") for path in CORE)
        if lines > MAX_CORE_LINES:
            yield f"the Reducer's core has {lines} lines: {MAX_CORE_LINES} at most"
        for folder in {os.path.dirname(path) for path in self.text}:
            if "detail" in folder.split("/"):
                yield f"{folder} says nothing: name it by what is in it"


def table():
    yield "| layer, lowest first | contents | users of its private headers |"
    yield "|---|---|---|"
    for layer in read_layers():
        whom = "this layer" if layer.private else "also later layers"
        yield f"| `{layer.folder}` | {layer.text} | {whom} |"


def main():
    tree = Tree(pathlib.Path(sys.argv[1]), read_layers())
    wrong = [*tree.arrows(), *tree.spellings(), *tree.cycles(), *tree.sizes(),
             *tree.rows()]
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
