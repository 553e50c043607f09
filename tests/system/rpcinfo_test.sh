#!/bin/sh
# flyt-server answers a stock ONC RPC tool: rpcinfo makes the null call by address, without a port mapper.
set -eu
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
command -v rpcinfo >/dev/null || { echo "rpcinfo (package rpcbind) is not installed"; exit 77; }
build=${FLYT_BUILD:-build}
work=$(mktemp -d)
server_pid=
finish() {
    [ -n "$server_pid" ] && kill "$server_pid" 2>/dev/null && wait "$server_pid" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
mkfifo "$work/ready"
"$build/bin/flyt-server" --listen tcp://127.0.0.1:0 --soft 1 >"$work/ready" 2>"$work/log" &
server_pid=$!
read -r _ url <"$work/ready"
port=${url##*:}
universal=127.0.0.1.$((port / 256)).$((port % 256))
rpcinfo -a "$universal" -T tcp 536874775 1 | tee "$work/out"
grep -q 'ready and waiting' "$work/out"
# Another version is refused by the RPC protocol's own error, with the versions that there are.
if rpcinfo -a "$universal" -T tcp 536874775 9 >"$work/out" 2>&1; then
    echo "version 9 was accepted"
    exit 1
fi
cat "$work/out"
grep -q 'low version = 1, high version = 1' "$work/out"
