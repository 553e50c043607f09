#!/bin/sh
# usage: demo.sh BUILD_FOLDER
# Runs four CUDA programs through one flyt-server: on this machine's GPU, or, said openly, on the software GPU where there
# is none. Then brings up a whole system with three VMs (tests/demo/whole_system.py).
set -eu
build=$(cd "$1" && pwd)
here=$(dirname "$(readlink -f "$0")")
pictures=$build/demo
mkdir -p "$pictures"
work=$(mktemp -d)
server_pid=
finish() {
    if [ -n "$server_pid" ]; then
        kill "$server_pid" 2>/dev/null || true
        wait "$server_pid" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT

echo "==== One flyt-server, without a control plane (direct mode) ===="
echo
if nvidia-smi -L >"$work/gpus" 2>/dev/null && [ -s "$work/gpus" ]; then
    devices=
    echo "This machine has a GPU: $(head -n 1 "$work/gpus" | sed 's/ (UUID.*//'). The programs' kernels run on it."
else
    devices="--soft 1"
    echo "This machine has no NVIDIA GPU. The programs' kernels run on Flyt's software GPU: the same programs and the same"
    echo "forwarding, executed by the CPU. With a GPU, the same command uses the GPU."
fi
mkfifo "$work/ready"
"$build/bin/flyt-server" --listen tcp://127.0.0.1:0 $devices >"$work/ready" 2>"$work/log" &
server_pid=$!
read -r word url <"$work/ready" || true
if [ "$word" != listening ]; then
    cat "$work/log" >&2
    echo "demo: flyt-server did not start (its lines are above)" >&2
    exit 1
fi
echo "flyt-server (process $server_pid) listens at $url; each program below is an ordinary CUDA program, compiled by"
echo "plain \`nvcc -cudart shared\`, that finds Flyt's libcudart.so.13 in the place of NVIDIA's (flyt-run does that)."
echo

failures=0
for program in nbody mandelbrot matrix histogram; do
    # What the program says of itself in its first comment.
    sed -n '0,/\*\//p' "$here/../tests/demo/$program.cu" | sed "1s|^/\* *|$program: |; s|^ \* *|    |; s| *\*/\$||"
    picture=
    case $program in nbody | mandelbrot) picture=$pictures/$program.png ;; esac
    rm -f "$work/stats"
    if ! FLYT_LIB_DIR=$build/lib FLYT_STATS=$work/stats "$here/flyt-run" --server "$url" -- "$build/tests/demo/$program" $picture; then
        failures=$((failures + 1))
        echo "    FAILED"
    fi
    [ -s "$work/stats" ] && sed 's/^/    forwarded: /' "$work/stats"
    echo
done
if [ "$failures" != 0 ]; then
    echo "$failures of 4 programs failed; the server's log:"
    cat "$work/log"
    exit 1
fi
echo "All four results are correct. Your own program: scripts/flyt-run --soft 1 -- PROGRAM, or --server URL."
echo
echo "==== The whole system: GPUs for virtual machines ===="
echo
FLYT_BUILD=$build PYTHONDONTWRITEBYTECODE=1 python3 "$here/../tests/demo/whole_system.py"
