#!/usr/bin/env bash
# What `./dev package` makes is unpacked elsewhere, with LibTorch elsewhere too,
# and a user without root builds and runs a program with it as two processes.
# Usage: packages_test.sh SOURCE_FOLDER TORCH_DIR
set -euo pipefail
source=$1 torch=${2%/share/cmake/Torch}
consumer=$(realpath -- "$(dirname -- "${BASH_SOURCE[0]}")/../consumer")
command -v dpkg-deb >/dev/null || { echo 'skipped: no dpkg-deb' && exit 77; }
work=$(mktemp -d -t ddp-packages-XXXXXX)
trap 'rm -rf -- "$work"' EXIT
fail() { echo "$*" && exit 1; }

(umask 077 && Torch_DIR=$2 "$source/dev" package "$work/made")
for deb in "$work"/made/*.deb; do
  [[ $deb == *+torch*_*.deb ]] || fail "$deb does not name its LibTorch"
  dpkg -x "$deb" "$work/deb"
done
for part in libddp0.1_ libddp-dev_ ddprun_; do
  compgen -G "$work/made/$part*.deb" >/dev/null || fail "there is no $part"
done
for file in bash-completion/completions/ddprun doc/ddprun/copyright \
  zsh/vendor-completions/_ddprun; do
  [[ -e $work/deb/usr/share/$file ]] || fail "ddprun has no $file"
done
grep -q 'Niels Lohmann' "$work/deb/usr/share/doc/ddprun/copyright" ||
  fail 'there is no notice of the code of others'
if command -v help2man >/dev/null; then
  for name in ddprun ddp-checkpoint ddp-flightrecorder ddp-timeline; do
    zcat "$work/deb/usr/share/man/man1/$name.1.gz" | grep -q '^.TH' ||
      fail "$name has no manual page"
  done
fi
mkdir "$work/tar"
tar -xf "$work"/made/*.tar.gz -C "$work/tar"
# (Programs name sources in messages.)
if grep -rIlF -e "$source" -e "$torch" "$work/deb" "$work/tar"; then
  fail 'the files above name folders of the build'
fi

# LibTorch and the libraries that its wheel finds beside it, under another name.
mkdir -p "$work/moved/torch"
cp -al "$torch"/{include,lib,share} "$work/moved/torch" 2>/dev/null ||
  cp -a "$torch"/{include,lib,share} "$work/moved/torch"
if [[ -d $torch/../nvidia ]]; then
  cp -al "$torch/../nvidia" "$work/moved" 2>/dev/null ||
    cp -a "$torch/../nvidia" "$work/moved"
fi
cp -r -- "$consumer" "$work/consumer"
mkdir "$work/home"
as_user=()
if ((EUID == 0)); then
  as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  chown 65534:65534 "$work/home"
fi
chmod -R a+rX "$work/consumer"
chmod a+x "$work" "$work/moved" "$work/moved/torch"

# Neither the caches of who runs the test nor his programs.
run() { # COMMAND...
  (cd "$work/home" && env -i HOME="$work/home" OMP_NUM_THREADS=1 \
    PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/cuda/bin "${as_user[@]}" "$@")
}
! run test -w "$work/deb/usr/lib" || ((EUID)) || fail 'the prefix can be written'

configure() { # PREFIX CMAKE_ARGUMENT...
  run cmake -S "$work/consumer" -B build -G Ninja -DCMAKE_PREFIX_PATH="$@"
}

train() { # PREFIX LIBRARIES
  run env LD_LIBRARY_PATH="$2" "$1/bin/ddprun" --nproc-per-node 2 \
    build/consumer 2 model.safetensors | tee "$work/log"
  [[ $(grep -c 'of 2: gradient 1.5, expected 1.5' "$work/log") == 2 ]] ||
    fail "two processes did not train with $1"
  run env LD_LIBRARY_PATH="$2" "$1/bin/ddp-checkpoint" verify model.safetensors
}

# By the link, which a package does not have.
mkdir "$work/deb/usr/lib/ddp"
ln -s "$work/moved/torch" "$work/deb/usr/lib/ddp/torch"
configure "$work/deb/usr"
run cmake --build build --target consumer
train "$work/deb/usr" ''

# Without one, CMake and the loader are told; the program stays as it is.
prefix=$(echo "$work"/tar/*)
run rm -r build/CMakeCache.txt
configure "$prefix" -DTorch_DIR="$work/moved/torch/share/cmake/Torch"
train "$prefix" \
  "$prefix/lib:$work/moved/torch/lib:$work/moved/nvidia/cu13/lib"

# It has checked what ./dev made, or ./dev had failed.
command -v lintian >/dev/null || {
  echo 'skipped: lintian is missing; all other checks passed'
  exit 77
}
