#!/bin/sh
# A program with 600 MB of fat binaries that uses two kernels uploads only what those need, and nothing the second
# time: read from the client's own count of bytes sent, on one flyt-server.
set -eu
cd "$(dirname "$0")/../.."
build=$PWD/${FLYT_BUILD:-build}
work=$(mktemp -d)
server_pid=
finish() {
    [ -n "$server_pid" ] && kill "$server_pid" 2>/dev/null && wait "$server_pid" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
mkfifo "$work/ready"
"$build/bin/flyt-server" --listen "unix://$work/socket" --soft 1 >"$work/ready" 2>"$work/log" &
server_pid=$!
read -r _ url <"$work/ready"
for turn in first second; do
    rm -f "$work/stats"
    FLYT_LIB_DIR=$build/lib FLYT_STATS=$work/stats scripts/flyt-run --server "$url" -- "$build/tests/bench/upload"
    cat "$work/stats"
    sent=$(sed -n 's/.*sent_bytes=\([0-9]*\).*/\1/p' "$work/stats")
    [ -n "$sent" ] || { echo "no sent_bytes in FLYT_STATS"; exit 1; }
    case $turn in
    first) [ "$sent" -gt 1900000 ] && [ "$sent" -lt 2200000 ] || { echo "first run sent $sent bytes, not two images of 1 MB"; exit 1; } ;;
    second) [ "$sent" -lt 100000 ] || { echo "second run sent $sent bytes: the images again"; exit 1; } ;;
    esac
done
