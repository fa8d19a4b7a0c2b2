/* Record what a compiler looks at: a small LD_PRELOAD library.
 *
 * Every process of a compile writes one event per look to the file named by CUBINET_RECORDER_LOG:
 *
 *     <op> <pid> <error> <dev> <ino> <size> <mtime ns> <ctime ns> NUL <path> NUL
 *
 *   S  this process started (path: its program)          X  it is about to execute path
 *   F  that execution failed                             R  it opened path for reading
 *   W  it opened path for writing                        P  it found path by a stat-like call
 *   A  it looked for path in vain                        D  it listed folder path
 *
 * For R and P the stamp is that of the file at that moment, so whoever reads the log can tell later
 * whether the file is still the one the compiler saw. A relative path means: relative to the folder in
 * CUBINET_RECORDER_FOLDER, where the compile runs.
 *
 * It also keeps this machine's folders out of what is compiled: nvcc hashes the real path of its source
 * into the names of internal symbols, so for a path below that folder realpath() answers with
 * CUBINET_RECORDER_ALIAS in the folder's place and follows no link.
 *
 * dlopen is left alone: it searches as its caller's library says, and that would then be this one.
 * Not seen: shared objects, static programs and bare system calls. X events without the S event of the same process
 * show the former; the self-test in _recorder.py shows whether the compiler at hand uses the latter.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int log_fd = -1;
static char folder[PATH_MAX], alias[PATH_MAX];
static size_t folder_length;

#define NEXT(name) ((__typeof__(&name))next(#name))

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        static const char text[] = "cubinet recorder: the C library lacks a function it should have\n";
        if (write(2, text, sizeof text - 1) < 0) { }
        _exit(127);
    }
    return found;
}

static int raw_stat(int dir, const char *path, struct stat *st, int flags) {
#ifdef SYS_newfstatat
    return (int)syscall(SYS_newfstatat, dir, path, st, flags);
#else
    return (int)syscall(SYS_fstatat, dir, path, st, flags);
#endif
}

static void put(char op, int error, const struct stat *st, const char *prefix, const char *path) {
    char buf[3 * PATH_MAX + 256];
    int n;
    if (log_fd < 0) return;
    if (st)
        n = snprintf(buf, 256, "%c %d %d %llu %llu %lld %lld %lld %o", op, (int)getpid(), error,
                     (unsigned long long)st->st_dev, (unsigned long long)st->st_ino, (long long)st->st_size,
                     (long long)st->st_mtim.tv_sec * 1000000000LL + st->st_mtim.tv_nsec,
                     (long long)st->st_ctim.tv_sec * 1000000000LL + st->st_ctim.tv_nsec, (unsigned)st->st_mode);
    else
        n = snprintf(buf, 256, "%c %d %d 0 0 0 0 0 0", op, (int)getpid(), error);
    n++; /* keep the NUL */
    size_t a = strlen(prefix), b = strlen(path);
    if (a + b + 2 > sizeof buf - 256) { /* no file has such a name: every call fails with ENAMETOOLONG */
        b = 0;
        a = 0;
        buf[0] = 'E';
    }
    memcpy(buf + n, prefix, a);
    n += (int)a;
    if (a && b) buf[n++] = '/';
    memcpy(buf + n, path, b);
    n += (int)b;
    buf[n++] = 0;
    /* O_APPEND keeps events of all processes whole; a short write would need a full disk */
    if (write(log_fd, buf, (size_t)n) != n) { }
}

/* Write one event; fill in the folder that a relative path starts from. */
static void note(char op, int dir, const char *path, int error, const struct stat *st) {
    int saved = errno;
    char here[PATH_MAX], link[64];
    here[0] = 0;
    if (log_fd < 0 || !path) { errno = saved; return; }
    if (path[0] != '/') {
        ssize_t n;
        if (dir == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        n = syscall(SYS_readlinkat, AT_FDCWD, link, here, sizeof here - 1);
        here[n > 0 ? n : 0] = 0;
        if (folder_length && !strcmp(here, folder)) here[0] = 0;
    }
    put(op, error, st, here, path);
    errno = saved;
}

static void note_found(int dir, const char *path, int failed) {
    struct stat st;
    int saved = errno;
    if (failed) note('A', dir, path, saved, NULL);
    else if (!raw_stat(dir, path, &st, 0)) note('P', dir, path, 0, &st);
    else note('P', dir, path, 0, NULL);
    errno = saved;
}

static void note_open(int dir, const char *path, int fd, int writing) {
    struct stat st;
    int saved = errno;
    if (fd < 0) note(writing ? 'W' : 'A', dir, path, saved, NULL);
    else if (writing) note('W', dir, path, 0, NULL);
    else if (!raw_stat(fd, "", &st, AT_EMPTY_PATH)) note('R', dir, path, 0, &st);
    else note('R', dir, path, 0, NULL);
    errno = saved;
}

__attribute__((constructor)) static void start(void) {
    const char *log = getenv("CUBINET_RECORDER_LOG"), *where = getenv("CUBINET_RECORDER_FOLDER"),
               *name = getenv("CUBINET_RECORDER_ALIAS");
    char exe[PATH_MAX];
    ssize_t n;
    int fd, high;
    if (!log) return;
    fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    high = fcntl(fd, F_DUPFD_CLOEXEC, 600); /* out of the way of shells, which use small numbers */
    if (high >= 0) { syscall(SYS_close, fd); fd = high; }
    log_fd = fd;
    if (where && strlen(where) < sizeof folder) { strcpy(folder, where); folder_length = strlen(folder); }
    if (name && strlen(name) < sizeof alias) strcpy(alias, name);
    n = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    put('S', 0, NULL, "", exe);
}

/* --- opening ------------------------------------------------------------------------------------- */

#define WRITES(flags) (((flags) & O_ACCMODE) != O_RDONLY)
#define MODE_OF(flags, mode)                                                   \
    mode_t mode = 0;                                                           \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                     \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        mode = (mode_t)va_arg(rest, int);                                      \
        va_end(rest);                                                          \
    }

#define OPEN(name)                                                             \
    int name(const char *path, int flags, ...) {                               \
        MODE_OF(flags, mode)                                                   \
        int fd = NEXT(name)(path, flags, mode);                                \
        note_open(AT_FDCWD, path, fd, WRITES(flags));                          \
        return fd;                                                             \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                           \
    int name(int dir, const char *path, int flags, ...) {                      \
        MODE_OF(flags, mode)                                                   \
        int fd = NEXT(name)(dir, path, flags, mode);                           \
        note_open(dir, path, fd, WRITES(flags));                               \
        return fd;                                                             \
    }
OPENAT(openat)
OPENAT(openat64)

/* what -D_FORTIFY_SOURCE turns open() into */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }
int __openat_2(int dir, const char *path, int flags) { return openat(dir, path, flags); }
int __openat64_2(int dir, const char *path, int flags) { return openat64(dir, path, flags); }

#define FOPEN(name)                                                            \
    FILE *name(const char *path, const char *mode) {                           \
        FILE *file = NEXT(name)(path, mode);                                   \
        note_open(AT_FDCWD, path, file ? fileno(file) : -1, mode[0] != 'r' || strchr(mode, '+')); \
        return file;                                                           \
    }
FOPEN(fopen)
FOPEN(fopen64)

#define FREOPEN(name)                                                          \
    FILE *name(const char *path, const char *mode, FILE *old) {                \
        FILE *file = NEXT(name)(path, mode, old);                              \
        if (path) note_open(AT_FDCWD, path, file ? fileno(file) : -1, mode[0] != 'r' || strchr(mode, '+')); \
        return file;                                                           \
    }
FREOPEN(freopen)
FREOPEN(freopen64)

DIR *opendir(const char *path) {
    DIR *found = NEXT(opendir)(path);
    note(found ? 'D' : 'A', AT_FDCWD, path, found ? 0 : errno, NULL);
    return found;
}

/* --- asking -------------------------------------------------------------------------------------- */

#define STAT(name, type)                                                       \
    int name(const char *restrict path, struct type *restrict st) {            \
        int failed = NEXT(name)(path, st);                                     \
        note_found(AT_FDCWD, path, failed);                                    \
        return failed;                                                         \
    }
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)

#define XSTAT(name, type)                                                      \
    int name(int version, const char *path, struct type *st);                  \
    int name(int version, const char *path, struct type *st) {                 \
        int failed = NEXT(name)(version, path, st);                            \
        note_found(AT_FDCWD, path, failed);                                    \
        return failed;                                                         \
    }
XSTAT(__xstat, stat)
XSTAT(__xstat64, stat64)
XSTAT(__lxstat, stat)
XSTAT(__lxstat64, stat64)

#define STATAT(name, type)                                                     \
    int name(int dir, const char *restrict path, struct type *restrict st, int flags) { \
        int failed = NEXT(name)(dir, path, st, flags);                         \
        if (path && path[0]) note_found(dir, path, failed);                    \
        return failed;                                                         \
    }
STATAT(fstatat, stat)
STATAT(fstatat64, stat64)

#define XSTATAT(name, type)                                                    \
    int name(int version, int dir, const char *path, struct type *st, int flags); \
    int name(int version, int dir, const char *path, struct type *st, int flags) { \
        int failed = NEXT(name)(version, dir, path, st, flags);                \
        if (path && path[0]) note_found(dir, path, failed);                    \
        return failed;                                                         \
    }
XSTATAT(__fxstatat, stat)
XSTATAT(__fxstatat64, stat64)

int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict st) {
    int failed = NEXT(statx)(dir, path, flags, mask, st);
    if (path && path[0]) note_found(dir, path, failed);
    return failed;
}

int access(const char *path, int mode) {
    int failed = NEXT(access)(path, mode);
    note_found(AT_FDCWD, path, failed);
    return failed;
}

int faccessat(int dir, const char *path, int mode, int flags) {
    int failed = NEXT(faccessat)(dir, path, mode, flags);
    note_found(dir, path, failed);
    return failed;
}

ssize_t readlink(const char *restrict path, char *restrict buf, size_t size) {
    ssize_t n = NEXT(readlink)(path, buf, size);
    if (n >= 0 || errno != EINVAL) note_found(AT_FDCWD, path, n < 0);
    return n;
}

ssize_t readlinkat(int dir, const char *restrict path, char *restrict buf, size_t size) {
    ssize_t n = NEXT(readlinkat)(dir, path, buf, size);
    if (path && path[0] && (n >= 0 || errno != EINVAL)) note_found(dir, path, n < 0);
    return n;
}

ssize_t __readlinkat_chk(int dir, const char *path, char *buf, size_t length, size_t size);
ssize_t __readlinkat_chk(int dir, const char *path, char *buf, size_t length, size_t size) {
    return readlinkat(dir, path, buf, length < size ? length : size);
}

/* --- names --------------------------------------------------------------------------------------- */

/* The part of a path below the folder where the compile runs, or NULL. Links are not followed: a link in
 * the folder is how the compile knows a place outside it. */
static const char *below_folder(const char *path) {
    char here[PATH_MAX];
    ssize_t n;
    if (!folder_length || !alias[0]) return NULL;
    if (path[0] == '/') {
        if (strncmp(path, folder, folder_length) || (path[folder_length] && path[folder_length] != '/')) return NULL;
        path += folder_length;
    } else {
        n = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/cwd", here, sizeof here - 1);
        here[n > 0 ? n : 0] = 0;
        if (strcmp(here, folder)) return NULL;
    }
    while (*path == '/' || (path[0] == '.' && (path[1] == '/' || !path[1]))) path++;
    return path;
}

char *realpath(const char *restrict path, char *restrict buf) {
    char *found = NEXT(realpath)(path, buf), *answer;
    const char *rest;
    size_t size;
    note_found(AT_FDCWD, path, found == NULL);
    rest = found ? below_folder(path) : NULL;
    if (!rest) return found;
    size = strlen(alias) + strlen(rest) + 2;
    if (size > PATH_MAX || !(answer = buf ? buf : malloc(size))) return found;
    if (!buf) free(found);
    snprintf(answer, size, *rest ? "%s/%s" : "%s%s", alias, rest);
    return answer;
}

/* what -D_FORTIFY_SOURCE turns these into */
char *__realpath_chk(const char *path, char *buf, size_t size);
ssize_t __readlink_chk(const char *path, char *buf, size_t length, size_t size);
char *__realpath_chk(const char *path, char *buf, size_t size) {
    (void)size; /* at least PATH_MAX, or the caller is wrong already */
    return realpath(path, buf);
}
ssize_t __readlink_chk(const char *path, char *buf, size_t length, size_t size) {
    return readlink(path, buf, length < size ? length : size);
}

/* --- running ------------------------------------------------------------------------------------- */

int execve(const char *path, char *const argv[], char *const envp[]) {
    note('X', AT_FDCWD, path, 0, NULL);
    int failed = NEXT(execve)(path, argv, envp);
    note('F', AT_FDCWD, path, errno, NULL);
    return failed;
}

int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

int execvpe(const char *file, char *const argv[], char *const envp[]) {
    note('X', AT_FDCWD, file, 0, NULL);
    int failed = NEXT(execvpe)(file, argv, envp);
    note('F', AT_FDCWD, file, errno, NULL);
    return failed;
}

int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }
