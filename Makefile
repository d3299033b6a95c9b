# SPDX-License-Identifier: GPL-2.0
#
# The one entry point of the project. This file is only glue: it names the
# targets, orders them and calls the tools in tools/, each of which says in its
# first comment what it does. "make help" lists targets and knobs.

# Set these to override, on the command line or in the environment.
BUILD   ?= build
LINUX   ?=
KVER    ?=
FLAVOUR ?= base
CMD     ?=
JOBS    ?= $(shell nproc)
V       ?= 0
FORCE   ?= 0

ifneq ($(words x$(CURDIR)x$(BUILD)x),1)
$(error the path of this folder or of BUILD has a space in it, which the kernel's \
  own build cannot handle; move the clone or set BUILD= to another folder)
endif

override BUILD := $(abspath $(BUILD))
# CMD goes to the guest's shell as it was typed: make must not expand its $.
override CMD := $(value CMD)
export BUILD LINUX KVER FLAVOUR CMD JOBS V FORCE

Q := $(if $(filter 1,$(V)),,@)
MAKEFLAGS += --no-print-directory
# The kernel's own make must not take this one's flags and knobs for its own.
unexport MAKEFLAGS MFLAGS MAKELEVEL

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps source tree refresh um um-run um-shell um-test demo check \
	series-check mutants clean distclean

help: ## this text
	@echo 'Targets:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | \
		while IFS='	' read -r t d; do printf '  %-14s %s\n' "$$t" "$$d"; done
	@echo
	@echo 'Knobs (NAME=value after the target; the value now in brackets):'
	@echo '  BUILD     where everything built or downloaded goes [$(BUILD)]'
	@echo '  KVER      6.12.y of the archive, e.g. 6.12.115; empty: the newest [$(KVER)]'
	@echo '  LINUX     own 6.12.y git checkout or unpacked tarball, only read [$(LINUX)]'
	@echo '  FLAVOUR   list of config fragments: stock, base, debug [$(FLAVOUR)]'
	@echo '  CMD       for um-run: the shell command to run in the guest [$(value CMD)]'
	@echo '  JOBS      how many compilers to run at once [$(JOBS)]'
	@echo '  V         1 prints every command in full [$(V)]'
	@echo '  FORCE     for check: 1 repeats also the steps whose inputs have not changed [$(FORCE)]'

deps: ## install the Debian packages of tools/packages that are missing
	$(Q)tools/deps

source: deps ## fetch the kernel source: build/stock, unpatched
	$(Q)tools/source

tree: source ## apply the patches as commits: build/tree (DISCARD=1 drops local edits)
	$(Q)tools/tree

refresh: deps ## turn the commits of build/tree back into the patch files
	$(Q)tools/refresh

um: tree ## build the User-Mode-Linux kernel of FLAVOUR
	$(Q)tools/build um $(FLAVOUR)

um-run: tree ## run CMD='...' in a User-Mode-Linux guest
	$(Q)tools/um-run --flavour $(FLAVOUR) -- /bin/sh -c "$$CMD"

um-shell: tree ## an interactive shell in a User-Mode-Linux guest
	$(Q)tools/um-run --flavour $(FLAVOUR) --timeout 0 -- /bin/bash

um-test: tree ## run the selftests under FLAVOUR (TESTS=program[:test] ... for some)
	$(Q)rm -rf $(BUILD)/results
	-$(Q)tools/um-test $(FLAVOUR)
	$(Q)tools/report 'um-$(FLAVOUR)-*'

demo: tree ## page-table memory of the 50 GiB loop, before and after the series
	$(Q)tools/build um stock
	$(Q)tools/build um base
	$(Q)tools/demo

# The mutants that check proves the tests with, those of the fewest compiler runs.
CHECK_MUTANTS := um-new-table-without-sync-bits pgtables-bytes-not-decremented fast-path-after-lock-dropped

# Each step leaves its TAP in results/ and none stops the next; the report sees
# the failures, and the steps that left nothing.
check: tree ## every test: selftests under all flavours, mutants, each patch, the tools
	$(Q)rm -rf $(BUILD)/results
	-$(Q)tools/um-test base
	-$(Q)tools/um-test debug
	-$(Q)tools/um-test base-off
	-$(Q)tools/um-test stock
	-$(Q)tools/once mutants mutants -- tools/mutant $(CHECK_MUTANTS)
	-$(Q)tools/series-check --quick
	-$(Q)tools/once tools 'tools-*' -- tests/tools/run
	$(Q)tools/report 'um-base-*' 'um-debug-*' 'um-base-off-*' 'um-stock-*' mutants series-check 'tools-*'

series-check: tree ## every patch by itself, with PT_RECLAIM on and off
	$(Q)tools/series-check

mutants: tree ## prove that the selftests see faults: each mutant must fail
	$(Q)tools/mutant

clean: ## remove the kernels and results; source, tree and downloads stay
	$(Q)rm -rf $(addprefix $(BUILD)/,um results run series-check tests views once)

distclean: ## remove everything under BUILD, refusing when the tree has local edits
	$(Q)tools/tree --check-clean
	$(Q)rm -rf $(BUILD)
