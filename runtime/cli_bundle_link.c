/* cli_bundle_link.c - bundle link: an ELF object with a bundle in it, to be linked into a program.
   SPDX-License-Identifier: BSD-3-Clause

   Its only code is a constructor that calls wl_bundle_add(bytes, size) of libwarploom. A symbol for
   the library to look up would be lost when nobody refers to it, could be there once only, and
   isn't seen by dlsym in a program that exports nothing; a constructor works in programs and
   libraries, linked or loaded, and if libwarploom isn't linked, the linker says so. */
#include <elf.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* The constructor of a machine: its code with zeros where numbers go, and how they are filled. */
typedef struct {
    uint16_t machine;
    uint32_t pointer; /* the relocation of init_array */
    size_t code_size;
    uint8_t code[24];
    struct {
        uint32_t type, offset;
        int64_t addend;
        bool call; /* of wl_bundle_add; else the bundle */
    } relocation[3];
    int n_relocations;
} target;

#if defined(__aarch64__)
/* bti c; adrp x0; add x0, x0, :lo12:; movz w1; movk w1, lsl 16; b wl_bundle_add */
static target host = {
    EM_AARCH64, R_AARCH64_ABS64, 24,
    {0x5f, 0x24, 0x03, 0xd5, 0x00, 0x00, 0x00, 0x90, 0x00, 0x00, 0x00, 0x91,
     0x01, 0x00, 0x80, 0x52, 0x01, 0x00, 0xa0, 0x72, 0x00, 0x00, 0x00, 0x14},
    {{R_AARCH64_ADR_PREL_PG_HI21, 4, 0, false}, {R_AARCH64_ADD_ABS_LO12_NC, 8, 0, false},
     {R_AARCH64_JUMP26, 20, 0, true}},
    3};

static void put_size(uint8_t *code, uint32_t size) {
    uint32_t low = 0x52800001 | (size & 0xffff) << 5, high = 0x72a00001 | (size >> 16) << 5;
    memcpy(code + 12, &low, 4);
    memcpy(code + 16, &high, 4);
}
#else
/* endbr64; lea rdi, [rip + …]; mov esi, …; jmp wl_bundle_add */
static target host = {
    EM_X86_64, R_X86_64_64, 21,
    {0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0xbe, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0},
    {{R_X86_64_PC32, 7, -4, false}, {R_X86_64_PLT32, 17, -4, true}},
    2};

static void put_size(uint8_t *code, uint32_t size) {
    memcpy(code + 12, &size, 4);
}
#endif

enum { NONE, TEXT, RELA_TEXT, DATA, INIT, RELA_INIT, STACK, SYMBOLS, STRINGS, SECTIONS };
enum { SYMBOL_NONE, SYMBOL_TEXT, SYMBOL_DATA, SYMBOL_ADD };

/* Names of sections and symbols, at these offsets. */
static const char strings[] = "\0.text\0.rela.text\0.rodata\0.init_array\0.rela.init_array\0"
                              ".note.GNU-stack\0.symtab\0.strtab\0wl_bundle_add";

static uint32_t string(const char *name) {
    uint32_t at = 1;
    while (strcmp(strings + at, name)) at += (uint32_t)strlen(strings + at) + 1;
    return at;
}

static const struct {
    const char *name;
    uint32_t type, align;
    uint64_t flags;
} kinds[SECTIONS] = {
    [TEXT] = {".text", SHT_PROGBITS, 64, SHF_ALLOC | SHF_EXECINSTR},
    [RELA_TEXT] = {".rela.text", SHT_RELA, 8, SHF_INFO_LINK},
    [DATA] = {".rodata", SHT_PROGBITS, 64, SHF_ALLOC},
    [INIT] = {".init_array", SHT_INIT_ARRAY, 8, SHF_ALLOC | SHF_WRITE},
    [RELA_INIT] = {".rela.init_array", SHT_RELA, 8, SHF_INFO_LINK},
    [STACK] = {".note.GNU-stack", SHT_PROGBITS, 1, 0},
    [SYMBOLS] = {".symtab", SHT_SYMTAB, 8, 0},
    [STRINGS] = {".strtab", SHT_STRTAB, 1, 0},
};

/* Appends the bytes, aligned, as section i. */
static void add(wl_buf *out, Elf64_Shdr *section, int i, const void *bytes, size_t size) {
    static const char zeros[64];
    wl_buf_add(out, zeros, (64 - out->size % 64) % 64);
    section[i] = (Elf64_Shdr){.sh_name = string(kinds[i].name), .sh_type = kinds[i].type,
                              .sh_flags = kinds[i].flags, .sh_offset = out->size,
                              .sh_size = size, .sh_addralign = kinds[i].align};
    wl_buf_add(out, bytes, size);
}

static void link_to(Elf64_Shdr *s, uint32_t link, uint32_t info, size_t entry) {
    s->sh_link = link;
    s->sh_info = info;
    s->sh_entsize = entry;
}

static void print_object(const wl_buf *bundle, wl_buf *out) {
    static const uint64_t zero;
    Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                       .e_type = ET_REL, .e_machine = host.machine, .e_version = EV_CURRENT,
                       .e_ehsize = sizeof head, .e_shentsize = sizeof(Elf64_Shdr),
                       .e_shnum = SECTIONS, .e_shstrndx = STRINGS};
    Elf64_Shdr section[SECTIONS] = {0};
    Elf64_Sym symbol[4] = {0};
    Elf64_Rela text[3], init = {0, ELF64_R_INFO(SYMBOL_TEXT, host.pointer), 0};
    symbol[SYMBOL_TEXT] = (Elf64_Sym){.st_info = STT_SECTION, .st_shndx = TEXT};
    symbol[SYMBOL_DATA] = (Elf64_Sym){.st_info = STT_SECTION, .st_shndx = DATA};
    symbol[SYMBOL_ADD] = (Elf64_Sym){.st_name = string("wl_bundle_add"),
                                     .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE)};
    for (int i = 0; i < host.n_relocations; i++)
        text[i] = (Elf64_Rela){host.relocation[i].offset,
                               ELF64_R_INFO((uint64_t)(host.relocation[i].call ? SYMBOL_ADD
                                                                               : SYMBOL_DATA),
                                            host.relocation[i].type),
                               host.relocation[i].addend};
    put_size(host.code, (uint32_t)bundle->size);
    wl_buf_add(out, &head, sizeof head);
    add(out, section, TEXT, host.code, host.code_size);
    add(out, section, RELA_TEXT, text, (size_t)host.n_relocations * sizeof *text);
    add(out, section, DATA, bundle->data, bundle->size);
    add(out, section, INIT, &zero, sizeof zero);
    add(out, section, RELA_INIT, &init, sizeof init);
    add(out, section, STACK, "", 0);
    add(out, section, SYMBOLS, symbol, sizeof symbol);
    add(out, section, STRINGS, strings, sizeof strings);
    section[INIT].sh_entsize = sizeof zero;
    link_to(&section[RELA_TEXT], SYMBOLS, TEXT, sizeof *text);
    link_to(&section[RELA_INIT], SYMBOLS, INIT, sizeof init);
    link_to(&section[SYMBOLS], STRINGS, SYMBOL_ADD, sizeof *symbol);
    wl_buf_add(out, &zero, (8 - out->size % 8) % 8);
    ((Elf64_Ehdr *)(void *)out->data)->e_shoff = out->size;
    wl_buf_add(out, section, sizeof section);
}

wl_status cli_bundle_link(const cli_args *args) {
    const char *path = args->operand[1], *out = args->value[OPTION_OUT];
    wl_buf bundle = {0}, object = {0};
    wl_status status = cli_need_out(args, "bundle", "the object, as attn.o");
    if (!status) status = cli_bundle_read(path, true, &bundle);
    if (!status) print_object(&bundle, &object);
    if (!status) status = wl_file_write(out, object.data, object.size);
    wl_buf_free(&bundle), wl_buf_free(&object);
    return status;
}
