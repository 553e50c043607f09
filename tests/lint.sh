#!/bin/sh
# usage: lint.sh [documents]
# Checks who includes whom: a folder is a layer, and includes run one way; and that lists are whole. Prints each offence;
# exit status 1 if any.
set -u
cd "$(dirname "$0")/.."
status=0

# forbid FOLDER PATTERN REASON
forbid() {
    offences=$(grep -rnE "^#include \"($2)" "$1" --include='*.c' --include='*.h' 2>/dev/null)
    if [ -n "$offences" ]; then
        echo "$offences" | sed "s|$| <- $3|"
        status=1
    fi
}
forbid rpc/base 'cpu/|control/|rpc/(transport|gen|api)' 'rpc/base includes nothing above it'
forbid rpc/transport 'cpu/|control/' 'the transport knows no CUDA and no program'
forbid cpu/client 'cpu/(server|softgpu|cuda|cudart|nvml|lib)/|control/' 'the client core knows no server and no surface'
forbid cpu/server 'cpu/(client|softgpu|cuda|cudart|nvml|lib)/|control/' 'the server knows no client'
forbid cpu/cuda 'cpu/(server|softgpu|cudart)/|rpc/transport|control/' 'a replaced library lowers to cpu/client'
forbid cpu/cudart 'cpu/(server|softgpu|cuda)/|rpc/transport|control/' 'a replaced library lowers to cpu/client'
forbid cpu/softgpu 'cpu/(server|client|cuda|cudart)/|rpc/transport|control/' 'the software GPU knows nothing above it'
forbid control/base 'cpu/|control/(cluster|node|client|flytctl|store)/' 'what all programs share knows none of them'
forbid control/node 'cpu/(client|server|softgpu|cuda|cudart|nvml|lib)/|control/(cluster|client|flytctl|store)/' 'a program knows no other one'
forbid control/client 'cpu/|control/(cluster|node|flytctl|store)/' 'a program knows no other one'
forbid control/cluster 'cpu/|control/(node|client|flytctl)/' 'a program knows no other one'
forbid cpu/image 'cpu/(client|server|softgpu|cuda|cudart|nvml|lib)/|control/|rpc/(transport|api|gen)' 'the image is a format: who fills it is not its business'
forbid control/flytctl 'cpu/(client|server|softgpu|cuda|cudart|nvml|lib)/|control/(cluster|node|client|store)/' 'flytctl knows what is said, not who says it'
forbid control/store 'cpu/|rpc/(transport|gen|api|proto)|control/(base|cluster|node|client|flytctl)/' 'the store knows documents only'
if grep -rnE '#include <cuda' rpc/base rpc/transport --include='*.c' --include='*.h'; then
    echo 'rpc/base and rpc/transport know no CUDA'
    status=1
fi
for folder in rpc rpc/base rpc/proto rpc/api rpc/gen rpc/transport cpu cpu/client cpu/cuda cpu/cudart cpu/server cpu/softgpu cpu/image control control/base control/store control/cluster control/node control/client control/flytctl tests tests/apps tests/fuzz tests/system scripts config submodules; do
    [ -e "$folder/README.md" ] || { echo "$folder has no README.md"; status=1; }
done
# What flytctl -o json has, control/README.md names (`make lint` alone looks).
[ "${1-}" = documents ] && for field in $(sed -nE 's/.*(add_[a-z]+|cJSON_Add[A-Za-z]+ToObject)\(object, "([a-z_]+)".*/\2/p' \
    control/cluster/view.c control/cluster/migration_view.c control/cluster/saving_view.c | sort -u); do
    grep -q "\`$field\`" control/README.md || { echo "control/README.md does not name the field $field of a view"; status=1; }
done
# tests/run starts these as programs.
for test in tests/system/*_test.*; do
    case $test in *.py | *.sh) ;; *) continue ;; esac
    [ -x "$test" ] || { echo "$test is not executable"; status=1; }
done
# Points at which a test lets a step fail: READMEs number them, the code passes them, and a test names each.
points() { # README FOLDER WORDS NUMBERED: names begin with one of the words and a dot
    for point in $(grep -hoE "\"($3)\.[a-z_]+\"" $(ls "$2"/*.c | grep -v '/fake_') | tr -d '"' | sort -u) $4; do
        echo "$4" | grep -qxF "$point" || { echo "$1 does not number the point $point"; status=1; }
        grep -qF "\"$point\"" $(ls "$2"/*.c | grep -v _test.c) || { echo "nothing passes the point $point"; status=1; }
        grep -qE "[\",]$point[:\"]" "$2"/*_test.c tests/system/*_test.py ||
            { echo "no test lets $point fail"; status=1; }
    done
}
points control/node/README.md control/node 'node\.(migrate|send|receive|load|checkpoint|restore|images)' \
    "$(sed -nE 's/^ +[0-9]+\. `(node\.[a-z]+\.[a-z_]+)`:.*/\1/p' control/node/README.md)"
points cpu/server/README.md cpu/server 'move|state|prepare|copying|writing|sending|receiving' \
    "$(sed -nE 's/^\| [0-9]+ \| `([a-z]+\.[a-z_]+)` \|.*/\1/p' cpu/server/README.md)"
# What bootstrap.sh installs to link with, submodules/README.md says how to build.
for package in $(sed -n 's/^packages="\(.*\)"$/\1/p' scripts/bootstrap.sh); do
    case $package in lib*-dev) ;; *) continue ;; esac
    part=${package#lib} part=${part%-dev}
    grep -qi "^| [^|]*${part%3}[^|]* |" submodules/README.md || { echo "submodules/README.md says nothing of $package"; status=1; }
done
exit $status
