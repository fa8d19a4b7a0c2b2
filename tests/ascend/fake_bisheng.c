/* A fake bisheng: takes the options that bisheng is documented to take, and no others.
 *
 * It reads the source and what it includes as a compiler does, and "compiles" to a real object of the
 * architecture asked for, with a hash of all it read in the first bytes of its code. A comment `// fake: WORD` in
 * the source makes it misbehave. -DBANNER="..." is the first line of its --version.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *quote[64], *angle[64], *macros[64], *depends, *out = "a.out", *arch, *source, *before[8];
static int quotes, angles, macro_count, befores, dep_count, dropped_core = 1;
static char deps[256][1024], misbehave[64];
static uint64_t hash = 1469598103934665603u;

static void mix(const char *data, size_t size) {
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)data[i]) * 1099511628211u;
}

static int die(const char *format, const char *a, int line) {
    printf(format, a, line);
    exit(1);
}

static void read_file(const char *path, int depth);

static FILE *search(const char *name, const char *includer, int is_quote, char *found) {
    FILE *file = NULL;
    if (is_quote) {
        const char *slash = strrchr(includer, '/');
        snprintf(found, 1024, "%.*s%s", slash ? (int)(slash - includer + 1) : 0, includer, name);
        if ((file = fopen(found, "r"))) return file;
        for (int i = 0; i < quotes && !file; i++) {
            snprintf(found, 1024, "%s/%s", quote[i], name);
            file = fopen(found, "r");
        }
    }
    for (int i = 0; i < angles && !file; i++) {
        snprintf(found, 1024, "%s/%s", angle[i], name);
        file = fopen(found, "r");
    }
    return file;
}

static void line_of(const char *path, char *line, int number, int depth) {
    char name[512], open, found[1024];
    char *word = strstr(line, "// fake: ");
    if (word) sscanf(word + 9, "%63[a-z-]", misbehave);
    if (strstr(line, "!!!")) {
        printf("%s:%d:1: error: expected unqualified-id\n!!!\n1 error generated.\n", path, number);
        exit(1);
    }
    char *has = strstr(line, "__has_include(");
    if (has && sscanf(has + 14, "%c%511[^>\"]", &open, name) == 2) {
        FILE *file = search(name, path, open == '"', found);
        mix(file ? "1" : "0", 1);
        if (file) fclose(file);
    } else if (sscanf(line, " # include %c%511[^>\"]", &open, name) == 2 || sscanf(line, " #include %c%511[^>\"]", &open, name) == 2) {
        FILE *file = name[0] == '/' ? fopen(strcpy(found, name), "r") : search(name, path, open == '"', found);
        if (!file) {
            printf("%s:%d:10: fatal error: '%s' file not found\n", path, number, name);
            exit(1);
        }
        fclose(file);
        read_file(found, depth + 1);
    }
}

static void read_file(const char *path, int depth) {
    char line[4096];
    FILE *file = fopen(path, "r");
    if (!file) die("clang-15: error: no such file or directory: '%s'\n", path, 0);
    if (depth > 20) die("%s:%d:1: error: #include nested too deeply\n", path, 1);
    snprintf(deps[dep_count++ % 256], 1024, "%s", path);
    for (int number = 1; fgets(line, sizeof line, file); number++) {
        mix(line, strlen(line));
        line_of(path, line, number, depth);
    }
    fclose(file);
}

static void start(const char *tool) {
    pid_t child = fork();
    if (!child) { execl(tool, tool, "--version", (char *)NULL); _exit(127); }
    int status;
    waitpid(child, &status, 0);
}

static int is(const char *word) { return !strcmp(misbehave, word); }

int main(int argc, char **argv) {
    char self[1024], path[1200], home[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    snprintf(home, sizeof home, "%s", self);
    for (int i = 0; i < 2; i++) *strrchr(home, '/') = 0; /* the toolkit, or <host>-linux in it */
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        snprintf(path, sizeof path, "%s/lib/asked", home); /* so that a test can count */
        FILE *asked = fopen(path, "a");
        if (asked) { fputc('.', asked); fclose(asked); }
        *strrchr(self, '/') = 0;
        printf("%s\nTarget: hiipu64\nThread model: posix\nInstalledDir: %s\n", BANNER, self);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        char *a = argv[i];
        if (!strcmp(a, "-mllvm") || !strcmp(a, "-x")) { mix(argv[i + 1], strlen(argv[i + 1])); i++; }
        else if (!strcmp(a, "-o")) out = argv[++i];
        else if (!strcmp(a, "-MF")) depends = argv[++i];
        else if (!strcmp(a, "-MD")) { }
        else if (!strcmp(a, "-include")) before[befores++ % 8] = argv[++i];
        else if (!strncmp(a, "--npu-arch=", 11)) arch = a + 11;
        else if (!strcmp(a, "--cce-aicore-only")) dropped_core = 0;
        else if (!strncmp(a, "-isystem", 8)) angle[angles++ % 64] = a + 8;
        else if (!strncmp(a, "-iquote", 7)) quote[quotes++ % 64] = a + 7;
        else if (!strncmp(a, "-I", 2)) angle[angles++ % 64] = a + 2;
        else if (!strncmp(a, "-D", 2) || !strncmp(a, "-U", 2)) { macros[macro_count++ % 64] = a; mix(a, strlen(a)); }
        else if (!strncmp(a, "-O", 2) || !strncmp(a, "-W", 2) || !strncmp(a, "-f", 2) || !strncmp(a, "-std=", 5) ||
                 !strcmp(a, "--enable-simt") || !strcmp(a, "-g") || !strcmp(a, "-gline-tables-only") || !strcmp(a, "-w")) {
            if (!strstr(a, "-prefix-map=")) mix(a, strlen(a));
        } else if (a[0] == '-') die("clang-15: error: unknown argument: '%s'\n", a, 0);
        else if (source) die("clang-15: error: more than one input: '%s'\n", a, 0);
        else source = a;
    }
    if (!source) die("clang-15: error: no input files%s\n", "", 0);
    if (dropped_core) die("fake: without --cce-aicore-only it would make a host object: %s\n", source, 0);
    for (int i = 0; i < befores; i++) {
        char found[1024];
        FILE *file = search(before[i], "", 1, found);
        if (!file) die("<built-in>:1:10: fatal error: '%s' file not found\n", before[i], 0);
        fclose(file);
        read_file(found, 1);
    }
    read_file(source, 0);
    if (is("sleep")) sleep(60);
    if (is("kill")) abort();
    if (is("nothing")) return 0;
    if (is("outside")) { FILE *f = fopen("/etc/hostname", "r"); if (f) fclose(f); }
    if (is("helper")) { snprintf(path, sizeof path, "%s/bin/helper", home); start(path); }
    if (is("stranger")) start("/bin/true");
    if (is("warn")) printf("%s:1:1: warning: as you like\n", source);
    snprintf(path, sizeof path, "%s/lib/%s.o", home, is("other-arch") ? "dav-3510" : arch);
    FILE *given = fopen(path, "rb"), *made;
    if (!given) die("clang-15: error: unsupported argument '%s' to option '--npu-arch='\n", arch ? arch : "", 0);
    static unsigned char data[4 << 20];
    size_t size = fread(data, 1, sizeof data, given);
    fclose(given);
    Elf64_Ehdr *head = (Elf64_Ehdr *)data;
    Elf64_Shdr *sections = (Elf64_Shdr *)(data + head->e_shoff);
    const char *names = (const char *)(data + sections[head->e_shstrndx].sh_offset);
    for (int i = 0; i < head->e_shnum; i++) {
        unsigned char *body = data + sections[i].sh_offset;
        if (!strcmp(names + sections[i].sh_name, ".text")) {
            memcpy(body, &hash, sizeof hash);
            if (is("path")) memcpy(body + 8, home, strlen(home));
        }
        if (is("banner") && !strcmp(names + sections[i].sh_name, ".comment")) memcpy(body + sections[i].sh_size / 4, "????", 4);
    }
    head->e_type = ET_REL;
    made = fopen(out, "wb");
    if (!made || fwrite(data, 1, is("half") ? size / 2 : size, made) != (is("half") ? size / 2 : size)) die("error: %s\n", out, 0);
    fclose(made);
    if (depends && !is("no-depends")) {
        made = fopen(depends, "w");
        fprintf(made, "%s:", out);
        for (int i = 0; i < dep_count && i < 256; i++) {
            fprintf(made, " \\\n  ");
            for (char *c = deps[i]; *c; c++) { if (*c == ' ') fputc('\\', made); fputc(*c, made); }
        }
        fprintf(made, "\n");
        fclose(made);
    }
    return 0;
}
