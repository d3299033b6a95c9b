# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: GPL-2.0
#
# A kernel source of six files, patches for it, and an apt that serves it as a
# package: with these a test of source, tree or refresh takes a moment. After
# tap.sh.
#
# Usage: . "$(dirname "$0")/mini.sh"

mini=$work/linux
export BUILD=$work/build STACKS=$work/stacks
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b.invalid GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@d.invalid

make_mini()	# [sublevel [lines more at the top of mm/memory.c [folder]]]
{
	local dir=${3:-$mini} f
	rm -rf "$dir"
	mkdir -p "$dir"/{mm,arch/um,arch/x86,Documentation}
	printf 'VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = %s\nEXTRAVERSION =\nNAME = Mini\n' "${1:-7}" > "$dir/Makefile"
	for f in mm/memory.c mm/mmap.c arch/um/Kconfig arch/x86/Kconfig Documentation/mm.rst; do
		seq -f "$f line %g" 40 > "$dir/$f"
	done
	[ "${2:-0}" = 0 ] || { seq -f 'on top %g' "$2"; cat "$dir/mm/memory.c"; } > "$dir/x"
	[ ! -e "$dir/x" ] || mv "$dir/x" "$dir/mm/memory.c"
	printf '/*\n!/debian/\n*.o\n' > "$dir/.gitignore"
}

commit_mini()
{
	git -C "$mini" init -q
	git -C "$mini" add -f .
	git -C "$mini" commit -q -m mini
}

change()	# file line: a commit in the tree, changing that line
{
	sed -i "s|^\($1 line $2\)\$|\1 changed|" "$BUILD/tree/$1"
	git -C "$BUILD/tree" commit -qam "${3:-$1: change line $2}" -m "${4:-Because of the test.}"
}

# Four patches: two in series/ and one in each of the others.
make_stacks()
{
	rm -rf "$STACKS"
	mkdir -p "$STACKS"/{series,arch-x86-overlay,um-config}
	LINUX=$mini "$tools/source"
	"$tools/tree"
	change mm/memory.c 10
	change mm/memory.c 30
	change arch/x86/Kconfig 5
	change arch/um/Kconfig 5
	"$tools/refresh"
}

fresh()	# a kernel, patches and their tree, as many a test begins; made once
{
	rm -rf "$BUILD" "$STACKS" "$mini"
	if [ ! -d "$work/fresh" ]; then
		make_mini
		commit_mini
		make_stacks
		mkdir "$work/fresh"
		cp -a "$BUILD" "$STACKS" "$mini" "$work/fresh"
	else
		cp -a "$work/fresh"/* "$work"
	fi
}

# As root a small file system can be had, to see it full: options of tmpfs
small_disk()
{
	[ "$(id -u)" = 0 ] || skip 'only root can mount a small file system'
	mkdir -p "$work/small"
	mount -t tmpfs -o "$1" tmpfs "$work/small" || skip 'mounting a tmpfs is not permitted here'
	trap 'umount "$work/small"' EXIT
	export BUILD=$work/small/build
}

# An apt that offers 6.12.7 and 6.12.19 and writes down that it was called.
fake_apt()
{
	local v sub
	export PATH=$work/bin:$PATH
	mkdir -p "$work"/{bin,archive}
	for v in 6.12.7-1 6.12.19-2~deb12u1; do
		[ ! -e "$work/archive/linux-source-6.12_${v}_all.deb" ] || continue
		rm -rf "$work/pkg"
		mkdir -p "$work/pkg/DEBIAN" "$work/pkg/usr/src"
		sub=${v#6.12.}
		make_mini "${sub%%-*}" 0 "$work/linux-source-6.12"
		tar -C "$work" -cJf "$work/pkg/usr/src/linux-source-6.12.tar.xz" linux-source-6.12
		printf 'Package: linux-source-6.12\nVersion: %s\nArchitecture: all\nMaintainer: x <x@y.invalid>\nDescription: x\n' \
			"$v" > "$work/pkg/DEBIAN/control"
		dpkg-deb -b "$work/pkg" "$work/archive/linux-source-6.12_${v}_all.deb" > /dev/null
	done
	cat > "$work/bin/apt-cache" <<-EOF
		#!/bin/sh
		echo "apt-cache \$*" >> "$work/apt.log"
		cat "$work/offered" 2> /dev/null
	EOF
	cat > "$work/bin/apt-get" <<-EOF
		#!/bin/sh
		echo "apt-get \$*" >> "$work/apt.log"
		case "\$*" in
		*download*) [ ! -e "$work/slow" ] || sleep 10
			[ ! -e "$work/offline" ] && cp "$work/archive/linux-source-6.12_\${*##*=}_all.deb" . ;;
		*) [ ! -e "$work/offline" ] ;;
		esac || { echo "E: Could not resolve 'deb.debian.org'" >&2; exit 100; }
	EOF
	chmod +x "$work/bin"/apt-*
	rm -f "$work"/{apt.log,offline,slow}
	printf 'linux-source-6.12 | %s | http://x main\n' 6.12.7-1 '6.12.19-2~deb12u1' > "$work/offered"
}
