#!/usr/bin/env bash
# run.sh PROGRAM NODES: runs store_scale, or etcd_scale with an etcd on this
# host.
set -eu
[[ $1 == *etcd_scale ]] || exec "$1" "$2"
command -v etcd >/dev/null || { echo "skipped: there is no etcd"; exit 77; }
folder=$(mktemp -d)
trap 'kill $etcd; wait $etcd 2>/dev/null || true; rm -rf "$folder"' EXIT
port=$(python3 -c 'import random, socket
while True: # below the ports that connections of other tests get
    try:
        s = socket.create_server(("127.0.0.1", random.randint(10000, 32767)))
        break
    except OSError:
        pass
print(s.getsockname()[1])')
client=http://127.0.0.1:$port
setpriv --pdeathsig KILL etcd --data-dir "$folder/data" \
  --listen-client-urls "$client" --advertise-client-urls "$client" \
  --listen-peer-urls http://127.0.0.1:0 >"$folder/log" 2>&1 &
etcd=$!
until grep -qs "serving insecure client requests" "$folder/log"; do
  kill -0 $etcd
  sleep 0.1
done
"$1" "$2" 127.0.0.1 "$port"
