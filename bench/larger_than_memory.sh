#!/usr/bin/env bash
# Loads 3 million entries of 24 + 150 bytes (528 MB) with each engine, and reads them back, within a memory control group of
# 300 MB; and once more without the group. Where no group can be made it says so: the peak of anonymous memory is printed anyway.
#
#     bench/larger_than_memory.sh FOLDER [ENTRIES [ENGINE...]]
#
# An engine may have settings: rntree,gather=on.
#
# Needs root for the group, version 1 or 2 of control groups, and 2 GB of disk in FOLDER. Exit code 0: every entry was read back.
set -euo pipefail

LIMIT=$((300 * 1000 * 1000))
folder="$(realpath "${1:?the folder for the pools}")"
entries="${2:-3000000}"
shift $(($# < 2 ? $# : 2))
engines=("$@")
[[ ${#engines[@]} -gt 0 ]] || engines=(rntree bztree masstree wbtree cawbt)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --release --quiet -p everleaf --example larger_than_memory
program="${CARGO_TARGET_DIR:-target}/release/examples/larger_than_memory"

group=""
remove_group() { [[ -z "$group" ]] || rmdir "$group" 2>/dev/null || true; }
trap remove_group EXIT
for made in "/sys/fs/cgroup/memory/everleaf-$$" "/sys/fs/cgroup/everleaf-$$"; do
    mkdir "$made" 2>/dev/null || continue
    group="$made"
    for limit in memory.limit_in_bytes memory.max; do
        [[ ! -e "$group/$limit" ]] || { echo "$LIMIT" >"$group/$limit" && break 2; }
    done
    remove_group
    group=""
done

for engine in "${engines[@]}"; do
    if [[ -n "$group" ]]; then
        echo -n "300 MB:    "
        # The subshell moves itself into the group, and becomes the program.
        (echo "$BASHPID" >"$group/cgroup.procs" && exec "$program" "$folder" "$engine" "$entries")
    else
        echo "no memory control group can be made here (are you root?)" >&2
    fi
    echo -n "unlimited: "
    "$program" "$folder" "$engine" "$entries"
done
