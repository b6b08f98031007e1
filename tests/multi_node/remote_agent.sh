#!/bin/bash
# What mpirun calls in place of ssh: remote_agent.sh [OPTION...] HOST COMMAND...
# HOLDERS has the process that holds each host's namespaces.
set -eu
while [[ ${1:-} == -* ]]; do shift; done
host=$1 holders=($HOLDERS)
shift
exec nsenter --target "${holders[${host#n}]}" --net --uts bash -c "$*"
