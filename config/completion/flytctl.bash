# bash completion for flytctl; made by `make man` out of the table of commands

_flytctl() {
    local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]} words=
    local first= command= i skip=
    for ((i = 1; i < COMP_CWORD; i++)); do
        [ -n "$skip" ] && { skip=; continue; }
        case ${COMP_WORDS[i]} in
        --output | -o | --manager | -m | --authority | --certificate | --key | --deadline | --last | -n | --count | -n | --delay | -d | --sm | --memory | --name | --tenant | --host-ip | --devices | --sessions | --priority | --minimum-share | --maximum-share | --window | --minimum-sms | --shown-sms | --sharing | --policy | --isolation | --include-type | --exclude-type | --include-gpu | --exclude-gpu | --library | --sm | --memory | --name | --tenant | --host-ip | --devices | --sessions | --priority | --minimum-share | --maximum-share | --window | --minimum-sms | --shown-sms | --sharing | --policy | --isolation | --include-type | --exclude-type | --include-gpu | --exclude-gpu | --library | --node | --valid | --sm | --memory | --sessions | --vms | --timeout | --timeout | --sm | --memory | --minimum-share | --maximum-share | --window | --priority | --timeout | --wait | --to | --rounds | --stop-timeout | --rest | --streams | --pack | --timeout | --to | --pack | --stop-timeout | --timeout | --node | --timeout | --rounds | --stop-timeout | --rest | --streams | --pack | --timeout | --group-size | --valid | --valid | --valid | --folder | --config | --form) skip=1 ;;
        -*) ;;
        *)
            if [ -z "$first" ]; then first=${COMP_WORDS[i]} command=$first
            elif [ "$command" = "$first" ]; then command="$first ${COMP_WORDS[i]}"; fi ;;
        esac
    done
    case $last in
    --authority | --certificate | --key | --config) COMPREPLY=($(compgen -f -- "$word")); return ;;
    --output | -o) words="table wide json" ;;
    --shown-sms) words="present minimum" ;;
    --sharing) words="exclusive time" ;;
    --policy) words="binpack spread" ;;
    --isolation) words="shared strict" ;;
    --wait) words="switched vacated" ;;
    --group-size) words="2 8" ;;
    --form) words="man bash" ;;
    esac
    [ -n "$words" ] && { COMPREPLY=($(compgen -W "$words" -- "$word")); return; }
    case $command in
    '') words=" status nodes gpus vms allocations sessions migrations checkpoints tenants members events top vm tenant suspend resume resize migrate checkpoint restore cordon uncordon drain gpu allocation node operator viewer join member session explain doctor backup image coredump version help" ;;
    'status' | 'status '*) words=" --watch" ;;
    'nodes' | 'nodes '*) words=" --watch" ;;
    'gpus' | 'gpus '*) words=" --watch" ;;
    'vms' | 'vms '*) words=" --watch" ;;
    'allocations' | 'allocations '*) words=" --watch" ;;
    'sessions' | 'sessions '*) words=" --watch" ;;
    'migrations' | 'migrations '*) words=" --watch" ;;
    'checkpoints' | 'checkpoints '*) words=" --watch" ;;
    'tenants' | 'tenants '*) words=" --watch" ;;
    'members' | 'members '*) words=" --watch" ;;
    'events' | 'events '*) words=" --follow --last" ;;
    'top' | 'top '*) words=" --count --delay" ;;
    vm) words=" add set remove device join-token revoke" ;;
    'vm add') words=" --sm --memory --name --tenant --host-ip --devices --sessions --priority --minimum-share --maximum-share --window --minimum-sms --shown-sms --sharing --policy --isolation --include-type --exclude-type --include-gpu --exclude-gpu --library --reserved --no-reserved" ;;
    'vm set') words=" --sm --memory --name --tenant --host-ip --devices --sessions --priority --minimum-share --maximum-share --window --minimum-sms --shown-sms --sharing --policy --isolation --include-type --exclude-type --include-gpu --exclude-gpu --library --reserved --no-reserved" ;;
    'vm remove') words=" --kill" ;;
    'vm device') words=" --node --remove" ;;
    'vm join-token') words=" --valid" ;;
    'vm revoke') words="" ;;
    tenant) words=" set" ;;
    'tenant set') words=" --sm --memory --sessions --vms --remove" ;;
    'suspend' | 'suspend '*) words=" --timeout" ;;
    'resume' | 'resume '*) words=" --timeout" ;;
    'resize' | 'resize '*) words=" --sm --memory --minimum-share --maximum-share --window --priority --when-free --force --timeout --wait --kill --migrate" ;;
    'migrate' | 'migrate '*) words=" --to --rounds --stop-timeout --rest --streams --pack --timeout --force --detach --cancel" ;;
    'checkpoint' | 'checkpoint '*) words=" --to --leave-running --full --pack --stop-timeout --timeout --detach" ;;
    'restore' | 'restore '*) words=" --node --timeout --detach" ;;
    'cordon' | 'cordon '*) words="" ;;
    'uncordon' | 'uncordon '*) words="" ;;
    'drain' | 'drain '*) words=" --migrate --rounds --stop-timeout --rest --streams --pack --timeout" ;;
    gpu) words=" set" ;;
    'gpu set') words=" --group-size" ;;
    allocation) words=" adopt kill" ;;
    'allocation adopt') words="" ;;
    'allocation kill') words="" ;;
    node) words=" fence adopt join-token revoke" ;;
    'node fence') words=" --confirmed-dead" ;;
    'node adopt') words="" ;;
    'node join-token') words=" --valid" ;;
    'node revoke') words="" ;;
    operator) words=" join-token revoke" ;;
    'operator join-token') words=" --valid" ;;
    'operator revoke') words="" ;;
    viewer) words=" join-token revoke" ;;
    'viewer join-token') words=" --valid" ;;
    'viewer revoke') words="" ;;
    'join' | 'join '*) words=" --folder" ;;
    member) words=" admit" ;;
    'member admit') words="" ;;
    session) words=" show kill" ;;
    'session show') words="" ;;
    'session kill') words="" ;;
    'explain' | 'explain '*) words="" ;;
    'doctor' | 'doctor '*) words=" --config --node --vm --cluster" ;;
    'backup' | 'backup '*) words="" ;;
    image) words=" show verify" ;;
    'image show') words="" ;;
    'image verify') words="" ;;
    coredump) words=" list remove" ;;
    'coredump list') words="" ;;
    'coredump remove') words="" ;;
    'version' | 'version '*) words="" ;;
    'help' | 'help '*) words=" --form" ;;
    esac
    case $word in -*) words+=" --output --manager --authority --certificate --key --deadline --help --version" ;; esac
    case $command in backup | 'image '*) COMPREPLY=($(compgen -f -- "$word")) && return ;; esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _flytctl flytctl
