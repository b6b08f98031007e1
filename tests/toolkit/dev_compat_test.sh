#!/usr/bin/env bash
# ./dev compat prints which versions of LibTorch pass, and keeps that table in
# README.md. Nothing is built: versions, downloads and builds are made up.
# Usage: dev_compat_test.sh SOURCE_FOLDER
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/dev_fixture.sh"

root=$work/root cache=$work/cache/ddp
mkdir -p "$root/cmake" "$work/fails" "$work/tests"
cp -- "$source/cmake/compat.py" "$root/cmake"
cat >"$root/cmake/compat.ini" <<'END'
[DEFAULT]
compiler = g++
standard = 17
supported = yes
cmake =
note =
targets = compat_tests
[old]
torch = 1.0.1
pip = torch==1.0.1 more==2
supported = no
[own]
torch = 9.9.9
pip = torch==9.9.9
note = the default
[own-20]
torch = 9.9.9
pip = torch==9.9.9
standard = 20
cmake = -DSTANDARD=20
  -DMORE=1
[own-aarch64]
torch = 9.9.9
pip = torch==9.9.9
compiler = aarch64-linux-gnu-g++
targets = ddp ddprun_core
[own-none]
torch = 9.9.9
pip = torch==9.9.9
compiler = no-compiler
END
printf '#!/bin/sh\n' | tee "$work/bin/g++" >"$work/bin/aarch64-linux-gnu-g++"
chmod +x "$work/bin/"*
cat >"$root/README.md" <<'END'
before
<!-- compat -->
<!-- end of compat -->
after
END
sed -i 's/^\(readonly torch_version=\)[0-9.]*/\19.9.9/' "$root/dev"
cat >>"$root/dev" <<'END'
setup_packages() { :; }
ensure_venv() { # NAME PART MEGABYTES TITLE PIP_ARGUMENT...
  venv=$(cache_folder)/$1
  echo "pip ${*:5}" >>"$log"
  [[ ! -e $fails/download ]] || return 1
  mkdir -p "$venv/lib/python3/site-packages/torch"
}
configure() { # FOLDER CMAKE_ARGUMENT...
  echo "cmake ${*:2}" >>"$log"
  mkdir -p "$1/CMakeFiles/3.0"
  echo 'set(CMAKE_CXX_COMPILER_VERSION "12.3.0")' \
    >"$1/CMakeFiles/3.0/CMakeCXXCompiler.cmake"
  echo "-std=gnu++$([[ $* == *=20* ]] && echo 20 || echo 17) -o x/ddp.dir/y" \
    >"$1/compile_commands.json"
}
step() { # NAME ...
  case $1 in
    *-tests) cp -- "$tests/$name.xml" "$folder/tests.xml" ;;
    *) [[ ! -e $fails/$name ]] ;;
  esac
}
"run_$@"
END

tests() { # FILE NAME STATUS...
  local file=$1
  shift
  echo '<testsuite>' >"$file"
  while (($#)); do
    echo "<testcase name=\"$1\" status=\"$2\"/>" >>"$file"
    shift 2
  done
  echo '</testsuite>' >>"$file"
}
tests "$work/tests/old.xml" a run b fail
tests "$work/tests/own.xml" a run b run c notrun
tests "$work/tests/own-20.xml" a run b run

compat() { # ARGUMENT...; sets `code`, and writes `table` and `errors`
  code=0
  : >"$work/log"
  (cd -- "$root" && env log="$work/log" fails="$work/fails" \
    tests="$work/tests" XDG_CACHE_HOME="$work/cache" \
    PATH="$work/bin:$PATH" bash ./dev compat "$@") >"$work/table" 2>"$work/errors" || code=$?
}

has_row() { # FILE ROW
  expect "a row in $1: $2" grep -qxF -- "$2" "$1"
}

compat --nonsense
expect 'an unknown option is misuse' test "$code" = 2
compat old 2.0
expect 'an unknown version is misuse' test "$code" = 2
expect 'the known ones are named' grep -q "'2.0'.* old, own, own-20" "$work/errors"
expect 'nothing is downloaded then' test ! -s "$work/log"

mkdir -p "$cache/torch-9.9.9"
touch "$work/fails/own-20"
compat --write
expect 'a supported one that does not build fails' test "$code" = 1
for page in "$work/table" "$root/README.md"; do
  has_row "$page" '| 1.0.1 | 17 | GCC 12.3.0 | yes | 1/2 | failed: b |'
  has_row "$page" '| 9.9.9 | 17 | GCC 12.3.0 | yes | 2/2 | the default; 1 skipped |'
  has_row "$page" '| 9.9.9 | 20 | GCC 12.3.0 | no | | build failed |'
  has_row "$page" '| 9.9.9 | 17 | GCC for aarch64 12.3.0 | yes | not run | |'
  has_row "$page" '| 9.9.9 | 17 | no-compiler | not run | | no-compiler was not found |'
done
expect 'the page is kept around the table' \
  test "$(sed -n '1p;$p' "$root/README.md" | tr '\n' ' ')" = 'before after '
expect 'pip gets what the entry has' \
  grep -qx 'pip --no-deps torch==1.0.1 more==2' "$work/log"
expect 'CMake gets what the entry has' \
  grep -q ' -DSTANDARD=20 -DMORE=1$' "$work/log"
expect 'a download is removed' test ! -e "$cache/torch-1.0.1"
expect 'one that was there stays' test -e "$cache/torch-9.9.9"

rm -- "$work/fails/own-20"
compat --write own-20
expect 'what was tried passes' test "$code" = 0
has_row "$work/table" '| 9.9.9 | 17 | GCC | not run | | the default |'
has_row "$work/table" '| 9.9.9 | 20 | GCC 12.3.0 | yes | 2/2 | |'
has_row "$root/README.md" '| 9.9.9 | 20 | GCC 12.3.0 | yes | 2/2 | |'
has_row "$root/README.md" '| 9.9.9 | 17 | GCC 12.3.0 | yes | 2/2 | the default; 1 skipped |'

compat --keep old
expect 'one that is not supported may fail' test "$code" = 0
expect '--keep keeps its download' test -e "$cache/torch-1.0.1"
touch "$work/fails/download"
compat own
expect 'without a download it was not run' grep -q \
  '^| 9.9.9 | 17 | GCC.* | not run | | .*not downloaded |$' "$work/table"
expect 'and fails' test "$code" = 1

# What the build and the page say of versions is what was tried, and one header
# asks for LibTorch's version.
python3 -B - "$source" <<'END'
import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
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
        for path in (source / folder).rglob("*.[hc]*")
        if re.search("TORCH_VERSION_M|C10D_BACKEND_HAS", path.read_text())}
assert asks == {"ddp/support/torch_version.h"}, f"these ask for the version: {asks}"
END
