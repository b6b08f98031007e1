#!/usr/bin/env bash
# ./dev gpu-test says before it builds what is missing, and runs its stages.
# Usage: dev_gpu_test.sh SOURCE_FOLDER
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/dev_fixture.sh"

# A CMake and a CTest that note what they are asked for.
touch "$work/backends" "$work/fault"
cat >"$work/bin/cmake" <<EOF
#!/bin/sh
[ "\$1" = --build ] && exec echo build >>"$work/log"
mkdir -p build/release
echo configure >>"$work/log"
echo "-- ddp backends: \$(cat "$work/backends")"
EOF
cat >"$work/bin/ctest" <<EOF
#!/bin/sh
[ "\$1" != --help ] || exec echo '  -R <regex>, --tests-regex <regex>'
echo "ctest \$* by '\${DDP_TEST_COMMAND%% *}, \$DDP_TEST_NEEDS_GPU" >>"$work/log"
EOF
chmod +x "$work/bin/cmake" "$work/bin/ctest"

# On a machine that has a GPU and no nvcc, and what is in `fault` against it.
gpu_test() { # ARGUMENTS...
  : >"$work/log"
  (cd "$work/root" && PATH=$work/bin:$PATH CMAKE_PREFIX_PATH=$work/torch \
    bash -c 'source ./dev; has_gpu() { true; }; find_nvcc() { true; }
      driver_fault() { cat ../fault; }
      setup_packages() { true; }; run_gpu_test "$@"' _ "$@") \
    >"$work/output" 2>&1
}

echo 'gloo (CPU); no nccl: nccl.h was not found' >"$work/backends"
for try in first second; do # where nothing has changed either
  expect "without NCCL's header it fails" eval '! gpu_test --build'
  expect 'it names the header' grep -q 'nccl.h was not found' "$work/output"
  expect "at the $try try it looks, and builds nothing" \
    test "$(<"$work/log")" = configure
done

echo 'gloo (CPU), nccl (CUDA 13.0.88)' >"$work/backends"
expect 'it builds' gpu_test --build
expect 'and runs nothing' test "$(<"$work/log")" = configure$'\n'build
for stage in --build --test --bench; do
  echo 'cuInit returned 999' >"$work/fault"
  expect "without a driver $stage fails" eval "! gpu_test $stage"
  expect 'it says why' grep -q 'cannot use it: cuInit returned 999' "$work/output"
  expect 'it builds nothing for that' eval '! grep -q build "$work/log"'
done
: >"$work/fault"
if ! ldconfig -p | grep -q libcuda.so.1; then
  expect 'a driver that is not there is named in one line' test \
    "$(cd "$work/root" && bash -c 'source ./dev; driver_fault 13' |
      grep -c libcuda.so.1)" = 1
fi
if ! command -v compute-sanitizer >/dev/null; then
  expect 'without compute-sanitizer it fails' eval '! gpu_test --sanitize'
  expect 'it names the package' grep -q cuda-sanitizer-13-0 "$work/output"
  expect 'it builds nothing for that' test ! -s "$work/log"
fi
sanitizer() { # COMMAND
  printf '#!/bin/sh\n%s\n' "$1" >"$work/bin/compute-sanitizer"
  chmod +x "$work/bin/compute-sanitizer"
}
sanitizer ''
expect 'one that starts nothing is not used' eval '! gpu_test --sanitize'
expect 'it says so' grep -q 'cannot start a program' "$work/output"
sanitizer 'shift 2; "$@"'
expect 'it runs the tests' gpu_test --test
expect 'a test that finds no GPU fails' grep -q ', 1$' "$work/log"
expect 'the tests have a time limit' grep -q -- '--stop-time' "$work/log"
expect 'it runs tests under compute-sanitizer' gpu_test --sanitize -R '^gpu\.'
expect 'these tests' grep -q -- '-R .gpu.* by .*/bin/compute-sanitizer' \
  "$work/log"

# Of the benchmark, whose program ends with an exit code.
bench() { # CODE
  mkdir -p "$work/root/build/release/bench" "$work/root/docs"
  printf '#!/bin/sh\necho figures of now\nexit %s\n' "$1" \
    >"$work/root/build/release/bench/ddp_bench_gpu"
  chmod +x "$work/root/build/release/bench/ddp_bench_gpu"
  echo 'figures of before' >"$work/root/docs/gpu-results.md"
  gpu_test --bench
}
expect 'a benchmark that fails is seen to fail' eval '! bench 1'
expect 'it leaves the figures of before' \
  grep -q before "$work/root/docs/gpu-results.md"
echo 0a1b2c3 >"$work/root/.commit" # of a bundle, which is no repository
expect 'the benchmark runs' bench 0
expect 'it names that commit' grep -q 0a1b2c3 "$work/root/docs/gpu-results.md"
expect 'its figures are written' grep -q now "$work/root/docs/gpu-results.md"

expect 'a bundle is made' "$1/dev" bundle "$work/bundle"
commit=$(git -c safe.directory="$(realpath -- "$1")" -C "$1" rev-parse --short HEAD)
expect 'it has the commit' test "$(<"$work/bundle/.commit")" = "$commit"
