#!/bin/sh
# usage: install.sh cluster|node|client, by `make install-…`, which says B, PREFIX, DESTDIR, UNIT_DIR and VERSION.
# Puts what a machine of this kind needs under DESTDIR: programs, libraries, units, users, manual pages, completion, and
# an example as /etc/flyt/KIND.conf where there is no such file. May be repeated; a changed configuration stays.
set -eu
kind=$1
cd "$(dirname "$0")/.."
root=${DESTDIR-}
share=$root$PREFIX/share

# put MODE FILE… FOLDER
put() {
    mode=$1
    shift
    for folder; do :; done
    mkdir -p "$folder"
    install -m "$mode" "$@"
}

manual() {
    for page; do
        for file in "config/man/$page".[1-8]; do
            [ -e "$file" ] || continue
            put 644 "$file" "$share/man/man${file##*.}/"
        done
    done
}

# Units, and the users and folders they need, with PREFIX put in.
units() {
    mkdir -p "$root$UNIT_DIR"
    for unit; do
        sed "s|@PREFIX@|$PREFIX|g" "config/systemd/$unit" >"$root$UNIT_DIR/.$unit.new"
        chmod 644 "$root$UNIT_DIR/.$unit.new"
        mv -f "$root$UNIT_DIR/.$unit.new" "$root$UNIT_DIR/$unit"
    done
    lib=$root${UNIT_DIR%/systemd/system}
    mkdir -p "$lib/sysusers.d" "$lib/tmpfiles.d"
    install -m 644 "config/systemd/flyt-$kind.sysusers" "$lib/sysusers.d/flyt-$kind.conf"
    install -m 644 "config/systemd/flyt-$kind.tmpfiles" "$lib/tmpfiles.d/flyt-$kind.conf"
}

# configuration NAME…: the example where there is none.
configuration() {
    mkdir -p "$root/etc/flyt"
    for name; do
        file=$root/etc/flyt/$name.conf
        if [ -e "$file" ]; then
            echo "$file stays as it is; the example is $share/doc/flyt/$name.conf"
        else
            sed "s|/usr/local/bin/|$PREFIX/bin/|g" "config/examples/$name.conf" >"$file.new"
            chmod 644 "$file.new"
            mv "$file.new" "$file"
        fi
        put 644 "config/examples/$name.conf" "$share/doc/flyt/"
    done
}

flytctl() {
    put 755 "$B/bin/flytctl" "$root$PREFIX/bin/"
    mkdir -p "$share/bash-completion/completions"
    "$B/bin/flytctl" help --form bash >"$share/bash-completion/completions/flytctl"
    manual flytctl
    configuration flytctl
}

case $kind in
cluster)
    put 755 "$B/bin/flyt-cluster-manager" scripts/flyt-pki "$root$PREFIX/bin/"
    put 755 "$B/lib/libflyt-store-mongodb.so" "$root$PREFIX/lib/flyt/"
    units flyt-cluster-manager.service
    manual flyt-cluster-manager cluster.conf flyt-cluster.conf flyt-pki
    put 644 config/grafana/flyt.json config/prometheus/flyt-alerts.yml "$share/doc/flyt/"
    flytctl
    ;;
node)
    put 755 "$B/bin/flyt-node-manager" "$B/bin/flyt-server" "$root$PREFIX/bin/"
    put 755 "$B/lib/libflyt-softgpu.so" "$root$PREFIX/lib/flyt/"
    put 755 "$B/lib/libflyt-softgpu-libraries.so" "$root$PREFIX/lib/flyt/"
    units flyt-node-manager.service flyt-node-manager.socket flyt-mps.service
    manual flyt-node-manager node.conf flyt-node.conf flyt-server
    ;;
client)
    put 755 "$B/bin/flyt-client-manager" "$B/bin/flyt-smi" scripts/flyt-run scripts/flyt-client-lib "$root$PREFIX/bin/"
    put 755 "$B/lib/libflyt-client.so.1" "$B"/lib/libcu*.so.[0-9]* "$B"/lib/libnccl.so.2 "$B/lib/libnvidia-ml.so.1" "$root$PREFIX/lib/flyt/"
    echo "$VERSION" >"$root$PREFIX/lib/flyt/VERSION"
    chmod 644 "$root$PREFIX/lib/flyt/VERSION"
    units flyt-client-manager.service flyt-client-manager.socket
    manual flyt-client-manager client.conf flyt-client.conf flyt-client-lib flyt-run flyt-smi
    flytctl
    ;;
*)
    echo "usage: install.sh cluster|node|client" >&2
    exit 2
    ;;
esac
configuration "$kind"
