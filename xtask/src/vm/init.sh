#!/bin/busybox sh
# The first process of the guest. What the host wants of it (guest_*) is its environment: it stands on the kernel's
# command line, and the kernel knows no such options.
b=/bin/busybox
export NO_COLOR=1

# fail WORDS...: says why, and switches the machine off.
fail() {
    echo "guest: $*"
    $b poweroff -f
}

$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
# Should the host be gone, nobody else would end this.
($b sleep 600; $b poweroff -f) &
for module in /modules/*; do
    $b insmod "$module" || fail "cannot load $module"
done

case $guest_medium in
    file) device=/dev/vda options=rw ;;
    dax) device=/dev/pmem1 options=dax ;;
esac
tries=0
while [ ! -b $device ] || [ ! -b /dev/pmem0 ]; do
    tries=$((tries + 1))
    [ $tries -gt 200 ] && fail "has no $device, or no /dev/pmem0"
    $b sleep 0.05
done
$b mount -t "$guest_fs" -o $options $device /pool || fail "cannot mount $device"
[ "$guest_syncs" = no ] && export EVERLEAF_UNSAFE_NO_SYNC=lose-my-data-when-the-power-fails

echo "guest: opening"
everleaf-workbench torture-reader --channel /dev/pmem0 --round "$guest_round" --keys "$guest_keys" --engine "$guest_engine" \
    --medium "$guest_medium" --log-bytes "$guest_log_bytes" --log-bytes-max "$guest_log_bytes_max" -- /pool/torture.pool ||
    fail "the reader ended with $?"
everleaf-workbench torture-writer --channel /dev/pmem0 --records-at "$guest_records_at" --figures-at "$guest_figures_at" \
    --log-bytes "$guest_log_bytes" --log-bytes-max "$guest_log_bytes_max" --seed "$guest_seed" --round "$guest_round" \
    --threads "$guest_threads" --keys "$guest_keys" --engine "$guest_engine" --durability "$guest_durability" --medium "$guest_medium" \
    -- /pool/torture.pool
fail "the writer ended with $?"
