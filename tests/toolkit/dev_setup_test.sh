#!/usr/bin/env bash
# ./dev setup says what it will install, and asks once on a terminal.
# Usage: dev_setup_test.sh SOURCE_FOLDER
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/dev_fixture.sh"

# What setup would do.
cat >"$work/root/setup" <<'EOF'
cd "${0%/*}" && source ./dev
missing_of() { echo some-package; }
find_users_torch() { torch=/somewhere; }
setup_packages() { touch installed; }
setup_torch() { echo "torch for $1"; }
run_setup "$@"
EOF

# ANSWER, none without a terminal; ARGUMENTS...
setup() {
  local answer=$1
  shift
  rm -f -- "$work/root/installed"
  if [[ -z $answer ]]; then
    bash "$work/root/setup" "$@" </dev/null >"$work/log" 2>&1 || true
  else
    printf '%s\n' "$answer" |
      script -qec "bash '$work/root/setup' $*" /dev/null >"$work/log" || true
  fi
}

setup no
expect 'it says what it will install' grep -q some-package "$work/log"
expect 'it asks on a terminal' grep -q 'install them?' "$work/log"
expect 'a no installs nothing' test ! -e "$work/root/installed"
setup yes
expect 'a yes installs' test -e "$work/root/installed"
setup no --yes
expect '--yes asks nothing' test -e "$work/root/installed"
setup '' --yes --full
expect '--full takes all of torch' grep -q 'torch for python' "$work/log"
CI=true setup no
expect 'CI=true asks nothing' test -e "$work/root/installed"
setup ''
expect 'it asks nothing without a terminal' test -e "$work/root/installed"
expect 'it says it all the same' grep -q some-package "$work/log"
