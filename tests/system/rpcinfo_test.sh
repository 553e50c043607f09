#!/bin/sh
# flyt-server answers a stock ONC RPC tool: rpcinfo makes the null call by address, without a port mapper, and finds the
# program by its number where it is registered with one.
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

# With --rpcbind tools find it by its number: before an rpcbind of the test's own, where the machine lets root have one.
command -v rpcbind >/dev/null && command -v ip >/dev/null && [ "$(id -u)" = 0 ] &&
    unshare -n -m --propagation private sh -c 'mount -t tmpfs tmpfs /run && ip link set lo up' 2>/dev/null || {
    echo "no rpcbind, not root, or no namespaces here: registration is not looked at"
    exit 0
}
BUILD=$build unshare -n -m --propagation private sh -eu <<'INNER'
mount -t tmpfs tmpfs /run
ip link set lo up
children=
trap '[ -z "$children" ] || kill $children; wait' EXIT
fail() {
    echo "$*"
    cat /run/*.log
    exit 1
}
# Ends one of the children. Its status.
end() {
    rest=
    for child in $children; do [ $child = $1 ] || rest="$rest $child"; done
    children=$rest
    kill $1 && wait $1
}
# Waits for a command to succeed, for as long as a loaded machine may take.
within() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "never: $*"
        sleep 0.1
    done
}
# serve NAME: its process in $pid, its port in $port
serve() {
    mkfifo /run/$1.ready
    "$BUILD/bin/flyt-server" --rpcbind --listen unix:///run/$1 --listen tcp://127.0.0.1:0 --soft 1 >/run/$1.ready 2>/run/$1.log &
    pid=$! children="$children $!"
    { read -r _ _ && read -r _ url; } </run/$1.ready || fail "$1 does not start"
    port=${url##*:}
}
registered() {
    rpcinfo -p 127.0.0.1 | awk '$1 == 536874775 && $2 == 1 && $3 == "tcp" { print $4 }'
}
rpcbind -f </dev/null >/run/rpcbind.log 2>&1 &
rpcbind=$! children=$!
within test -S /run/rpcbind.sock
serve first
first=$pid
[ "$(registered)" = "$port" ] || fail "registered: $(registered), not $port"
rpcinfo -T tcp 127.0.0.1 536874775 | grep -q 'version 1 ready and waiting' || fail "it is not found by its number"
serve second
[ "$(registered)" = "$port" ] || fail "registered: $(registered), not the newer one's $port"
end $first || fail "the first one's end"
[ "$(registered)" = "$port" ] || fail "registered: $(registered), after the end of the older one"
end $pid || fail "the second one's end"
[ -z "$(registered)" ] || fail "still registered: $(registered)"
# What cannot be registered is said in one sentence.
refused() {
    status=0
    "$BUILD/bin/flyt-server" --rpcbind --listen "$1" --soft 1 >/run/refused.log 2>&1 || status=$?
    [ $status = 1 ] && [ "$(wc -l </run/refused.log)" = 1 ] && grep -q "$2" /run/refused.log || fail "status $status of --listen $1"
}
refused unix:///run/third 'registers a tcp port, and none'
end $rpcbind || true
refused tcp://127.0.0.1:0 'rpcbind does not register program 536874775'
INNER
