#!/bin/sh
# Sees to the Debian packages that building and testing need. Says what it installs; needs root only when something is
# missing; where it cannot install, it says exactly what to type. Run by `make demo` and `make test`. `bootstrap.sh vm` sees to
# those of the virtual machine of `make vm-test` instead.
set -eu

packages="gcc g++ make python3 pkg-config libtirpc-dev rpcsvc-proto libsystemd-dev libconfig-dev libcjson-dev libsqlite3-dev libmongoc-dev libmicrohttpd-dev libssl-dev openssl libcmocka-dev libopenblas0 libfftw3-double3 libfftw3-single3 libzstd-dev liblz4-dev patchelf util-linux procps iproute2 rpcbind"
cuda=${CUDA_PATH:-/usr/local/cuda}

if ! [ -x "$cuda/bin/nvcc" ] || ! [ -e "$cuda/include/cuda.h" ]; then
    echo "flyt: no CUDA toolkit in $cuda (nvcc and cuda.h): install CUDA 13, or say CUDA_PATH=FOLDER" >&2
    exit 2
fi
# A system that is not Debian's: trust what pkg-config and PATH find, and name what they do not.
if ! command -v dpkg-query >/dev/null 2>&1; then
    [ "${1:-}" != vm ] || exit 0
    missing=
    for tool in gcc g++ make python3 rpcgen patchelf pkg-config openssl; do
        command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
    done
    for module in libtirpc libsystemd libconfig libcjson sqlite3 libmongoc-1.0 libmicrohttpd openssl cmocka libzstd liblz4; do
        pkg-config --exists "$module" 2>/dev/null || missing="$missing $module"
    done
    [ -z "$missing" ] && exit 0
    echo "flyt: missing:$missing. Install your distribution's packages of these (submodules/README.md says how to build them)" >&2
    exit 2
fi

[ "${1:-}" != vm ] || packages="qemu-system-x86 busybox-static cpio"
missing=
for package in $packages; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    echo "flyt: these packages are missing and need root to install. Type:" >&2
    echo "    sudo apt-get update && sudo apt-get install --no-install-recommends$missing" >&2
    exit 2
fi
echo "flyt: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $as_root apt-get update && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "flyt: apt-get could not install$missing (its last lines are above)" >&2
    exit 2
fi
