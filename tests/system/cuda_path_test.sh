#!/bin/sh
# The build finds the CUDA toolkit: in /usr/local/cuda, where that is not there beside the nvcc of PATH, or where it is told.
set -eu
cd "$(dirname "$0")/../.."
fail() {
    echo "$*"
    exit 1
}
# is EXPECTED DIRECTORY_OF_NVCC [VARIABLE...]: the toolkit's folder, by what `make help` says.
is() {
    expected=$1 first=$2
    shift 2
    said=$(env -u CUDA_PATH -u MAKEFLAGS -u MAKELEVEL PATH="$first:/usr/bin:/bin" make --no-print-directory -s help "$@" |
        sed -n 's/^variables: CUDA_PATH=\([^ ]*\) .*/\1/p')
    [ "$said" = "$expected" ] || fail "CUDA_PATH is $said, not $expected, with $first on PATH and $*"
}
is /nonexistent /nowhere CUDA_PATH=/nonexistent

if [ -z "${FLYT_TEST_INSIDE-}" ]; then
    unshare -m --propagation private true 2>/dev/null || {
        echo "skip: no mount namespaces here: /usr/local cannot be hidden"
        exit 77
    }
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    FLYT_TEST_INSIDE=$work unshare -m --propagation private "$0"
    exit
fi
work=$FLYT_TEST_INSIDE
mkdir -p "$work/toolkit/bin" "$work/toolkit/include" "$work/links"
printf '#!/bin/sh\n' >"$work/toolkit/bin/nvcc"
chmod +x "$work/toolkit/bin/nvcc"
ln -s "$work/toolkit/bin/nvcc" "$work/links/nvcc"
mount -t tmpfs tmpfs /usr/local
is "$work/toolkit" "$work/toolkit/bin"
is "$work/toolkit" "$work/links"
is /usr/local/cuda /nowhere
is /elsewhere "$work/links" CUDA_PATH=/elsewhere
mkdir -p /usr/local/cuda
is /usr/local/cuda "$work/links"
