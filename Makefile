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

ifneq ($(words x$(CURDIR)x$(BUILD)x),1)
$(error the path of this folder or of BUILD has a space in it, which the kernel's \
  own build cannot handle; move the clone or set BUILD= to another folder)
endif

override BUILD := $(abspath $(BUILD))
# CMD goes to the guest's shell as it was typed: make must not expand its $.
override CMD := $(value CMD)
export BUILD LINUX KVER FLAVOUR CMD JOBS V

Q := $(if $(filter 1,$(V)),,@)
MAKEFLAGS += --no-print-directory

# Starting a guest takes less than a second, asking kbuild whether the kernel is
# current takes several: build before a run only when there is no kernel at all.
um-kernel = $(if $(wildcard $(BUILD)/um/$(FLAVOUR)/linux),,um)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps source tree refresh um um-run um-shell um-test demo check \
	series-check clean distclean

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

deps: ## install the Debian packages of tools/packages that are missing
	$(Q)tools/deps

source: deps ## fetch the kernel source: $(BUILD)/stock, unpatched
	$(Q)tools/source

tree: source ## apply the patches as commits: $(BUILD)/tree (DISCARD=1 drops local edits)
	$(Q)tools/tree

refresh: deps ## turn the commits of $(BUILD)/tree back into the patch files
	$(Q)tools/refresh

um: tree ## build the User-Mode-Linux kernel of FLAVOUR
	$(Q)tools/build um $(FLAVOUR)

um-run: $(um-kernel) ## run CMD='...' in a User-Mode-Linux guest
	$(Q)tools/um-run --flavour $(FLAVOUR) -- /bin/sh -c "$$CMD"

um-shell: $(um-kernel) ## an interactive shell in a User-Mode-Linux guest
	$(Q)tools/um-run --flavour $(FLAVOUR) --timeout 0 -- /bin/bash

um-test: um ## run the selftests under FLAVOUR
	$(Q)rm -rf $(BUILD)/results
	-$(Q)tools/um-test $(FLAVOUR)
	$(Q)tools/report

demo: tree ## page-table memory of the 50 GiB loop, before and after the series
	$(Q)tools/build um stock
	$(Q)tools/build um base
	$(Q)tools/demo

check: tree ## every test: the tools, the selftests under base and debug, mm/ per patch
	$(Q)rm -rf $(BUILD)/results
	-$(Q)tests/tools/run
	$(Q)tools/build um base
	-$(Q)tools/um-test base
	$(Q)tools/build um debug
	-$(Q)tools/um-test debug
	-$(Q)tools/series-check --quick
	$(Q)tools/report

series-check: tree ## every patch by itself, with PT_RECLAIM on and off
	$(Q)tools/series-check

clean: ## remove the kernels and results; source, tree and downloads stay
	$(Q)rm -rf $(BUILD)/um $(BUILD)/results $(BUILD)/tests

distclean: ## remove everything under BUILD, refusing when the tree has local edits
	$(Q)tools/tree --check-clean
	$(Q)rm -rf $(BUILD)
