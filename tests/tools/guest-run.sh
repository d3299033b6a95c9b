# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2094,SC2154
# SPDX-License-Identifier: GPL-2.0
#
# What must hold for a guest of either kind: that a command in the guest behaves
# as one here does, that every other end has its status, that the guest can change
# nothing of this machine, and that nothing is left behind. um-run.test and
# x86-run.test say which of it they test, and how long things take there.
#
# Usage: arch=um; . "$(dirname "$0")/guest-run.sh"
# Environment: BUILD; KERNEL=a kernel, otherwise that of FLAVOUR (base)
# Sets: guest, the front with a guest of which no trace may be left; guest_bg, the
#   same as the runner's own process; run, the runner without the front

# shellcheck source=tests/tools/tap.sh
. "$(dirname "$0")/tap.sh"

export BUILD=$real_BUILD
front=$arch-run
kernel=${KERNEL-}
[ -n "$kernel" ] || {
	"$tools/build" -q "$arch" "${FLAVOUR:=base}" >&2
	kernel=$BUILD/$arch/$FLAVOUR/linux
}
make -s -C "$tools/run" O="$BUILD/run" >&2
run=("$BUILD/run/run" --backend "$arch" --kernel "$kernel" --init "$BUILD/run/init" --accel-cache "$BUILD/accel")
mark=ptmark$$
mkdir -p "$work/host" "$work/scratch" "$work/home" "$work/tmp"
cd "$work/host" || exit

# Where a boot takes seconds, only the first of several that differ little.
brief() { [ "$arch" != um ]; }

guest()	# options -- command
{
	HOME=$work/home TMPDIR=$work/tmp "$tools/$front" --kernel "$kernel" \
		--append "$mark" --timeout 60 "$@"
}

# To be sent signals: guest_bg ... &
guest_bg()
{
	exec env HOME="$work/home" TMPDIR="$work/tmp" "$tools/$front" --kernel "$kernel" \
		--append "$mark" --timeout 60 "$@"
}

# Status of a command that is expected to fail: status_is N command...
status_is()
{
	local want=$1 got=0
	shift
	"$@" > "$work/out" 2> "$work/err" || got=$?
	[ "$got" = "$want" ] || { echo "status $got instead of $want"; tail -50 "$work/err"; return 1; }
}

marked()	# processes of our guests, the runner's included
{
	local pid
	grep -lazs "[p]${mark#p}" /proc/[0-9]*/cmdline | cut -d/ -f3 | while read -r pid; do
		# not this script's own shells, which have it in their arguments too
		case $(cat "/proc/$pid/comm" 2> /dev/null) in '' | bash | sh | script) ;; *) echo "$pid" ;; esac
	done
}

# Wait, so many tenths of a second at most, until a condition is true.
within()
{
	local tenths=$1
	shift
	until "$@"; do
		tenths=$((tenths - 1))
		[ "$tenths" -gt 0 ] || { echo "not within the time: $*"; return 1; }
		sleep 0.1
	done
}

ended()	# the last background job, with this status
{
	local got=0
	wait $! || got=$?
	[ "$got" = "$1" ] || { echo "status $got instead of $1"; return 1; }
}

guest_runs() { [ -n "$(marked)" ]; }
guest_gone() { [ -z "$(marked)" ]; }

# Files where a guest might leave some.
litter()
{
	find "$work/home" "$work/tmp" "$work/host" -mindepth 1
	find /tmp /dev/shm /run /var/tmp "$PWD" -maxdepth 1 \( -name 'vm_file*' -o -name '*uml*' \
		-o -name 'core*' -o -name 'tt*' -o -name '*scratch*' -o -name 'um-run*' \) 2> /dev/null
	find /tmp /run /var/tmp -maxdepth 2 \( -name mconsole -o -name pid \) 2> /dev/null
	ls /dev/shm
}

clean_after()	# how many seconds the sandbox has to vanish; the run must be over
{
	within "$1"0 guest_gone
	litter | diff "$work/litter" -
}

# ---- a command in the guest

kernel_is_the_guests()
{
	[ "$(guest -- uname -n)" = guest ]
	[ "$(guest -- uname -r)" != "$(uname -r)" ]
}

status_is_the_commands()
{
	local s
	for s in $statuses; do status_is "$s" guest -- sh -c "exit $s"; done
}

status_tells_the_signal()
{
	status_is 137 guest -- sh -c 'kill -9 $$'
	! brief || return 0
	status_is 139 guest -- sh -c 'kill -SEGV $$'
}

missing_command_is_127()
{
	status_is 127 guest -- /no/such/command
	grep -q 'No such file' "$work/err"
	status_is 126 guest -- /etc/passwd
}

arguments_arrive_unchanged()
{
	local args=(a '' 'b c' "d'e" 'f"g' $'h\ni' '$j' '\k' '*' '  ' -- --mem 'é' $'\x01\xff') n
	guest -- printf '%s\0' "${args[@]}" > "$work/got"
	printf '%s\0' "${args[@]}" | cmp - "$work/got"
	! brief || return 0
	mapfile -t many < <(seq 1000 | sed 's/$/ with some text that is not so short/')
	guest -- printf '%s\0' "${many[@]}" > "$work/got"
	printf '%s\0' "${many[@]}" | cmp - "$work/got"
	n=$(guest -- sh -c 'echo ${#1}' sh "$(head -c 100000 /dev/zero | tr '\0' x)")
	[ "$n" = 100000 ]
}

stdout_and_stderr_are_separate()
{
	guest -- sh -c 'echo out; echo err >&2' > "$work/out" 2> "$work/err"
	[ "$(cat "$work/out")" = out ]
	[ "$(cat "$work/err")" = err ]
}

stdin_and_stdout_are_binary_clean()
{
	head -c 2000000 /dev/urandom > "$work/random"
	guest -- cat < "$work/random" | cmp - "$work/random"
	guest -- sh -c 'cat >&2' < "$work/random" 2>&1 > /dev/null | cmp - "$work/random"
}

much_output_is_complete()
{
	local sum
	sum=$(head -c 50000000 /dev/zero | cksum)
	[ "$(guest -- head -c 50000000 /dev/zero | cksum)" = "$sum" ]
}

late_output_is_complete()
{
	for i in $(seq "$rounds"); do [ "$(guest -- sh -c "echo $i; echo $i >&2" 2>&1)" = "$i"$'\n'"$i" ]; done
	# more than fits into a pipe, and a reader who comes when all is over
	[ "$(guest -- head -c 120000 /dev/zero | { sleep 1; wc -c; })" = 120000 ]
}

stdin_ends() { [ "$(printf 'one\ntwo' | guest -- cat)" = $'one\ntwo' ]; }
empty_stdin_ends() { [ "$(guest -- cat < /dev/null | wc -c)" = 0 ]; }
closed_stdin_ends() { [ "$(guest -- cat <&- | wc -c)" = 0 ]; }

unread_stdin_does_not_hold_up()
{
	head -c 1000000000 /dev/zero 2> /dev/null | timeout 10 "$tools/$front" --kernel "$kernel" -- true
}

closed_stdout_ends_the_command()
{
	set +o pipefail
	[ "$(guest -- yes | head -1)" = y ]
	! brief || return 0
	guest -- yes | head -1 > /dev/null
	guest -- sh -c 'yes; echo $? >&2' 2> "$work/err" | true
	[ "$(cat "$work/err")" = 141 ]
}

# One reads stdout only when all of stderr has come.
slow_stdout_does_not_hold_up_stderr()
{
	: > "$work/err"
	guest -- sh -c 'yes | head -c 1000000 & yes | head -c 1000000 >&2; wait' 2> "$work/err" |
		{ while [ "$(stat -c %s "$work/err")" -lt 1000000 ]; do sleep 0.1; done
		  [ "$(wc -c)" = 1000000 ]; }
}

background_processes_end_with_the_command()
{
	timeout 10 "$tools/$front" --kernel "$kernel" -- sh -c 'sleep 1000 & echo end' > "$work/out"
	[ "$(cat "$work/out")" = end ]
}

cwd_and_environment_are_sensible()
{
	[ "$(guest -- pwd)" = "$work/host" ]	# below /tmp
	brief || [ "$(cd /usr/share && guest -- pwd)" = /usr/share ]
	guest -- sh -c '[ "$PATH" ] && [ -w "$HOME" ] && [ -w "$SCRATCH" ] && [ "$(id -u)" = 0 ]'
	[ "$(SECRET=x guest -- sh -c 'echo "$SECRET"')" = '' ]
}

guest_has_what_programs_expect()
{
	guest -- sh -ec '
		for d in /tmp /run /dev/shm; do echo x > $d/file; done
		[ "$(stat -fc %T /tmp)" = tmpfs ]
		[ "$(cat /tmp/file)" = x ]
		[ -c /dev/null ] && [ -c /dev/tty ] && [ -e /dev/fd/0 ]
		echo x | cat /dev/stdin
		grep -q "^cgroup2 /sys/fs/cgroup" /proc/mounts
		grep -q "^debugfs /sys/kernel/debug" /proc/mounts
		grep -q memory /sys/fs/cgroup/cgroup.controllers
		zcat /proc/config.gz | grep -q CONFIG_USERFAULTFD=y'
}

program_below_tmp_is_found()
{
	cp /bin/true "$work/host/prog"
	"$tools/$front" --kernel "$kernel" -- ./prog
	brief || "$tools/$front" --kernel "$kernel" -- "$work/host/prog"
	(cd / && PATH=$PATH:$work/host "$tools/$front" --kernel "$kernel" -- prog)
	rm "$work/host/prog"
}

memory_is_as_asked()
{
	local kb
	for mb in $sizes; do
		kb=$(guest --mem "${mb}M" -- awk '/MemTotal/ { print $2 }' /proc/meminfo)
		[ "$kb" -gt $((mb * 800)) ]
		[ "$kb" -le $((mb * 1024)) ]
	done
	brief || [ "$(guest --mem 1G -- awk '/MemTotal/ { print $2 }' /proc/meminfo)" = "$kb" ]
}

options_are_checked()
{
	status_is 125 guest --mem 12 -- true
	status_is 125 guest --mem 900G -- true
	grep -q 'available' "$work/err"
	status_is 125 guest --timeout 1x -- true
	status_is 125 guest --rw /no/such -- true
	status_is 125 guest --frobnicate -- true
	status_is 125 guest
	status_is 125 "$tools/$front" --kernel /no/kernel -- true
	grep -q '/no/kernel' "$work/err"
}

run_is_quick()	# with its build check, through make where make knows the flavour
{
	local begin ms best=99999
	for _ in 1 2 3; do
		begin=${EPOCHREALTIME/./}
		if [ -n "${FLAVOUR-}" ]; then
			make -s -C "$project" "$front" FLAVOUR="$FLAVOUR" CMD=true
		else
			"$tools/$front" --kernel "$kernel" -- true
		fi
		ms=$(((${EPOCHREALTIME/./} - begin) / 1000))
		[ "$ms" -ge "$best" ] || best=$ms
	done
	echo "$best ms"
	[ "$best" -lt "$quick" ]
}

# ---- other ends

panic_is_121()
{
	status_is 121 guest -- sh -c 'echo before; sleep 0.1; echo c > /proc/sysrq-trigger'
	[ "$(cat "$work/out")" = before ]
	grep -q 'sysrq triggered crash' "$work/err"
	[ "$(wc -l < "$work/err")" -ge 30 ]
}

# What the kernel's own crash test module does when told to
crash_is_121()	# kind text
{
	local to=/sys/kernel/debug/provoke-crash/DIRECT got=0
	guest -- sh -c "[ -e $to ] || exit 42; echo $1 > $to; sleep 1" 2> "$work/err" || got=$?
	[ "$got" != 42 ] || skip 'kernel without CONFIG_LKDTM'
	cat "$work/err"
	[ "$got" = 121 ]
	grep -qE "$2" "$work/err"
}

warning_is_121() { crash_is_121 WARNING 'WARNING: '; }
bug_is_121() { crash_is_121 BUG 'Kernel panic'; }
bad_access_is_121() { crash_is_121 EXCEPTION 'Kernel mode fault|Oops: '; }

taint_of_a_warning_is_121()
{
	status_is 121 guest -- sh -c 'echo 512 > /proc/sys/kernel/tainted'
	grep -q 'panic_on_taint' "$work/err"
}

user_panic_message_is_no_panic()
{
	status_is 0 guest -- sh -c 'echo "Kernel panic - not syncing" > /dev/kmsg; echo "Kernel panic"'
}

# A preemptible UML kernel may panic of its own power-off
down_is_123()	# command
{
	local got=0
	guest -- sh -c "$1; sleep 10" > "$work/out" 2> "$work/err" || got=$?
	tail -3 "$work/err"
	if [ "$got" != 123 ]; then
		[ "$got" = 121 ]
		guest -- sh -c 'zcat /proc/config.gz | grep -x CONFIG_PREEMPT=y'
	fi
	grep 'reboot: ' "$work/err"
}

# By the system call, reboot(2): a small machine has no poweroff and no reboot.
power_off_is_123() { down_is_123 "perl -e 'syscall(169, 0xfee1dead, 672274793, 0x4321fedc, 0)'"; }
reboot_is_123() { down_is_123 "perl -e 'syscall(169, 0xfee1dead, 672274793, 0x1234567, 0)'"; }

boot_failure_is_122()
{
	status_is 122 guest --append 'init=/no/init' -- true
	grep -q 'no/init' "$work/err"
	status_is 122 guest --append 'ptline=/dev' -- true
	grep -q 'the line to the runner' "$work/err"
	brief || status_is 122 guest --append 'rootfstype=tmpfs' -- true
}

hang_is_124()
{
	status_is 124 guest --timeout "$limit" -- sleep 1000
	grep -q 'guest kernel is alive' "$work/err"
	grep -q 'process .*(sleep) is waiting' "$work/err"
	[ "$(wc -l < "$work/err")" -ge 30 ]
	brief || status_is 124 guest --timeout "$limit" -- sh -c 'while :; do :; done'
}

# The command says "ready" when it has come so far.
command_runs() { grep -qs ready "$work/out"; }

stop_kernel()	# once the command runs
{
	local pid stopped=''
	within 300 command_runs
	for pid in $(marked); do
		[[ $(cat "/proc/$pid/comm") != "$kernel_process"* ]] || { kill -STOP "$pid" && stopped=1; }
	done
	# or what follows would be tested with a kernel that lives
	[ "$stopped" ] || { echo "no process $kernel_process to stop"; return 1; }
}

dead_kernel_is_124()
{
	local begin=$SECONDS
	# the kernel itself stops, so that init cannot answer
	rm -f "$work/out"
	guest_bg --timeout $((limit + 2)) -- sh -c 'echo ready; sleep 1000' > "$work/out" 2> "$work/err" &
	stop_kernel
	ended 124
	grep -q 'does not respond' "$work/err"
	[ $((SECONDS - begin)) -le $((limit + 6)) ]
	clean_after 0
}

# ---- the sandbox

root_cannot_change_the_host()
{
	echo original > "$work/host/file"
	mkdir -p "$work/host/dir"
	fingerprint "$work/host" "$tools" > "$work/before"
	guest --ro "$work/host" --rw "$work/scratch" -- sh -c '
		host=$1; shift
		try()
		{
			echo bad > "$1/new"; echo bad >> "$1/file"; echo bad 1<> "$1/file"
			rm -f "$1/file"; mv "$1/file" "$1/moved"; chmod 777 "$1/file"
			touch "$1/file"; ln "$1/file" "$1/link"; ln -s x "$1/symlink"
			mkdir "$1/newdir"; rmdir "$1/dir"; mknod "$1/node" p; chown 1 "$1/file"
			truncate -s 0 "$1/file"; ln "$1/file" "$SCRATCH/link"
		}
		for dir; do try "$dir"; done
		mount -o remount,rw /; mount -o remount,rw "$host"
		for dir; do try "$dir"; done
		mkdir /tmp/m
		for o in "$host" "/host$host" "/../host$host" "/../../host$host" "$SCRATCH/../host"; do
			mount -t hostfs none /tmp/m -o "$o" && try /tmp/m && umount /tmp/m
		done
		for o in /dev/root scratch root; do
			mount -t 9p -o "trans=virtio,version=9p2000.L" $o /tmp/m &&
				for dir; do try "/tmp/m$dir"; done && umount /tmp/m
		done
		umount /proc; umount -l /tmp; umount -l /run; umount -l /sys; umount -l /dev
		for dir; do try "$dir"; done
		try /proc; try /sys; try /dev; try /host; try /; try /etc; try /root; try /home
		echo bad > /proc/sys/kernel/hostname
		true' sh "$work/host" "$work/host" "$tools" "$tools/run" || true
	fingerprint "$work/host" "$tools" | diff "$work/before" -
	[ "$(ls "$work/host")" = $'dir\nfile' ]
	for dir in / /etc /root /home /tmp; do
		[ ! -e "$dir/new" ] && [ ! -e "$dir/newdir" ] && [ ! -e "$dir/symlink" ]
	done
	rm -r "$work/host/file" "$work/host/dir"
	rm -rf "${work:?}/scratch"/*
}

scratch_is_written()
{
	guest --rw "$work/scratch" -- sh -ec '
		[ "$SCRATCH" = "$1" ]
		cd "$SCRATCH"
		echo one > file; mkdir dir; echo two > dir/file; chmod 640 file; ln -s file link
		mv dir/file dir/moved; head -c 3000000 /dev/zero > big; echo end >> big' sh "$work/scratch"
	[ "$(cat "$work/scratch/link")" = one ]
	[ "$(cat "$work/scratch/dir/moved")" = two ]
	[ "$(stat -c %a "$work/scratch/file")" = 640 ]
	[ "$(stat -c %s "$work/scratch/big")" = 3000004 ]
	echo three > "$work/scratch/file"
	[ "$(guest --rw "$work/scratch" -- cat "$work/scratch/file")" = three ]
	rm -r "${work:?}/scratch"/*
}

host_is_out_of_reach()
{
	# no process, no socket, no shared memory of this machine's
	echo x > "/dev/shm/$mark"
	guest -- sh -c "[ -e /dev/shm/$mark ]" && reached=1 || reached=
	rm "/dev/shm/$mark"
	[ -z "$reached" ]
	[ "$(guest -- sh -c 'ls -d /proc/[0-9]* | wc -l')" -lt 60 ]
	guest -- sh -c 'umount -l /proc; ls /proc' | diff /dev/null -
}

ordinary_user_can_run()
{
	local user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	[ "$(id -u)" = 0 ] || skip 'is run as an ordinary user anyway'
	"${user[@]}" test -x "$BUILD/run/run" -a -x "$kernel" ||
		skip "an ordinary user cannot read $BUILD"
	(cd / && [ "$("${user[@]}" "${run[@]}" -- id -u)" = 0 ])
	install -d -o 65534 "$work/own"
	chmod 755 "$work"
	(cd / && "${user[@]}" "${run[@]}" \
		--rw "$work/own" -- sh -c 'echo x > "$SCRATCH/file"')
	[ "$(stat -c %u "$work/own/file")" = 65534 ]
}

# ---- nothing is left

normal_end_leaves_nothing() { guest -- true; clean_after 0; }
panic_leaves_nothing() { status_is 121 guest -- sh -c 'echo c > /proc/sysrq-trigger'; clean_after 0; }
time_limit_leaves_nothing() { status_is 124 guest --timeout "$limit" -- sleep 1000; clean_after 0; }

ended_by()	# signal, status, seconds in which all is gone
{
	rm -f "$work/out"
	guest_bg -- sh -c 'sleep 1000 & echo ready; sleep 1000' > "$work/out" 2>&1 &
	within 300 command_runs
	kill "-$1" $!
	ended "$2"
	clean_after "$3"
}

# Ctrl-C sends it to the whole foreground group, bash starts jobs with it ignored
ctrl_c_leaves_nothing()
{
	rm -f "$work/out"
	env --default-signal=INT bash -c "trap - INT; exec '$tools/$front' --kernel '$kernel' --append $mark -- sh -c 'echo ready; sleep 1000'" > "$work/out" &
	within 300 command_runs
	kill -INT $!
	ended 130
	clean_after 0
}

sigterm_leaves_nothing() { ended_by TERM 143 0; }
sigkill_leaves_nothing() { ended_by KILL 137 3; }

sigkill_with_a_dead_kernel_leaves_nothing()
{
	rm -f "$work/out"
	guest_bg -- sh -c 'echo ready; sleep 1000' > "$work/out" 2>&1 &
	stop_kernel
	kill -KILL $!
	clean_after 3
}

sigkill_while_booting_leaves_nothing()
{
	local delay
	for delay in $boot_delays; do
		"${run[@]}" --append "$mark" -- sleep 1000 &
		sleep "$delay"
		kill -KILL $!
		wait $! || true
		clean_after 3
	done
}

# ---- terminal

on_terminal()	# command, with this script's stdin as the keys pressed
{
	script -qec "$*" /dev/null
}

term="$tools/$front --kernel $kernel --append $mark --timeout 60"

terminal_is_given()
{
	[[ $(on_terminal "stty rows 33 cols 77; $term -- sh -c 'tty; stty size'") == *"/dev/pts/0"*"33 77"* ]]
}

no_terminal_when_redirected()
{
	on_terminal "$term -- sh -c 'tty; stty size' > '$work/out' 2>&1; true"
	grep -q 'not a tty' "$work/out"
}

keys_reach_the_command()
{
	(sleep 1; printf 'hello\n') |
		on_terminal "$term -- sh -c 'read x; echo got=\$x'" > "$work/out"
	grep -q got=hello "$work/out"
}

# It may come before the shell has started the sleep, which it then does not end.
ctrl_c_on_a_terminal_goes_to_the_command()
{
	rm -f "$work/out"
	(within 300 command_runs; printf '\003'; sleep 1) |
		on_terminal "$term -- sh -c 'trap \"echo caught; c=1\" INT; echo ready; while [ -z \"\$c\" ]; do sleep 1; done; echo after'; echo status=\$?" > "$work/out"
	cat "$work/out"
	grep -q caught "$work/out"
	grep -q after "$work/out"
	grep -q status=0 "$work/out"
}

escape_keys_end_the_guest()
{
	rm -f "$work/out"
	(within 300 command_runs; printf '\035\035\035'; sleep 1) |
		on_terminal "$term -- sh -c 'echo ready; sleep 100'; echo status=\$?" > "$work/out"
	grep -q status=130 "$work/out"
	clean_after 0
}

terminal_is_restored()
{
	on_terminal "stty -g > $work/a; $term -- false; stty -g > $work/b;
		$term -- sh -c 'echo c > /proc/sysrq-trigger'; stty -g > $work/c;
		$term --timeout $limit -- sleep 100; stty -g > $work/d" > /dev/null
	for f in b c d; do cmp "$work/a" "$work/$f"; done
}

terminal_is_restored_after_sigkill()
{
	local who
	for who in parent worker; do
		on_terminal "stty -g > $work/a; $term -- sleep 100 < /dev/tty & pid=\$!; sleep 1;
			stty -g < /dev/tty > $work/raw; [ $who = parent ] || pid=\$(pgrep -P \$pid);
			kill -KILL \$pid; sleep 1; stty -g < /dev/tty > $work/b" > /dev/null
		cmp "$work/a" "$work/b"
		cmp -s "$work/a" "$work/raw" && return 1
		clean_after 3
	done
}

# ---- preflight

missing_bwrap_is_told()
{
	status_is 125 env PATH=/nonexistent "${run[@]}" -- /bin/true
	grep -q 'bwrap: not found' "$work/err"
}

forbidden_bwrap_is_told()
{
	mkdir -p "$work/bin"
	printf '#!/bin/sh\necho "bwrap: No permissions to create new namespace" >&2\nexit 1\n' > "$work/bin/bwrap"
	chmod +x "$work/bin/bwrap"
	status_is 125 env PATH="$work/bin:$PATH" "${run[@]}" -- true
	grep -q 'No permissions to create' "$work/err"
	grep -q 'user namespaces' "$work/err"
}

litter > "$work/litter"
