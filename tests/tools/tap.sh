# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: GPL-2.0
#
# TAP for the tests of the tools. A test is a function, which fails where its
# first command fails; what it prints is shown only then.
#
# Usage: . "$(dirname "$0")/tap.sh"; t 'a sentence' function; ...; finish
# Environment: ONLY=regular expression; the other sentences are not tested

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
tools=$project/tools
real_BUILD=${BUILD:-$project/build}
work=$(mktemp -d)
count=0 failed=0
trap 'rm -rf "$work"' EXIT
unset KVER LINUX DISCARD STACKS V MAKEFLAGS WORKSHOP_LOCK
export LC_ALL=C

t()	# name function: run it in a shell of its own
{
	local status
	[[ $1 =~ ${ONLY-} ]] || return 0
	count=$((count + 1))
	set +e
	(set -e; "$2") > "$work/said" 2>&1 < /dev/null
	status=$?
	set -e
	case $status in
	0) echo "ok $count - $1" ;;
	99) echo "ok $count - $1 # SKIP $(tail -1 "$work/said")" ;;
	*) echo "not ok $count - $1"
		echo "# status $status"
		sed 's/^/# /' "$work/said"
		failed=1 ;;
	esac
}

skip()	# reason: out of a test function
{
	echo "$*"
	exit 99
}

finish()
{
	echo "1..$count"
	exit $failed
}

# Run a command that must fail, and whose stderr must have all these texts:
# refuses TEXT... -- COMMAND...
refuses()
{
	local texts=() text
	while [ "$1" != -- ]; do texts+=("$1"); shift; done
	shift
	if "$@" > "$work/err" 2>&1; then
		echo "no failure: $*"
		return 1
	fi
	cat "$work/err"
	for text in "${texts[@]}"; do
		grep -qF -- "$text" "$work/err" || { echo "nothing said of: $text"; return 1; }
	done
}

not()	# unlike "!", this ends a test when the command succeeds
{
	if "$@"; then return 1; fi
}

fingerprint()	# of all files below the folders: contents, times, modes
{
	find "$@" -type f -printf '%p %m %T@ %s\n' | sort
	find "$@" -type f -print0 | sort -z | xargs -0r sha256sum
}
