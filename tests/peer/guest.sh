#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# In a guest that is thrown away: run the tests that are listed on stdin, one after
# the other, each from the same state, and tell tools/peer on stdout where each
# begins and ends. When the guest dies, the test that has not ended is to blame.
#
# Usage: guest.sh DIRECTORY < LIST
#   DIRECTORY   what tests/peer/Makefile made
# A line of the list: NAME<tab>SECONDS<tab>SHELL COMMAND
# The command runs through bash, in a folder of its own that has links to the
# programs of the test's folder; the functions below are there for it.

programs=$1

put()	# VALUE FILE: that the file is not there is a matter of the kernel's configuration
{
	[ ! -w "$2" ] || echo "$1" > "$2"
}

hugepages()	# so many of 2 MiB: 256 MiB is what run_vmtests.sh provides
{
	put 3 /proc/sys/vm/drop_caches
	put 1 /proc/sys/vm/compact_memory
	put "$1" /proc/sys/vm/nr_hugepages
}

nobody()	# run as a user who is not privileged
{
	setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}

huge_tmpfs()	# make and mount one where MADV_HUGEPAGE counts
{
	mkdir -p "$1" && mount -t tmpfs -o huge=advise none "$1"
}
export -f put hugepages nobody huge_tmpfs

fresh()	# undo what a test may have left behind
{
	put 0 /proc/sys/vm/nr_hugepages
	put 0 /proc/sys/vm/overcommit_memory
	put 2 /sys/kernel/mm/ksm/run
	put 0 /sys/kernel/mm/ksm/run
	put 0 /sys/kernel/mm/ksm/use_zero_pages
	put 1 /sys/kernel/mm/ksm/merge_across_nodes
	put madvise /sys/kernel/mm/transparent_hugepage/enabled
	put madvise /sys/kernel/mm/transparent_hugepage/defrag
	put never /sys/kernel/mm/transparent_hugepage/shmem_enabled
	ipcs -m | awk '/^0x/ { print $2 }' | xargs -rn1 ipcrm -m
	cd /
	grep -o ' /tmp/[^ ]*' /proc/mounts | grep '^ /tmp/peer' | tac | xargs -rn1 umount
	rm -rf /tmp/peer
	mkdir /tmp/peer
	cd /tmp/peer || exit
}

while IFS=$'\t' read -r name seconds command; do
	fresh > /dev/null 2>&1
	ln -s "$programs/src/tools/testing/selftests/${name%%/*}"/*.sh "$programs/${name%%/*}"/* . 2> /dev/null
	dmesg -C
	began=${EPOCHREALTIME/.}
	echo "%%peer begin $name"
	"$programs/limit" "$seconds" bash -c "$command" < /dev/null
	status=$?
	took=$((${EPOCHREALTIME/.} - began))
	dmesg | grep -E 'Bad rss-counter|non-zero pgtables_bytes|Bad page|bad pmd|BUG:|WARNING:|soft lockup' |
		sed 's/^/\n%%peer log /'
	printf '\n%%%%peer end %s %d %d\n' "$name" "$status" $((took / 1000))
	[ "$status" -ne 125 ] || exit 0		# a process that cannot be killed: boot again
done
