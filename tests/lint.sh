#!/bin/sh
# usage: lint.sh [documents]
# Checks who uses whom: a folder is a layer, and uses run one way; and that lists are whole. Prints each offence; exit
# status 1 if any. Uses are checked where everything is built, in FLYT_BUILD (default: build).
set -u
cd "$(dirname "$0")/.."
status=0

build=${FLYT_BUILD:-build}
if [ -e "$build/bin/flyt-server" ] && [ -e "$build/lib/libflyt-client.so.1" ] && [ -e "$build/bin/flytctl" ]; then
    python3 tests/layers.py "$build" || status=1
fi
if grep -rnE '#include <cuda' rpc/base rpc/transport --include='*.c' --include='*.h'; then
    echo 'rpc/base and rpc/transport know no CUDA'
    status=1
fi
for folder in rpc rpc/gen cpu cpu/client cpu/server cpu/server/test cpu/softgpu control control/cluster control/cluster/test control/node tests \
    tests/apps tests/conformance tests/fuzz tests/system tests/torch scripts config submodules $(sed -n 's/^\([a-z][^: ]*\)[: ].*/\1/p' scripts/layers); do
    [ -e "$folder/README.md" ] || { echo "$folder has no README.md"; status=1; }
done
# What flytctl -o json has, VIEWS.md names (`make lint` alone looks).
[ "${1-}" = documents ] && for field in $(grep -ohE '\{"[a-z_]+", (FLYT|OF|NUMBER_OF|TEXT_OF|TIME_OF)|ToObject\([a-z]+, "[a-z_]+"' \
    control/cluster/api/view.c control/cluster/reconcile/migration_view.c control/cluster/reconcile/checkpoint_op_view.c | cut -d'"' -f2 | sort -u); do
    grep -q "\`$field\`" control/cluster/api/VIEWS.md || { echo "control/cluster/api/VIEWS.md does not name the field $field of a view"; status=1; }
done
# tests/run starts these as programs.
for test in tests/system/*_test.*; do
    case $test in *.py | *.sh) ;; *) continue ;; esac
    [ -x "$test" ] || { echo "$test is not executable"; status=1; }
done
# tests/system/README.md has a row for each test.
for test in tests/system/*_test.*; do
    name=${test##*/}
    grep -q "^|[^|]*\`${name%_test.*}\`[^|]*|" tests/system/README.md || { echo "tests/system/README.md has no row for $name"; status=1; }
done
# Points at which a test lets a step fail: READMEs number them, the code passes them, and a test names each.
points() { # README FOLDER WORDS NUMBERED: names begin with one of the words and a dot
    code=$(find "$2" -name '*.c' ! -name 'fake_*') tested=$(find "$2" -name '*_test.c')
    for point in $(grep -hoE "\"($3)\.[a-z_]+\"" $code | tr -d '"' | sort -u) $4; do
        echo "$4" | grep -qxF "$point" || { echo "$1 does not number the point $point"; status=1; }
        grep -qF "\"$point\"" $(echo "$code" | grep -v _test.c) || { echo "nothing passes the point $point"; status=1; }
        grep -qE "[\",]$point[:\"]" $tested tests/system/*_test.py ||
            { echo "no test lets $point fail"; status=1; }
    done
}
points control/node/POINTS.md control/node 'node\.(migrate|send|receive|load|checkpoint|restore|images)' \
    "$(sed -nE 's/^[0-9]+\. `(node\.[a-z]+\.[a-z_]+)`:.*/\1/p' control/node/POINTS.md)"
points cpu/server/move/POINTS.md cpu/server 'move|state|prepare|copying|writing|sending|receiving' \
    "$(sed -nE 's/^\| [0-9]+ \| `([a-z]+\.[a-z_]+)` \|.*/\1/p' cpu/server/move/POINTS.md)"
points rpc/base/README.md rpc/base turn "$(sed -nE 's/^[0-9]+\. `(turn\.[a-z_]+)`:.*/\1/p' rpc/base/README.md)"
# What bootstrap.sh installs to link with, submodules/README.md says how to build.
for package in $(sed -n 's/^packages="\(.*\)"$/\1/p' scripts/bootstrap.sh); do
    case $package in lib*-dev) ;; *) continue ;; esac
    part=${package#lib} part=${part%-dev}
    grep -qi "^| [^|]*${part%3}[^|]* |" submodules/README.md || { echo "submodules/README.md says nothing of $package"; status=1; }
done
exit $status
