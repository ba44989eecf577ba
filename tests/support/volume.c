/* Makes directories behave like those of other volumes, for a program that is started with LD_PRELOAD.
 *
 * The environment has a part of a path for each rule; the rule holds in every directory whose path contains it:
 *   FOLDS       names that differ only by ASCII case are one name, spelled as it was created
 *   LOWERS      names are stored in lower case
 *   DECOMPOSES  an e with an acute accent is stored as two characters, and found by both forms
 * A name is looked up and created in one step for the threads of one process only.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t creating = PTHREAD_MUTEX_INITIALIZER;

static int holds(const char *rule, const char *directory) {
    const char *part = getenv(rule);
    return part && *part && strstr(directory, part);
}

static void spell(const char *directory, const char *name, char *out) {
    size_t used = 0;
    for (; *name; name++) {
        if (holds("DECOMPOSES", directory) && !strncmp(name, "\xc3\xa9", 2)) {
            memcpy(out + used, "e\xcc\x81", 3), used += 3, name++;
        } else {
            out[used++] = holds("LOWERS", directory) ? tolower(*name) : *name;
        }
    }
    out[used] = 0;
    DIR *listed = holds("FOLDS", directory) ? opendir(directory) : NULL;
    for (struct dirent *each; listed && (each = readdir(listed));)
        if (!strcasecmp(each->d_name, out)) strcpy(out, each->d_name);
    if (listed) closedir(listed);
}

/* The path as the volumes on its way store it; paths that are not below an open directory stay as they are. */
static const char *stored(int directory, const char *path, char *out) {
    char link[64], at[2 * PATH_MAX], left[PATH_MAX], name[PATH_MAX], *rest = left;
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    ssize_t size = directory < 0 || *path == '/' ? -1 : readlink(link, at, PATH_MAX);
    if (size < 0) return path;
    at[size] = 0, *out = 0;
    strcpy(left, path);
    for (char *segment; (segment = strsep(&rest, "/"));) {
        spell(at, segment, name);
        strcat(strcat(at, "/"), name);
        strcat(strcat(out, *out ? "/" : ""), name);
    }
    return out;
}

#define STORED(directory, path) stored(directory, path, (char[PATH_MAX]){0})

#define ALONE(call)                        \
    pthread_mutex_lock(&creating);         \
    int done = call, failed = errno;       \
    pthread_mutex_unlock(&creating);       \
    errno = failed;                        \
    return done

#define OPEN(function)                                                                  \
    int function(int directory, const char *path, int flags, ...) {                     \
        va_list given;                                                                  \
        va_start(given, flags);                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(given, mode_t) : 0;        \
        va_end(given);                                                                  \
        return REAL(function)(directory, STORED(directory, path), flags, mode);         \
    }
OPEN(openat)
OPEN(openat64)

int mkdirat(int directory, const char *path, mode_t mode) {
    ALONE(REAL(mkdirat)(directory, STORED(directory, path), mode));
}

int unlinkat(int directory, const char *path, int flags) {
    ALONE(REAL(unlinkat)(directory, STORED(directory, path), flags));
}

int fstatat(int directory, const char *path, struct stat *found, int flags) {
    return REAL(fstatat)(directory, STORED(directory, path), found, flags);
}

int fstatat64(int directory, const char *path, struct stat64 *found, int flags) {
    return REAL(fstatat64)(directory, STORED(directory, path), found, flags);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    ALONE(REAL(linkat)(from, STORED(from, old), to, STORED(to, new), flags));
}

int renameat(int from, const char *old, int to, const char *new) {
    ALONE(REAL(renameat)(from, STORED(from, old), to, STORED(to, new)));
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    ALONE(REAL(renameat2)(from, STORED(from, old), to, STORED(to, new), flags));
}

long syscall(long number, ...) {
    va_list given;
    long a[6];
    va_start(given, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(given, long);
    va_end(given);
    if (number == SYS_openat2) a[1] = (long)STORED((int)a[0], (const char *)a[1]);
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
