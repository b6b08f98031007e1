#!/usr/bin/env bash
# ./dev tries to install an optional package once, not in each command.
# Usage: dev_packages_test.sh SOURCE_FOLDER
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/dev_fixture.sh"

if grep -nE '/usr/lib/(x86_64|aarch64)-' "$source/dev"; then
  echo 'the lines above of ./dev name the folder of one architecture'
  exit 1
fi

# An apt-get that knows one package; no other machine's packages matter.
cat >"$work/bin/apt-get" <<EOF
#!/bin/sh
case " \$* " in
  *" --version "*) exit 0 ;;
  *" nowhere "*) echo "\$*" >>"$work/log"; exit 100 ;;
  *" install "*) echo "\$*" >>"$work/log"; touch "$work/installed" ;;
esac
EOF
printf '#!/bin/sh\nshift; exec "$@"\n' >"$work/bin/sudo"
chmod +x "$work/bin/"*
export PATH=$work/bin:$PATH

# Sets `attempts` to the installations that a command tries which can do with
# the package "somewhere", whose file is missing until it is installed, and with
# one that cannot be had.
run_command() {
  : >"$work/log"
  (cd "$work/root" && bash -c 'source ./dev
    setup_packages "somewhere:$1" nowhere:/no/such/file' - "$work/installed")
  attempts=$(wc -l <"$work/log")
}

run_command
expect 'the first command tries to install' test "$attempts" -gt 0
expect 'one package that cannot be had keeps no other away' \
  test -e "$work/installed"
run_command
expect 'the next command does not try again' test "$attempts" -eq 0
rm -- "$work/installed"
run_command
expect 'another package is tried, and that one alone' test "$attempts" -eq 1
