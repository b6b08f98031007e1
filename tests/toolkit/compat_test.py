"""What the build and the page say of versions of LibTorch is what ./dev compat
tries, and one header asks for LibTorch's version.

Usage: compat_test.py SOURCE_FOLDER
"""

import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
sys.dont_write_bytecode = True
sys.path.insert(0, str(source / "cmake"))
import compat

entries, names = compat.read_entries(source / "cmake/compat.ini", [])
page = (source / "README.md").read_text().split(compat.BEGIN + "\n")[1]
rows = compat.rows_in(page.split(compat.END)[0])
wanted = [compat.key_of(compat.first_cells(entries[name])) for name in names]
assert list(rows) == wanted, f"README.md: rows {list(rows)}, compat.ini: {wanted}"
oldest = min(tuple(map(int, entries[name]["torch"].split(".")[:2]))
             for name in names if entries[name].getboolean("supported"))
bound = re.search(r"DDP_TORCH_VERSION VERSION_LESS (\d+)\.(\d+)\)",
                  (source / "CMakeLists.txt").read_text())
assert tuple(map(int, bound.groups())) == oldest, f"CMakeLists.txt: not {oldest}"
asks = {path.relative_to(source).as_posix()
        for folder in ("bench", "checkpoint", "common", "ddp", "examples",
                       "launcher", "samplers", "tests")
        for path in (source / folder).rglob("*")
        if path.suffix in (".h", ".cpp", ".c")
        and re.search("TORCH_VERSION_M|C10D_BACKEND_HAS", path.read_text())}
assert asks == {"ddp/support/torch_version.h"}, f"these ask for the version: {asks}"
