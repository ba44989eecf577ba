/* Exchanges a name with a spare one, as fast as it can, until SIGTERM.
 *
 *     flipper NAME SPARE KIND TARGET
 *
 * NAME is a real file or directory. SPARE is made the decoy: by KIND a "symlink" to TARGET, a "hardlink" to it, or
 * a "pipe". Each exchange is one renameat2, so NAME always exists: now the real thing, now the decoy. What the
 * tested code does to either (it may replace the decoy by a file, move the directory away, or delete both) is put
 * right again, so the race goes on. In the end NAME is the real thing, and "exchanges seconds" is printed. TARGET
 * is never opened. Linux.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXCHANGE 2 /* RENAME_EXCHANGE, which not every libc names */
#define EXCHANGES_BETWEEN_REPAIRS 8

enum kind { NOTHING, DECOY, REAL };

static volatile sig_atomic_t stopped;
static const char *name, *spare, *decoy, *target;
static struct stat at_target;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static enum kind kind_of(const char *path) {
    struct stat found;
    if (lstat(path, &found) != 0)
        return NOTHING;
    if (S_ISLNK(found.st_mode) || S_ISFIFO(found.st_mode))
        return DECOY;
    return found.st_ino == at_target.st_ino && found.st_dev == at_target.st_dev ? DECOY : REAL;
}

static int plant(void) {
    if (strcmp(decoy, "pipe") == 0)
        return mkfifo(spare, 0600);
    return strcmp(decoy, "hardlink") == 0 ? link(target, spare) : symlink(target, spare);
}

static int exchange(void) {
    return syscall(SYS_renameat2, AT_FDCWD, name, AT_FDCWD, spare, EXCHANGE) == 0;
}

/* A second real thing in the place of the decoy: nobody's any more, but a directory may hold files. */
static void put_away(void) {
    static unsigned count;
    char away[4096];
    snprintf(away, sizeof away, "%s.%u", spare, count++);
    if (unlink(spare) != 0)
        rename(spare, away);
}

/* Returns whether there is a real thing and a decoy: either's directory may be gone for the moment. */
static int repair(void) {
    enum kind at_name = kind_of(name), at_spare = kind_of(spare);
    if (at_name == NOTHING && at_spare == REAL && rename(spare, name) == 0)
        at_name = REAL, at_spare = NOTHING;
    if (at_name == DECOY)
        return at_spare == REAL;
    if (at_name != REAL)
        return 0;
    if (at_spare == REAL)
        put_away();
    return at_spare == DECOY || plant() == 0;
}

int main(int count, char **words) {
    if (count != 5)
        return fprintf(stderr, "usage: flipper NAME SPARE KIND TARGET\n"), 2;
    name = words[1], spare = words[2], decoy = words[3], target = words[4];
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no orphan may spin for ever */
    signal(SIGTERM, stop);
    lstat(target, &at_target);
    if (!repair() || !exchange())
        return perror("flipper"), 1;
    puts("ready");
    fflush(stdout);

    unsigned long exchanges = 1;
    double started = now();
    while (!stopped) {
        int failed = !exchange();
        exchanges += !failed;
        if (failed || exchanges % EXCHANGES_BETWEEN_REPAIRS == 0)
            repair();
    }
    double seconds = now() - started;
    if (kind_of(name) == DECOY)
        exchange();
    printf("%lu %.6f\n", exchanges, seconds);
    return 0;
}
