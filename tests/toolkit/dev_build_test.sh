#!/usr/bin/env bash
# ./dev builds one at a time, configures again only where something it depends on
# has changed, and builds nothing for a folder that cannot be written. Long runs
# take as long as they are asked to, and go on where they were cut.
# Usage: dev_build_test.sh SOURCE_FOLDER
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/dev_fixture.sh"

# A CMake that notes what it is asked for, and whether it is alone.
mkdir "$work/cuda"
cat >"$work/bin/cmake" <<EOF
#!/bin/sh
case "\$1" in
  --build) what=build ;;
  *) what=configure; mkdir -p build/release ;;
esac
mkdir "$work/busy" 2>/dev/null || what="\$what beside another"
echo "\$what" >>"$work/log"
# Until the other one of two waits.
i=0
while [ -e "$work/two" ] && [ \$i -lt 300 ] &&
  ! grep -q 'waiting for another ./dev' "$work/first" "$work/second"; do
  sleep 0.1
  i=\$((i + 1))
done
rmdir "$work/busy" 2>/dev/null || true
EOF
printf '#!/bin/sh\n' >"$work/cuda/nvcc"
chmod +x "$work/bin/cmake" "$work/cuda/nvcc"

build() { # PATH
  (cd "$work/root" && PATH=$1 CMAKE_PREFIX_PATH=$work/torch bash -c \
    'source ./dev; build_targets own')
}

toolkit=$work/cuda
[[ ! -e /usr/local/cuda/bin/nvcc ]] || toolkit=/usr/local/cuda/bin
# Debian's toolkit is in /usr/bin.
mkdir "$work/tools"
ln -s /usr/bin/* "$work/tools"
rm -f -- "$work/tools/nvcc"
with=$work/bin:$toolkit:$work/tools without=$work/bin:$work/tools
build "$with"
build "$with"
expect 'what is configured is not configured again' \
  test "$(<"$work/log")" = configure$'\n'build$'\n'build
build "$without"
expect 'a PATH without the CUDA toolkit changes nothing' \
  test "$(grep -c configure "$work/log")" = 1

: >"$work/log"
touch "$work/two" "$work/first" "$work/second"
build "$with" 2>"$work/first" &
build "$with" 2>"$work/second" &
wait %1
wait %2
expect 'two builds take turns' test "$(<"$work/log")" = build$'\n'build
expect 'the one that waits says so' \
  grep -q 'waiting for another ./dev' "$work/first" "$work/second"
rm -- "$work/two"

: >"$work/log"
(cd "$work/root" && PATH=$with CMAKE_PREFIX_PATH=$work/torch bash -c \
  'source ./dev; build_targets own; bash -c "source ./dev; build_targets own"')
expect 'one that another one runs does not wait for it' \
  test "$(<"$work/log")" = build$'\n'build

tidy() {
  (cd "$work/root" && bash -c 'source ./dev
    has() { :; }; setup_packages() { :; }; setup_torch() { :; }
    list_files() { :; }; lock_build() { echo locked; }
    configure_alone() { echo configured; }
    run_tidy')
}
expect './dev tidy configures when no other ./dev does' \
  test "$(tidy)" = locked$'\n'configured

# Also root cannot make a folder below a file.
for command in package wheel; do
  (cd "$work/root" && bash -c 'source ./dev
    setup_packages() { echo setup; exit; }
    "run_$1" "$0/made"' "$work/first" "$command") >"$work/log" 2>&1 || true
  expect "./dev $command says first that it cannot write" test "$(<"$work/log")" = \
    "dev: cannot write to $work/first/made: name another folder, as in ./dev $command /tmp/made"
done

long_run() { # COMMAND ARGUMENT...; with a program that would take hours
  mkdir -p "$work/root/build/log" "$work/root/build/fuzz"
  (cd "$work/root" && bash -c 'source ./dev
    setup_packages() { :; }; build_targets() { python=; }; run_ctest() { :; }
    has() { :; }; cmake() { echo "$*" >&3; }
    python3() { [[ $1 != -c ]] || { command python3 "$@"; return; }
      echo "seed $DDP_TEST_SEED, $DDP_TEST_MINUTES minutes"; }
    "$@"' _ "$@") 3>"$work/log"
}
expect 'a soak takes the hours and the seed' test \
  "$(long_run run_soak --hours 0.5 --seed 7)" = 'seed 7, 30.0 minutes'
expect 'the next one goes on with the next seed' test \
  "$(long_run run_soak)" = 'seed 8, 60 minutes'
long_run run_fuzz --seconds 5 >"$work/output" 2>&1
expect 'a fuzzer takes the seconds' grep -q 'DDP_FUZZ_SECONDS=5$' "$work/log"

# A precompiled header, and a source that includes its header again.
if command -v ccache >/dev/null; then
  mkdir "$work/cached"
  compile() { # COMMENT NAME
    (
      export CCACHE_DIR=$work/cache
      unset CCACHE_DISABLE CCACHE_DEPEND
      source "$work/root/dev"
      use_ccache
      cd "$work/cached"
      printf '#pragma once\n// %s\nstruct A {};\n' "$1" >a.h
      printf '#include "a.h"\n' >all.h
      printf '#include "a.h"\nA %s;\n' "$2" >a.cpp
      ccache c++ -x c++-header -MD -MF all.d -o all.h.gch -c all.h &&
        ccache c++ -include all.h -MD -MF a.d -o a.o -c a.cpp
    )
  }
  compile 'one comment' first
  expect 'a precompiled header knows a header of which a comment changed' \
    compile 'another comment' second
fi
