#!/bin/bash
# Stands in for ssh: remote_shell.sh HOST LINE. As there, what runs on the host
# knows little of this environment and dies neither with this shell nor by its
# signals, but sees the end of its standard input.
# HOLDERS has the process that holds each host's namespaces.
set -u
host=$1 holders=($HOLDERS)
shift
holder=${holders[${host#n}]:-}
if [[ -z $holder ]]; then
  echo "connect to host $host port 22: No route to host" >&2
  exit 255
fi
env -i PATH="$PATH" TMPDIR="$TMPDIR" setsid --wait \
  nsenter --target "$holder" --net --uts bash -c "$*" < <(exec cat)
