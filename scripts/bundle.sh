#!/bin/sh
# usage: bundle.sh BUILD_FOLDER CUDA_PATH VERSION
# Makes BUILD_FOLDER/bundle/flyt: one relocatable folder with the programs, the libraries and everything that they
# need but glibc, the test programs and the benchmarks. Runs on x86-64 Linux with glibc 2.36 or later. A store in
# MongoDB is left out: its libraries alone are 40 MB.
set -eu
build=$1 cuda=$2 version=$3
out=$build/bundle/flyt
rm -rf "$out.new"
mkdir -p "$out.new/bin" "$out.new/lib" "$out.new/needed" "$out.new/native" "$out.new/nvml" "$out.new/tests" "$out.new/bench"

programs="flyt-server flyt-cluster-manager flyt-node-manager flyt-client-manager flytctl flyt-smi"
for program in $programs; do
    cp "$build/bin/$program" "$out.new/bin/"
done
cp scripts/flyt-run scripts/flyt-client-lib scripts/flyt-gpu-test scripts/flyt-pki "$out.new/bin/"
cp -L "$build"/lib/libflyt-client.so.1 "$build"/lib/libcu*.so.[0-9]* "$build/lib/libnccl.so.2" "$build"/lib/libflyt-softgpu.so "$build"/lib/libflyt-softgpu-libraries.so "$out.new/lib/"
# In a folder of its own, for programs that link to it.
cp -L "$build/lib/libnvidia-ml.so.1" "$out.new/nvml/"
cp -L "$cuda/lib64/libcudart.so.13" "$out.new/native/"
find "$build/tests/apps" -maxdepth 1 -type f ! -name '*.o' ! -name '*.d' -exec cp {} "$out.new/tests/" \;
cp tests/bench/run "$out.new/bench/"
find "$build/tests/bench" -maxdepth 1 -type f -perm -u+x ! -name control_load -exec cp {} "$out.new/bench/" \;
echo "$version" >"$out.new/VERSION"
cp LICENSE "$out.new/"

# Everything that the objects need beside glibc's own libraries comes along. Programs find it in needed: in lib the server would find
# Flyt's libraries where it looks for NVIDIA's.
for object in $(printf "$out.new/bin/%s " $programs) "$out.new"/lib/*.so* "$out.new"/nvml/*.so*; do
    ldd "$object" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p'
done | sort -u | while read -r needed; do
    name=$(basename "$needed")
    case $name in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | ld-linux* | libflyt-* | libcu* | libnccl* | libnvidia-ml*) ;;
    *)
        cp -L "$needed" "$out.new/lib/"
        ln -s "../lib/$name" "$out.new/needed/$name"
        ;;
    esac
done
for object in "$out.new"/lib/*.so*; do
    chmod u+w "$object"
    patchelf --set-rpath '$ORIGIN' "$object"
done
for program in $programs; do
    patchelf --set-rpath '$ORIGIN/../needed' "$out.new/bin/$program"
done
patchelf --set-rpath '$ORIGIN/../nvml:$ORIGIN/../needed' "$out.new/bin/flyt-smi"
patchelf --set-rpath '$ORIGIN/../lib' "$out.new/nvml/libnvidia-ml.so.1"
find "$out.new" -type f -exec sh -c 'strip --strip-unneeded "$1" 2>/dev/null || true' sh {} \;

kbytes=$(du -sk "$out.new" | cut -f1)
[ "$kbytes" -le 49152 ] || { echo "bundle.sh: $kbytes KiB is more than 48 MiB" >&2; exit 1; }
rm -rf "$out"
mv "$out.new" "$out"
echo "bundle: $out ($kbytes KiB)"
