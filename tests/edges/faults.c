/* Preloaded into a server by tests of its edges: calls that fail, syncs that are counted, forgotten or kept in a copy, and
 * a wall clock that jumps.
 *
 * Rules of this file
 * 1. The file that EDGES_CONTROL names is mapped by the server and by the test (faults.py); its layout is `struct control`.
 * 2. Only files under `root` are touched. A rule fails the calls of its kind that reach a file whose path contains `part`,
 *    and for reads and writes bytes from `from` up to `to`; the first `skip` of them pass, then `times` fail, or only take
 *    `delay_us` longer where there is no error.
 * 3. With `copies` set, what was synced is kept there in `names`: a file as its last sync left it, the names of a directory as
 *    its last sync left them. That is what a power failure leaves, when it takes all that it may.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#undef open
#undef openat
enum kind { READ, READ_NOWAIT, WRITE, OPEN, SYNC, ALLOCATE, KINDS };
struct rule { int64_t kind, error, delay_us, skip, times, from, to, hits; char part[200]; };
struct control {
    int64_t clock_ns, forget_syncs, count[KINDS];
    char root[512], copies[512], boot_id[512];
    struct rule rules[16];
};
static struct control *shared;
static pthread_mutex_t copying = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int real_open(const char *path, int flags, mode_t mode) {
    REAL(int, "open", const char *, int, ...);
    return real(path, flags, mode);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("EDGES_CONTROL");
    int fd = path ? real_open(path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (fd < 0) return;
    void *at = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED) shared = at;
}

/* The path of an open file relative to the root, in `path`; NULL for any other file. */
static const char *within(const char *path) {
    size_t length = strlen(shared->root);
    return length && !strncmp(path, shared->root, length) && (path[length] == '/' || !path[length]) ? path + length : NULL;
}

static const char *path_of(int fd, char *path) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, 4095);
    if (size < 0) return NULL;
    path[size] = 0;
    return within(path);
}

/* Count a call; the error that it fails with, 0 for none. `path` may be NULL: then the descriptor says it. */
static int fault(enum kind kind, int fd, const char *path, int64_t from, int64_t size) {
    char found[4096];
    if (!shared) return 0;
    __atomic_add_fetch(&shared->count[kind], 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 16; i++) {
        struct rule *rule = &shared->rules[i];
        if (!rule->times || rule->kind != kind) continue;
        if (!path) path = path_of(fd, found) ? found : "";
        if (!within(path) || !strstr(path, rule->part)) continue;
        if (kind < OPEN && (from >= rule->to || from + size <= rule->from)) continue;
        int64_t call = __atomic_add_fetch(&rule->hits, 1, __ATOMIC_RELAXED);
        if (call <= rule->skip || call > rule->skip + rule->times) continue;
        if (rule->delay_us) usleep((useconds_t)rule->delay_us);
        if (rule->error) return (int)rule->error;
    }
    return 0;
}

static int64_t bytes_of(const struct iovec *parts, int count) {
    int64_t size = 0;
    for (int i = 0; i < count; i++) size += (int64_t)parts[i].iov_len;
    return size;
}

#define CALL(type, name, kind, fd, path, from, size, parameters, arguments) \
    type name parameters { \
        static type (*real) parameters; \
        if (!real) real = (type (*) parameters)dlsym(RTLD_NEXT, #name); \
        int error = fault(kind, fd, path, from, size); \
        if (error) { errno = error; return -1; } \
        return real arguments; \
    }
#define ONE(type, name, kind) \
    CALL(ssize_t, name, kind, fd, NULL, at, (int64_t)size, (int fd, type data, size_t size, off_t at), (fd, data, size, at))
#define MANY(name, kind) CALL(ssize_t, name, kind, fd, NULL, at, bytes_of(parts, count), \
    (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at))
#define MANY2(name, kind) CALL(ssize_t, name, kind + (kind == READ && flags & RWF_NOWAIT), fd, NULL, at, bytes_of(parts, count), \
    (int fd, const struct iovec *parts, int count, off_t at, int flags), (fd, parts, count, at, flags))

ONE(void *, pread, READ) ONE(void *, pread64, READ)
MANY(preadv, READ) MANY(preadv64, READ) MANY2(preadv2, READ) MANY2(preadv64v2, READ)
ONE(const void *, pwrite, WRITE) ONE(const void *, pwrite64, WRITE)
MANY(pwritev, WRITE) MANY(pwritev64, WRITE) MANY2(pwritev2, WRITE) MANY2(pwritev64v2, WRITE)
CALL(int, ftruncate, ALLOCATE, fd, NULL, 0, 0, (int fd, off_t size), (fd, size))
CALL(int, ftruncate64, ALLOCATE, fd, NULL, 0, 0, (int fd, off_t size), (fd, size))

/* These return their error. */
#define RESERVE(name) \
    int name(int fd, off_t at, off_t size) { \
        REAL(int, #name, int, off_t, off_t); \
        int error = fault(ALLOCATE, fd, NULL, at, size); \
        return error ? error : real(fd, at, size); \
    }
RESERVE(posix_fallocate) RESERVE(posix_fallocate64)

/* What may not be read without the disk is in no mapping's memory either. An address names no file: any rule counts. */
int mincore(void *first, size_t size, unsigned char *known) {
    REAL(int, "mincore", void *, size_t, unsigned char *);
    int result = real(first, size, known);
    for (int i = 0; shared && !result && i < 16; i++)
        if (shared->rules[i].times && shared->rules[i].kind == READ_NOWAIT) memset(known, 0, (size + 4095) / 4096);
    return result;
}

#define OPENS(name, before, directory, ...) \
    int name(__VA_ARGS__ const char *path, int flags, ...) { \
        static int (*real)(__VA_ARGS__ const char *, int, ...); \
        if (!real) real = (int (*)(__VA_ARGS__ const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        if (shared && *shared->boot_id && !strcmp(path, "/proc/sys/kernel/random/boot_id")) path = shared->boot_id; \
        int error = fault(OPEN, -1, path, 0, 0); \
        if (error) { errno = error; return -1; } \
        return real(before path, flags, mode); \
    }
#define IN directory,
OPENS(open, , , ) OPENS(open64, , , ) OPENS(openat, IN, , int directory,) OPENS(openat64, IN, , int directory,)

/* --- what was synced ------------------------------------------------------------------------------------------------- */

/* content/NUMBER holds what was synced of the file with that inode, names/... are links to these. A link to the file itself keeps
 * the number from being used again. */
static void make_folders(char *path, size_t from) {
    for (char *at = path + from; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(path, 0755);
    }
}

static int content_of(const char *path, const struct stat *about, char *content) {
    char pin[1024];
    snprintf(pin, sizeof pin, "%s/pins/%lu", shared->copies, (unsigned long)about->st_ino);
    snprintf(content, 1024, "%s/content/%lu", shared->copies, (unsigned long)about->st_ino);
    (void)!link(path, pin);
    int target = real_open(content, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (target < 0) abort();
    return target;
}

static void keep_content(const char *path, const struct stat *about) {
    char content[1024], block[65536];
    int target = content_of(path, about, content), own = real_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (ftruncate(target, about->st_size)) abort();
    for (off_t at = 0, end = 0; own >= 0 && end < about->st_size; ) {
        at = lseek(own, end, SEEK_DATA);
        if (at < 0) at = about->st_size;
        if (at > end) fallocate(target, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end, at - end);
        end = at < about->st_size ? lseek(own, at, SEEK_HOLE) : at;
        for (lseek(own, at, SEEK_SET), lseek(target, at, SEEK_SET); at < end;) {
            ssize_t size = read(own, block, sizeof block);
            if (size <= 0 || write(target, block, (size_t)size) != size) break;
            at += size;
        }
    }
    if (own >= 0) close(own);
    close(target);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place) {
    (void)about, (void)kind, (void)place;
    return remove(path);
}

static void keep_names(const char *path, const char *relative) {
    char copy[2048], name[8192], content[1024];
    struct dirent *entry;
    struct stat about;
    snprintf(copy, sizeof copy, "%s/names%s/", shared->copies, relative);
    make_folders(copy, strlen(shared->copies) + 1);
    DIR *here = opendir(path), *there = opendir(copy);
    while (here && (entry = readdir(here))) {
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (*entry->d_name == '.' || stat(name, &about)) continue;
        if (S_ISREG(about.st_mode)) {
            int target = content_of(name, &about, content);
            struct stat known;
            if (!fstat(target, &known) && !known.st_size && ftruncate(target, about.st_size)) abort();
            close(target);
            snprintf(name, sizeof name, "%s%s", copy, entry->d_name);
            unlink(name);
            if (link(content, name)) abort();
        } else {
            snprintf(name, sizeof name, "%s%s", copy, entry->d_name);
            mkdir(name, 0755);
        }
    }
    while (there && (entry = readdir(there))) {
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (*entry->d_name == '.' || access(name, F_OK) == 0) continue;
        snprintf(name, sizeof name, "%s%s", copy, entry->d_name);
        nftw(name, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    if (here) closedir(here);
    if (there) closedir(there);
}

static void keep(int fd) {
    char path[4096];
    const char *relative = shared ? path_of(fd, path) : NULL;
    struct stat about;
    if (!relative || !*shared->copies || fstat(fd, &about)) return;
    pthread_mutex_lock(&copying);
    if (S_ISDIR(about.st_mode)) keep_names(path, relative); else keep_content(path, &about);
    pthread_mutex_unlock(&copying);
}

#define SYNCS(name) \
    int name(int fd) { \
        REAL(int, #name, int); \
        int error = fault(SYNC, fd, NULL, 0, 0); \
        if (error) { errno = error; return -1; } \
        if (shared && shared->forget_syncs) return 0; \
        int result = real(fd); \
        if (!result && shared) keep(fd); \
        return result; \
    }
SYNCS(fsync) SYNCS(fdatasync)

/* --- the wall clock -------------------------------------------------------------------------------------------------- */

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int result = real(clock, now);
    if (!result && shared && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && shared->clock_ns) {
        int64_t ns = now->tv_sec * 1000000000LL + now->tv_nsec + shared->clock_ns;
        now->tv_sec = ns / 1000000000LL;
        now->tv_nsec = ns % 1000000000LL;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (result) *result = exact.tv_sec;
    return exact.tv_sec;
}
