#!/bin/sh
# Compiles one CUDA program of the tests.
#
# usage: tests/compile.sh OUTPUT SOURCE [FURTHER SOURCE OR FLAG OF NVCC...]
#
# A line `// nvcc: FLAGS` in the head of SOURCE adds flags. Reading the standard library's headers is most of nvcc's time, and
# C++11 has half of C++17's: who needs another one says so by -std in that line. What has no code for a device is compiled for
# the host alone, which takes a fifth of the time. CUDA_PATH, NVCC: the toolkit and its compiler.
set -eu
output=$1 source=$2
shift 2
flags=$(sed -n 's,^// nvcc: *,,p' "$source")
sources=$source
for word; do
    case $word in *.cu) sources="$sources $word" ;; esac
done
case " $flags $*" in *" -std="*) ;; *) flags="-std=c++11 $flags" ;; esac
case " $flags $*" in *" -cudart "*) ;; *) flags="-cudart shared $flags" ;; esac
# shellcheck disable=SC2086 # words are words
if [ "${source%.cu}" != "$source" ] && ! grep -qE '__(global|device|managed|constant)__|<<<|"image.h"' $sources; then
    flags="-x c++ -include cuda_runtime.h $flags"
fi
mkdir -p "$(dirname "$output")"
# Libraries come after the sources that need them.
# shellcheck disable=SC2086
exec "${NVCC:-$CUDA_PATH/bin/nvcc}" -Werror all-warnings -Xcompiler -Wall,-Wextra,-Wno-unused-parameter \
    -I. -Itests/apps -L"$CUDA_PATH/lib64/stubs" -o "$output" "$source" "$@" $flags
