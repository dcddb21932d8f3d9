# Makefile - builds everything into $(BUILD); one file, no recursion.
# SPDX-License-Identifier: BSD-3-Clause
BUILD ?= build
PREFIX ?= /usr/local
CC = gcc
PYTHON ?= python3
OPT ?= -O2 -g
LUA_INC ?= /usr/include/lua5.4
# The most lines that gen/, templates/ and runtime/ may have together; who raises it says why.
SIZE_LIMIT = 24400
# The same for runtime/sim, which stands on gen/base alone.
SIM_SIZE_LIMIT = 10950

WARN = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror
override CFLAGS := -std=c17 -D_GNU_SOURCE= $(OPT) $(WARN) -fvisibility=hidden -fPIC -pthread \
	-Igen -Iruntime -Itemplates/device -isystem $(LUA_INC) $(CFLAGS)
override LDFLAGS := -Wl,-rpath,'$$ORIGIN' -Wl,--enable-new-dtags $(LDFLAGS)

# What the generator carries inside: every spec, Lua module, template, part and device header; and
# its own C, which is hashed only: it too decides what is generated.
EMBED := $(sort $(wildcard gen/*.lua specs/*.yaml specs/tuned/*.yaml templates/*.lua \
	templates/*.in templates/parts/* templates/device/* gen/*.[ch]))

# Sources of the four programs; the command takes the library's objects, whose inner names the
# shared library hides.
GEN_C := $(filter-out gen/embed.c,$(wildcard gen/*.c))
CLI_C := $(wildcard runtime/cli*.c) runtime/npy.c runtime/reference.c runtime/quantise.c \
	runtime/json.c \
	runtime/formula.c runtime/foreign.c
LIB_C := gen/base.c gen/problem.c $(filter-out $(CLI_C),$(wildcard runtime/*.c))
SIM_C := $(wildcard runtime/sim/*.c)
TEST_C := $(filter-out tests/test_sim%,$(wildcard tests/test_*.c))
SIM_TEST_C := $(wildcard tests/test_sim*.c)
FAKE_C := $(wildcard tests/fake_*.c)

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
GEN_O := $(call obj,$(GEN_C)) $(BUILD)/obj/embed.o
LIB_O := $(call obj,$(LIB_C)) $(BUILD)/obj/digest.o
CLI_O := $(call obj,$(CLI_C))
CLI_BARE_O := $(filter-out $(BUILD)/obj/runtime/cli%,$(CLI_O))
SIM_O := $(call obj,$(SIM_C) gen/base.c)
SIM_TESTS := $(patsubst tests/%.c,$(BUILD)/%,$(SIM_TEST_C))
TESTS := $(patsubst tests/%.c,$(BUILD)/%,$(TEST_C))
TORTURE := $(addprefix $(BUILD)/torture_,use other shim.so)
REPLAYS := $(patsubst tests/fuzz/fuzz_%.c,$(BUILD)/replay_%,$(wildcard tests/fuzz/fuzz_*.c))
FAKES := $(patsubst tests/%.c,$(BUILD)/lib%.so,$(FAKE_C))
DEPLIBS := $(addprefix $(BUILD)/,liblua5.4.so.0 libyaml-0.so.2 libsodium.so.23 \
	libzstd.so.1)
PROGRAMS := $(BUILD)/warploom $(BUILD)/libwarploom.so $(BUILD)/libwarploom-gen.so
SIMULATOR := $(BUILD)/sim/libcuda.so.1

all: $(PROGRAMS) $(SIMULATOR) $(DEPLIBS)
tests: all sim-tests $(TESTS) $(FAKES) $(REPLAYS) $(BUILD)/launch_cost \
	$(BUILD)/offline $(BUILD)/tiles $(TORTURE)
sim: $(SIMULATOR)
sim-tests: sim $(SIM_TESTS) $(addprefix $(BUILD)/sim_,cases eight mutate speed threads)

$(BUILD)/libwarploom-gen.so: $(GEN_O)
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -shared -o $@ $^ $(LDFLAGS) -llua5.4 -lyaml -lsodium

# Programs are bound to the file with the number, which counts breaks of the ABI (tests/abi.txt).
$(BUILD)/libwarploom.so.0: $(LIB_O) runtime/warploom.map
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=runtime/warploom.map -o $@ \
		$(LIB_O) $(LDFLAGS) -lsodium -lzstd -ldl -lm
$(BUILD)/libwarploom.so: $(BUILD)/libwarploom.so.0
	@ln -f $< $@

$(BUILD)/warploom: $(CLI_O) $(LIB_O)
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDFLAGS) -lsodium -lzstd -ldl -lm

# A unit test sees every inner name: it is linked with all objects but those of the command.
$(BUILD)/test_%: $(BUILD)/obj/tests/test_%.o $(sort $(LIB_O) $(GEN_O)) $(CLI_BARE_O)
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDFLAGS) -llua5.4 -lyaml -lsodium -lzstd -ldl -lm

# The simulator as a driver: no name of its own inside, so that nobody who asks the loader for the
# machine's libcuda.so.1 is given this one.
$(SIMULATOR): $(SIM_O)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -shared -o $@ $^ $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/..' -lsodium -lm
$(BUILD)/test_sim%: $(BUILD)/obj/tests/test_sim%.o $(SIM_O)
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDFLAGS) -lsodium -lzstd -ldl -lm

# Emitted kernels in the simulator: numeric cases, and what catches a lost instruction.
$(BUILD)/sim_%: $(BUILD)/obj/tests/sim/%.o $(sort $(LIB_O) $(CLI_BARE_O) $(SIM_O))
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDFLAGS) -lsodium -lzstd -ldl -lm

# The interpreter's inner loops are worth -O3; no exception flag of the host's is ever looked at.
$(BUILD)/obj/runtime/sim/%.o: HOT = $(if $(findstring -O2,$(OPT)),-O3) -fno-trapping-math
$(BUILD)/obj/tests/test_sim%.o: NEAR = -Iruntime/sim

# libFuzzer over what reads the bytes of others; each target with the sources that it is for.
FUZZ := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SIM_C := $(filter-out runtime/sim/cuda%,$(SIM_C)) gen/base.c runtime/json.c \
	runtime/foreign.c runtime/npy.c
FUZZ_GEN_C := $(GEN_C) $(BUILD)/embed.c
$(addprefix $(BUILD)/fuzz/fuzz_,ptx launch tmap): FUZZ_C = $(FUZZ_SIM_C)
$(addprefix $(BUILD)/fuzz/fuzz_,spec template): FUZZ_C = $(FUZZ_GEN_C) -llua5.4 -lyaml
$(BUILD)/fuzz/fuzz_formula: FUZZ_C = $(FUZZ_GEN_C) runtime/formula.c -llua5.4 -lyaml
$(BUILD)/fuzz/fuzz_entry: FUZZ_C = gen/base.c gen/problem.c runtime/launch.c \
	$(wildcard runtime/cache*.c)
$(BUILD)/fuzz/fuzz_bundle: FUZZ_C = gen/base.c runtime/bundle.c runtime/bundle_sign.c -lzstd
$(BUILD)/fuzz/fuzz_npy: FUZZ_C = gen/base.c runtime/npy.c
$(BUILD)/fuzz/fuzz_problem: FUZZ_C = gen/base.c gen/problem.c
$(BUILD)/fuzz/%: tests/fuzz/%.c $(FUZZ_SIM_C) $(FUZZ_GEN_C) $(wildcard runtime/*.[ch] \
		runtime/sim/*.h runtime/sim/*.def gen/*.h)
	@mkdir -p $(@D)
	@echo "  CLANG $<"
	@clang -std=c17 -D_GNU_SOURCE= -O1 -g -fsanitize=fuzzer,address,undefined -pthread \
		-fno-sanitize-recover=all -Iruntime/sim -Igen -Iruntime -isystem $(LUA_INC) -o $@ $< \
		$(FUZZ_C) -lsodium -lm
# The same targets without libFuzzer, for make check: the corpus, and changes of it.
$(BUILD)/obj/tests/fuzz/%.o: NEAR = -Iruntime/sim
$(BUILD)/replay_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/obj/tests/fuzz/replay.o \
		$(sort $(LIB_O) $(GEN_O) $(CLI_BARE_O) $(SIM_O))
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDFLAGS) -llua5.4 -lyaml -lsodium -lzstd -ldl -lm

# Masks' tiles as they are told, against brute force.
$(BUILD)/tiles: $(BUILD)/obj/tests/tiles.o $(sort $(LIB_O) $(GEN_O)) $(CLI_BARE_O)
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDFLAGS) -llua5.4 -lyaml -lsodium -lzstd -ldl -lm

# What bench asks for the CPU time of a launch: the C call alone, without Python.
$(BUILD)/launch_cost: $(BUILD)/obj/tests/bench/launch.o $(LIB_O)
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDFLAGS) -lsodium -lzstd -ldl -lm

# What runs where there is nothing but libwarploom and a bundle.
$(BUILD)/offline: $(BUILD)/obj/tests/offline.o $(BUILD)/libwarploom.so
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -o $@ $< $(LDFLAGS) -L$(BUILD) -lwarploom -ldl -lm

# What the torture of the cache runs: a program, the same of another version (its generator
# differs), and what lets its system calls fail.
$(BUILD)/torture_use: $(BUILD)/obj/tests/torture/use.o $(LIB_O)
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDFLAGS) -lsodium -lzstd -ldl -lm
$(BUILD)/torture_other: $(BUILD)/obj/tests/torture/use.o $(BUILD)/obj/tests/torture/other.o \
	$(filter-out %/digest.o,$(LIB_O))
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDFLAGS) -lsodium -lzstd -ldl -lm
$(BUILD)/torture_shim.so: $(BUILD)/obj/tests/torture/shim.o
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -shared -o $@ $^ $(LDFLAGS) -ldl

$(BUILD)/libfake_%.so: $(BUILD)/obj/tests/fake_%.o
	@echo "  LD    $@"
	@$(CC) $(CFLAGS) -shared -o $@ $^ $(LDFLAGS)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	@$(CC) $(NEAR) $(CFLAGS) $(HOT) -MMD -MP -c -o $@ $<

# embed OUT_EMBED_C OUT_DIGEST_C FILE...: the files as C arrays, and one hash over all of them.
$(BUILD)/embed: gen/embed.c gen/base.c gen/base.h runtime/warploom.h
	@mkdir -p $(@D)
	@echo "  CC    gen/embed.c"
	@$(CC) -std=c17 -D_GNU_SOURCE= $(WARN) -Igen -Iruntime -o $@ gen/embed.c gen/base.c -lsodium
$(BUILD)/embed.list: FORCE
	@mkdir -p $(@D)
	@echo '$(EMBED)' | cmp -s - $@ || echo '$(EMBED)' > $@
$(BUILD)/embed.c: $(BUILD)/embed $(BUILD)/embed.list $(EMBED)
	@echo "  EMBED $(words $(EMBED)) files"
	@$(BUILD)/embed $(BUILD)/embed.c $(BUILD)/digest.c $(EMBED)
$(BUILD)/digest.c: $(BUILD)/embed.c ;
$(BUILD)/obj/embed.o $(BUILD)/obj/digest.o: $(BUILD)/obj/%.o: $(BUILD)/%.c
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# Debian's static archives of these do not link into a shared library: the shared ones travel along.
$(DEPLIBS):
	@mkdir -p $(@D)
	@cp -L "$$($(CC) -print-file-name=$(@F))" $@

# The library itself decides whether it finds an NVRTC: the build comes before that question.
setup:
	@BUILD=$(BUILD) sh .ci/setup.sh packages
	@$(MAKE) --no-print-directory BUILD=$(BUILD) -j2 all
	@BUILD=$(BUILD) sh .ci/setup.sh nvrtc
demo: setup
	@$(MAKE) --no-print-directory BUILD=$(BUILD) -j2 sim
	@BUILD=$(BUILD) sh examples/demo.sh
check: setup
	@$(MAKE) --no-print-directory BUILD=$(BUILD) -j2 tests sim
	@BUILD=$(BUILD) $(PYTHON) tests/run.py
check-all: setup
	@$(MAKE) --no-print-directory BUILD=$(BUILD) -j2 tests sim
	@BUILD=$(BUILD) $(PYTHON) tests/run.py --all
check-gpu: all
	@$(PYTHON) tests/gpu/check.py
bench: all $(BUILD)/launch_cost
	@$(PYTHON) tests/bench/bench.py
mutants: sim-tests
	@$(BUILD)/sim_mutate $(patsubst generated/%.cu,%,$(wildcard generated/*.cu))
sim-speed: sim $(BUILD)/sim_speed
	@WARPLOOM_CACHE=off $(BUILD)/sim_speed fwd_d128_bf16_causal_m192n64_s7_w3_opt_dyn_p32c160
fuzz: $(FUZZ)
	@sh tests/fuzz/run.sh $(or $(T),60) $(BUILD)
torture: tests
	@BUILD=$(BUILD) $(PYTHON) tests/torture/torture.py
tuned: all
	@$(PYTHON) tests/bench/tuned.py
pictures: all
	@BUILD=$(BUILD) $(PYTHON) tests/test_draw.py --write
tables:
	@$(PYTHON) tests/bench/tables.py
size:
	@$(PYTHON) tests/run.py --size

# All that belongs together stands in lib/warploom, where each finds the others.
VERSION := $(shell sed -n 's/^.define WARPLOOM_VERSION "\(.*\)"/\1/p' runtime/warploom.h)
AT = $(DESTDIR)$(PREFIX)
install: all
	@case '$(PREFIX)' in *[!A-Za-z0-9/._+~@%:,-]* | [!/]*) \
		echo 'PREFIX=$(PREFIX): expected an absolute path of plain characters' >&2; exit 1;; esac
	install -d '$(AT)/bin' '$(AT)/include' '$(AT)/lib/warploom/sim' \
		'$(AT)/lib/pkgconfig' '$(AT)/share/man/man1' '$(AT)/share/man/man3' \
		'$(AT)/share/man/man5' '$(AT)/share/bash-completion/completions' \
		'$(AT)/share/doc/warploom/masks'
	install -m 755 $(BUILD)/warploom $(BUILD)/libwarploom.so.0 $(BUILD)/libwarploom-gen.so \
		'$(AT)/lib/warploom'
	install -m 755 $(SIMULATOR) '$(AT)/lib/warploom/sim/libcuda.so.1'
	ln -sf ../lib/warploom/warploom '$(AT)/bin/warploom'
	ln -sf warploom/libwarploom.so.0 '$(AT)/lib/libwarploom.so.0'
	ln -sf libwarploom.so.0 '$(AT)/lib/libwarploom.so'
	install -m 644 runtime/warploom.h '$(AT)/include'
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' runtime/share/warploom.pc.in | \
		install -m 644 /dev/stdin '$(AT)/lib/pkgconfig/warploom.pc'
	for n in 1 3 5; do install -m 644 runtime/share/man/*.$$n '$(AT)/share/man/man'$$n; done
	install -m 644 runtime/share/warploom.bash '$(AT)/share/bash-completion/completions/warploom'
	install -m 644 README.md LICENSE NEWS.md SECURITY.md '$(AT)/share/doc/warploom'
	install -m 644 runtime/share/masks/* '$(AT)/share/doc/warploom/masks'

# The same bytes for the same commit, wherever and whenever: git takes times and order from it, and
# nothing from who calls it.
DIST = warploom-$(VERSION)
dist:
	@mkdir -p $(BUILD)
	git -c tar.umask=0002 -c core.autocrlf=false archive --prefix=$(DIST)/ \
		-o $(BUILD)/$(DIST).tar HEAD
	env -u GZIP gzip -9nf $(BUILD)/$(DIST).tar
abi: all
	@BUILD=$(BUILD) $(PYTHON) tests/test_ship.py --abi >tests/abi.txt
clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
FORCE:
.PHONY: all tests sim sim-tests sim-speed setup demo check check-all check-gpu bench fuzz mutants \
	tables pictures torture tuned size install dist abi clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:
