/* A fake ld.lld: takes the options that a device object is linked with, and makes an executable of an object. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *in = NULL, *out = NULL;
    int machine = 0, text = 0, again = 0;
    static unsigned char data[4 << 20];
    if (argc == 2 && !strcmp(argv[1], "--version")) { puts("LLD 15.0.5 (compatible with GNU linkers)"); return 0; }
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-m")) machine = !strcmp(argv[++i], "aicorelinux");
        else if (!strcmp(argv[i], "-Ttext")) text = !strcmp(argv[++i], "0");
        else if (!strcmp(argv[i], "-r")) again = 1;
        else if (!strcmp(argv[i], "--no-mmap-output-file")) { }
        else if (!strcmp(argv[i], "--no-link")) { puts("ld.lld: error: told not to"); return 1; }
        else if (!strcmp(argv[i], "-z")) i++;
        else if (!strcmp(argv[i], "-o")) out = argv[++i];
        else if (argv[i][0] == '-') { printf("ld.lld: error: unknown argument '%s'\n", argv[i]); return 1; }
        else in = argv[i];
    }
    if (!machine || !text || !in || !out) { puts("ld.lld: error: not a device link"); return 1; }
    FILE *file = fopen(in, "rb");
    if (!file) { printf("ld.lld: error: cannot open %s: No such file or directory\n", in); return 1; }
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    if (size < sizeof(Elf64_Ehdr) || ((Elf64_Ehdr *)data)->e_type != ET_REL) { printf("ld.lld: error: %s is no object\n", in); return 1; }
    ((Elf64_Ehdr *)data)->e_type = again ? ET_REL : ET_EXEC;
    file = fopen(out, "wb");
    fwrite(data, 1, size, file);
    return fclose(file) != 0;
}
