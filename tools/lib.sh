# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: GPL-2.0
#
# What the shell tools have in common: where things are, how they speak, and
# that git behaves the same for everybody.
#
# Usage: . "$(dirname "$0")/lib.sh"     (bash, after set -eu)

me=${0##*/}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BUILD=${BUILD:-$root/build}
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
stacks=(series arch-x86-overlay um-config)	# in the order they are applied
export LC_ALL=C TZ=UTC

# The user's git configuration must not change a commit's hash or a patch's
# text, nor hooks and signing run on the project's own commits. The committer is
# fixed for the same reason: everybody gets the same hashes.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_PAGER=cat
export GIT_TERMINAL_PROMPT=0 GIT_EDITOR=false
unset "${!GIT_DIR@}" "${!GIT_WORK_TREE@}" "${!GIT_INDEX_FILE@}"
identity='PT reclaim workshop'
identity_mail='pt-reclaim@workshop.invalid'
identity_date='2025-01-01T00:00:00+00:00'

say()	# what is going on
{
	echo "$me: $*"
}

die()	# thing, reason, way out
{
	trap - EXIT
	[ -z "${undo-}" ] || $undo
	echo "$me: $*" >&2
	exit 1
}

run()	# a command, shown in full with V=1
{
	[ "${V:-0}" != 1 ] || echo "+ $*" >&2
	"$@"
}

progress()	# a pipe with a progress line: name [bytes in total]
{
	if [ -t 2 ]; then pv -N "  $1" ${2:+-s "$2"}; else cat; fi
}

free_mb()	# free space for BUILD, in MB
{
	df -Pk "$BUILD" | awk 'NR == 2 { print int($4 / 1024) }'
}

# A command that says something only when it fails. git takes back what it wrote
# before it ends, so that its disk is not full any more when one looks.
heed()
{
	local said status=0
	said=$(run "$@" 2>&1) || status=$?
	[ "$status" -eq 0 ] || echo "$said" >&2
	[[ $said != *'No space left'* ]] || no_space=1
	return $status
}

disk_full()	# a text to add to a message when that is so
{
	if [ -n "${no_space-}" ] || [ "$(free_mb)" -lt 10 ] || df -Pi "$BUILD" | awk 'NR == 2 { exit !($2 > 0 && $4 == 0) }'; then
		echo "; the disk of $BUILD is full, make room there or set BUILD="
	fi
}

# kbuild's command line -> $kmake, with its environment, for all who compile.
#
# ccache is used when it is there, with the user's own folder and size limit, so
# that all clones on a machine share it. What else would differ between two
# folders is taken out: CCACHE_BASEDIR makes the names of sources and headers
# relative, CCACHE_NOHASHDIR ignores the current folder, ccache itself ignores
# the folder in -fmacro-prefix-map, and the time, user and host that kbuild puts
# into the kernel are fixed. CCACHE_DEPEND takes the headers from the compiler's
# own list instead of preprocessing first, which saves a quarter of a cold build.
kbuild_for()	# TREE O ARCH
{
	kmake=(make -C "$1" O="$2" ARCH="$3" -j"${JOBS:-$(nproc)}" HOSTCC=gcc RUSTC=false BINDGEN=false
		PAHOLE=false KCFLAGS="-fmacro-prefix-map=../../$(basename "$1")/=" CC=gcc)
	export KBUILD_BUILD_TIMESTAMP='Wed Jan  1 00:00:00 UTC 2025' KBUILD_BUILD_USER=workshop KBUILD_BUILD_HOST=workshop
	export KBUILD_BUILD_VERSION=1	# not one more with each build: the same source, the same kernel
	command -v ccache > /dev/null || return 0
	kmake+=(CC='ccache gcc')
	export CCACHE_BASEDIR=$BUILD CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
}

# kbuild's output on stdin: all is added to the log, LOG.count gets the number of its
# steps, and stderr a progress line, or without a terminal a line now and then.
kbuild_show()	# LOG NAME EVERY [steps in total]: a line each EVERY steps
{
	tee -a "$1" | awk -v count="$1.count" -v name="$2" -v every="$3" -v total="${4:-0}" \
		-v tty="$([ -t 2 ] && echo 1)" -v all="${V:-0}" '
	all == 1 { print; fflush(); next }
	/^  [A-Z]+ +(\[M\] +)?[^ ]/ {
		n++
		of = total > n ? "/" total : ""
		if (tty)
			printf "\r  %s  %d%s  %-50.50s", name, n, of, $NF > "/dev/stderr"
		else if (n % every == 0)
			printf "  %s  %d%s  %s\n", name, n, of, $NF > "/dev/stderr"
		fflush("/dev/stderr")
	}
	END { if (tty && all != 1) printf "\r%79s\r", "" > "/dev/stderr"; print n + 0 > count }'
}

kbuild_failed()	# LOG NAME WHAT: the reason first, the log last
{
	local full
	# make ends by itself after a Ctrl-C or SIGTERM, which then does not end a shell
	! tail -n 20 "$1" | grep -qE 'Error 130$|(Interrupt|Terminated)$' || exit 130
	full=$(disk_full)
	grep -nE -m 3 -A 6 '(error|Error):|undefined reference|multiple definition|No rule to make|No space left|not found$' "$1" |
		cut -c -300 | head -24 >&2 || tail -15 "$1" >&2 || true
	die "$2: $3$full, first errors above; all of it: $1"
}

# Some command failed, or somebody pressed Ctrl-C: take back what is half done
# ($undo, a function) and say so. Used as: trap unfinished EXIT
unfinished()
{
	local status=$? full=
	[ "$status" -ne 0 ] || return 0
	full=$(disk_full)	# asked before $undo makes room again
	[ -z "${undo-}" ] || $undo
	echo "$me: stopped while ${step:-at work}$full; nothing half-done is left, run it again" >&2
	exit "$status"
}

# Is git in the tree in the middle of something? -> $edits, and the way out: $keep
unsettled()
{
	local tree=$BUILD/tree
	edits='' keep=''
	if [ -d "$(git -C "$tree" rev-parse --git-path rebase-merge)" ] ||
		[ -d "$(git -C "$tree" rev-parse --git-path rebase-apply)" ]; then
		edits='a rebase is under way'
		keep='finish it (git rebase --continue)'
	elif [ "$(git -C "$tree" symbolic-ref -q HEAD)" != refs/heads/pt-reclaim ]; then
		edits='another branch is checked out'
		keep='git checkout pt-reclaim there'
	elif git -C "$tree" update-index -q --refresh > /dev/null
		! git -C "$tree" diff-index --quiet HEAD; then
		edits="uncommitted changes in $(git -C "$tree" diff-index --name-only HEAD | paste -sd' ')"
		keep='commit them there'
	fi
	[ -n "$edits" ]
}

lock()	# one tool at a time changes BUILD
{
	[ -z "${WORKSHOP_LOCK-}" ] || return 0
	mkdir -p "$BUILD" || die "$BUILD: cannot be made; set BUILD= to a folder you can write to"
	exec 9> "$BUILD/.lock"
	flock -n 9 || { say "waiting for another run in $BUILD"; flock 9; }
	export WORKSHOP_LOCK=1
}

need_mb()	# room for so many MB, for what
{
	local free
	free=$(free_mb)
	[ "$free" -ge "$1" ] ||
		die "$BUILD: $2 needs $1 MB, $free MB are free; make room or set BUILD= to another disk"
}

case $root$BUILD in
*[[:space:]]*)
	die "$root, BUILD=$BUILD: the kernel's own build cannot handle spaces in a path; move it" ;;
esac
