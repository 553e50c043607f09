#!/bin/sh
# usage: tests/vm/kernel.sh FOLDER
#
# Sees to a kernel with its modules for the guest: this machine's own, where it can be read, or Debian's kernel for virtual
# machines, unpacked into FOLDER. Nothing is installed, and no root is needed. Status 2 with one line on stderr where there
# is none to be had.
set -eu
folder=$1
package=linux-image-cloud-amd64

give_up() {
    echo "flyt: no kernel for the guest: $*" >&2
    exit 2
}

for root in "$folder" /; do
    for image in "$root"/boot/vmlinuz-*; do
        [ -r "$image" ] && [ -d "$root/lib/modules/${image##*/vmlinuz-}/kernel" ] && exit 0
    done
done
[ "$(uname -m)" = x86_64 ] || give_up "the guest is of x86_64"
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    give_up "unpack one with its modules and say FLYT_VM_KERNEL=FOLDER (boot and lib/modules are in it)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The package's name has a version; the one without it only depends on it. Lists that root has not fetched are fetched here.
version() {
    apt-cache "$@" depends "$package" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1
}
own=
name=$(version)
if [ -z "$name" ]; then
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    own="-o Dir::State::Lists=$work/lists -o Dir::Cache=$work/cache -o APT::Sandbox::User="
    apt-get $own update >"$work/log" 2>&1 || give_up "apt-get update: $(tail -n 1 "$work/log")"
    name=$(version $own)
fi
[ -n "$name" ] || give_up "$package is in none of this machine's package lists"
echo "fetching $name"
(cd "$work" && apt-get $own -o APT::Sandbox::User= download "$name") >"$work/log" 2>&1 ||
    give_up "apt-get download $name: $(tail -n 1 "$work/log")"
mkdir -p "$work/unpacked" "$folder"
dpkg-deb -x "$work"/linux-image-*.deb "$work/unpacked"
cp -R "$work/unpacked/lib" "$folder/"
cp -R "$work/unpacked/boot" "$folder/"  # last: the kernel is what is looked for
