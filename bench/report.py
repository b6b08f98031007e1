"""The tables of a run of the benchmarks, and its targets."""

# The case, which of its figures, the most that it may be, and what that says.
TARGETS = [
    ("mlp200", "ratio_local", 1.03, "step, shm, over local"),
    ("resnet18", "ratio_local", 1.03, "step, shm, over local"),
    ("big100", "ratio_local", 1.05, "step, shm, over local"),
    ("mlp200", "ratio_python", 0.60, "step, shm, over Python DDP"),
    ("resnet18", "ratio_python", 0.85, "step, shm, over Python DDP"),
    ("big100", "ratio_python", 0.60, "step, shm, over Python DDP"),
    ("mlp200_gloo", "ratio_python", 0.70, "step over Python DDP, both gloo"),
    ("resnet18_gloo", "ratio_python", 0.88, "step over Python DDP, both gloo"),
    ("big100_gloo", "ratio_python", 0.75, "step over Python DDP, both gloo"),
    ("mlp200_gloo", "ratio_c10d", 0.85, "step over c10d::Reducer, both gloo"),
    ("resnet18_gloo", "ratio_c10d", 0.97, "step over c10d::Reducer, both gloo"),
    ("big100_gloo", "ratio_c10d", 0.85, "step over c10d::Reducer, both gloo"),
    ("mlp200_alone", "us_per_parameter", 1.0, "us per parameter and step"),
    ("all_reduce_shm_1KB", "seconds", 5e-6, "seconds of an all-reduce"),
    ("all_reduce_shm_1MB", "ratio_in_place", 1.25, "over the bare sum"),
    ("all_reduce_shm_25MB", "ratio_in_place", 1.25, "over the bare sum"),
    ("all_reduce_shm_100MB", "ratio_in_place", 1.25, "over the bare sum"),
    *(
        (f"wire_{hosts}hosts_1000Mbit_{way}_{size}", "ratio_limit", most, text)
        for hosts, size in ((2, "4MB"), (2, "100MB"), (4, "4MB"))
        for way, most, text in (
            ("hierarchical", 1.06, "over the network's limit"),
            ("hierarchical_bf16", 0.56, "the same, half as many bytes"),
            ("mpi", 1.3, "over the network's limit"),
        )
    ),
    ("wire_2hosts_1000Mbit_hierarchical_4KB", "ratio_gloo", 1, "over gloo"),
    ("launch", "seconds", 0.010, "seconds to the first worker's main()"),
    ("save_hold", "ratio_memcpy", 1.5, "a background save holds the loop"),
    ("sampler", "ratio_randperm", 1.2, "time over torch::randperm"),
    ("sampler", "memory_ratio_randperm", 1.01, "memory over the permutation"),
    # A copy, and 5 MB for code that only ddp runs.
    ("memory_shm", "extra_copies", 1.05, "copies of the gradients, peak RSS"),
    ("memory_shm", "extra_copies_pss", 1.05, "the same, shared ones divided"),
    ("memory_gloo", "extra_copies", 1.05, "copies of the gradients, peak RSS"),
    ("ranks_2_gloo", "form_ratio_python", 0.5, "forming a group, over Python"),
    ("ranks_8_gloo", "form_ratio_python", 0.5, "forming a group, over Python"),
    *(
        (f"ranks_{size}_gloo", "form_over_linear", 1, "its growth over linear")
        for size in (8, 32, 128)
    ),
    ("ranks_128_gloo", "form_ms", 10e3, "ms to form a group"),
    ("ranks_128_gloo", "threads", 6, "threads of a rank"),
]


def find(results, name):
    """One rank needs no network: gloo does where shm is missing."""
    names = [name, name + "_gloo"] if name.endswith("_alone") else [name]
    for candidate in names:
        for result in results:
            if result["name"] == candidate:
                return result
    return {}


def check(results):
    targets = []
    for name, key, most, text in TARGETS:
        value = find(results, name).get(key)
        verdict = "not measured"
        if value is not None:
            verdict = "reached" if value <= most else "missed"
        targets.append(
            {"case": name, "figure": key, "target": most, "what": text}
            | {"value": value, "verdict": verdict}
        )
    return targets


def number(value):
    return "" if value is None else f"{value:.3g}"


def with_quartiles(result, key):
    text = number(result.get(key))
    if key + "_quartiles" in result:
        low, high = result[key + "_quartiles"]
        text += f" [{number(low)}, {number(high)}]"
    return text


def markdown(rows):
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    rows.insert(1, ["-" * width for width in widths])
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths))
        for row in rows
    ]
    return "".join(f"| {line} |\n" for line in lines)


def time_text(result):
    seconds = result["seconds"]
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1 or unit == "us":
            return f"{seconds * scale:.3g} {unit}"


def table(title, results, keys):
    """`keys`: figures and their headings; those that nobody has are left."""
    keys = {
        key: heading
        for key, heading in keys.items()
        if any(key in result for result in results)
    }
    rows = [["case", "time", *keys.values()]]
    for result in results:
        time = time_text(result) if "seconds" in result else ""
        figures = [with_quartiles(result, key) for key in keys]
        rows.append([result["name"], time, *figures])
    return f"\n{title}\n\n{markdown(rows)}" if results else ""


def tables(results):
    def named(*prefixes):
        return [r for r in results if r["name"].startswith(prefixes)]

    steps = [
        r
        for r in results
        if "ratio_local" in r and not r["name"].startswith("wire_")
    ]
    return (
        table(
            "Steps, as ratios [quartiles]",
            steps,
            {
                "ratio_local": "over local",
                "ratio_python": "over Python DDP",
                "ratio_c10d": "over c10d",
                "us_per_parameter": "us per parameter over local",
            },
        )
        + table(
            "All-reduces of two ranks",
            named("all_reduce_"),
            {
                "ratio_memcpy": "over memcpy",
                "ratio_in_place": "over the bare sum",
                "ratio_gloo": "over gloo",
                "ratio_mpi": "over MPI",
            },
        )
        + table(
            "Checkpoints of 105 MB",
            named("save_", "load_"),
            {
                "ratio_python": "over Python's",
                "ratio_disk": "over plain write + fsync, or read",
                "ratio_memcpy": "over memcpy",
            },
        )
        + table(
            "Data loaders; the time is an epoch's",
            named("loader_"),
            {
                "us_per_sample": "us per sample",
                "ratio_libtorch": "over LibTorch's",
                "ratio_python": "over Python's",
            },
        )
        + table(
            "Between hosts of two ranks",
            named("wire_"),
            {
                "ratio_limit": "over the network's limit",
                "ratio_gloo": "over gloo",
                "ratio_local": "over local",
                "hidden_share": "share hidden",
            },
        )
        + table(
            "Ranks on one host; the time is a step's",
            named("ranks_"),
            {
                "form_ms": "ms to form the group",
                "reducer_ms": "ms to construct the Reducer",
                "pss_mib": "PSS MiB",
                "threads": "threads",
                "descriptors": "descriptors",
            },
        )
        + table(
            "Others",
            named("sampler", "memory_", "launch"),
            {
                "ratio_randperm": "over randperm",
                "memory_ratio_randperm": "its memory over randperm's",
                "peak_mib": "peak MiB",
                "pss_mib": "PSS MiB",
                "extra_copies": "gradients' copies above local, by peak",
                "extra_copies_pss": "by PSS",
                "ratio_torchrun": "over torchrun",
                "ratio_mpirun": "over mpirun",
                "ratio_fork+exec": "over fork+exec",
            },
        )
    )


def target_table(targets):
    rows = [["case", "what", "at most", "is", ""]]
    for target in targets:
        rows.append(
            [
                *(target["case"], target["what"], number(target["target"])),
                *(number(target["value"]), target["verdict"]),
            ]
        )
    return "\nTargets\n\n" + markdown(rows)
