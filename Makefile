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
CPUS    ?= 2
MEM     ?= 1G
ACCEL   ?= auto
CONFIG  ?= running
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
x86-run := tools/x86-run --flavour $(FLAVOUR) --cpus $(CPUS) --mem $(MEM) --accel $(ACCEL)

Q := $(if $(filter 1,$(V)),,@)
MAKEFLAGS += --no-print-directory
# The kernel's own make must not take this one's flags and knobs for its own.
unexport MAKEFLAGS MFLAGS MAKELEVEL

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps source tree refresh um um-run um-shell um-test x86 x86-run \
	x86-shell x86-test x86-peer um-peer x86-kcsan x86-deb demo check check-full series-check \
	mutants clean distclean

flavours = $(shell sed -n '/^[a-z]/s/ .*//p' $(1)/flavours | paste -sd' ')

help: ## this text
	@echo 'Targets:'
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | \
		while IFS='	' read -r t d; do printf '  %-14s %s\n' "$$t" "$$d"; done
	@echo
	@echo 'Knobs (NAME=value after the target; the value now in brackets):'
	@echo '  BUILD     where everything built or downloaded goes [$(BUILD)]'
	@echo '  KVER      6.12.y of the archive, e.g. 6.12.115; empty: the newest [$(KVER)]'
	@echo '  LINUX     own 6.12.y git checkout or unpacked tarball, only read [$(LINUX)]'
	@echo '  FLAVOUR   list of config fragments, of UML: $(call flavours,um-config) [$(FLAVOUR)]'
	@echo '            of x86: $(call flavours,arch-x86-overlay)'
	@echo '  CMD       for um-run, x86-run: the shell command to run in the guest [$(value CMD)]'
	@echo '  CPUS      for x86-*: processors of the guest [$(CPUS)]'
	@echo '  MEM       for x86-run, x86-shell: memory of the guest [$(MEM)]'
	@echo '  ACCEL     for x86-run, x86-shell: kvm, tcg, or auto, which tries [$(ACCEL)]'
	@echo '  CONFIG    for x86-deb: running, debian, minimal or a file [$(CONFIG)]'
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

x86: tree ## build the x86_64 kernel of FLAVOUR
	$(Q)tools/build x86 $(FLAVOUR)

x86-run: tree ## run CMD='...' in an x86_64 guest (QEMU)
	$(Q)$(x86-run) -- /bin/sh -c "$$CMD"

x86-shell: tree ## an interactive shell in an x86_64 guest
	$(Q)$(x86-run) --timeout 0 -- /bin/bash

x86-test: tree ## run the selftests under FLAVOUR with CPUS processors
	$(Q)rm -rf $(BUILD)/results
	-$(Q)tools/x86-test $(FLAVOUR)@$(CPUS)
	$(Q)tools/report 'x86-*'

x86-peer: tree ## the kernel's own mm selftests under stock and base, compared
	$(Q)tools/peer x86

um-peer: tree ## the same under UML, as far as they run there
	$(Q)tools/peer um

x86-kcsan: tree ## data races that the unpatched kernel does not have
	$(Q)tools/kcsan --compare

x86-deb: tree ## Debian packages of the patched kernel for hardware, from CONFIG
	$(Q)tools/deb $(CONFIG)

demo: tree ## page-table memory of the 50 GiB loop, before and after the series
	$(Q)for a in um x86; do for f in stock base; do tools/build -q $$a $$f || exit; done; done
	$(Q)tools/demo

check: tree ## every test of half an hour: selftests, mutants, each patch, the tools
	$(Q)tools/check

check-full: tree ## these, all x86_64 flavours, the kernel's own selftests, KCSAN, packages
	$(Q)tools/check --full

series-check: tree ## every patch by itself: UML, x86_64, PT_RECLAIM on and off, i386
	$(Q)tools/series-check

mutants: tree ## prove that the selftests see faults: each mutant must fail
	$(Q)tools/mutant

clean: ## remove the kernels and results; source, tree and downloads stay
	$(Q)rm -rf $(addprefix $(BUILD)/,um x86 deb kcsan results run series-check tests views once)

distclean: ## remove everything under BUILD, refusing when the tree has local edits
	$(Q)tools/tree --check-clean
	$(Q)rm -rf $(BUILD)
