#!/usr/bin/env bash
# ./dev downloads what training on CPUs takes of LibTorch, and the rest, into the
# same folder, where Python's torch is wanted or there are GPUs.
# Usage: dev_download_test.sh SOURCE_FOLDER
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/dev_fixture.sh"

# A Python whose pip notes what it is asked for; it fails where "fails" exists.
cat >"$work/bin/python3" <<EOF
#!/bin/sh
case "\$*" in
  -c*) exit 0 ;;
  *" venv "*)
    mkdir -p "\$3/bin" "\$3/lib/python3.11/site-packages"
    cp "$work/bin/python3" "\$3/bin/python"
    cp "$work/bin/python3" "\$3/bin/python3"
    ;;
  *" pip "*)
    echo "\$*" >>"$work/log"
    [ ! -e "$work/fails" ] || exit 1
    torch=\$(dirname "\$0")/../lib/python3.11/site-packages/torch
    mkdir -p "\$torch/share/cmake/Torch"
    touch "\$torch/share/cmake/Torch/TorchConfig.cmake"
    ;;
esac
EOF
chmod +x "$work/bin/python3"

# Sets `parts` to what pip was asked for, and `python` to what came of it.
set_up() { # own|python [GPUS]
  : >"$work/log"
  python=$(cd "$work/root" && PATH=$work/bin:$PATH XDG_CACHE_HOME=$work/cache \
    bash -c 'source ./dev; gpus=$2
      has_nvidia() { [[ -n $gpus ]]; }
      setup_torch "$1" && echo "$python"' - "$1" "${2:-}") || python=failed
  parts=$(sed -n 's/.*torch-cpu.txt.*/libtorch/p; s/.*torch==.*/python/p' \
    "$work/log" | tr '\n' ' ')
}

set_up own
expect 'training takes LibTorch alone' test "$parts" = 'libtorch '
expect 'its hashes are compared' grep -q require-hashes "$work/log"
expect 'without the rest there is no Python for tests' test -z "$python"
set_up own
expect 'it is downloaded once' test -z "$parts"
touch "$work/fails"
set_up python
expect 'a download that fails is told' test "$python" = failed
rm -- "$work/fails"
set_up own
expect 'LibTorch stays where the rest fails' test -z "$parts"
set_up python
expect 'tests take the rest' test "$parts" = 'python '
expect 'tests have a Python' test -x "$python"
set_up own
expect 'nothing is downloaded again' test -z "$parts"
expect 'what is there is used' test -x "$python"
rm -r -- "$work/cache"
set_up own gpus
expect 'for GPUs all is taken at once' test "$parts" = 'libtorch python '

# The versions are those of the build.
version=$(sed -n 's/.*torch_version=\([0-9.]*\).*/\1/p' "$source/dev")
expect 'the hashes are of the version that is used' \
  grep -q "^torch==$version " "$source/cmake/torch-cpu.txt"
