/* Sees every system call on files that one operation makes, and lets a chosen one fail, fall short or be the last.
 *
 * A seccomp filter sends each such call to a handler in this process (SIGSYS), which makes the call itself or does
 * not. An LD_PRELOAD shim would see the functions of libc that it wraps by name; this sees what reaches the kernel,
 * so also `syscall()`, functions found by ctypes in one library, and the calls inside readdir(). A filter cannot be
 * taken off and holds for the thread that asked for it: arm once, in a forked child, right before the operation.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* Linux makes a system call at one instruction of `fault_raw`; the filter lets calls pass that return to `fault_back`. */
long fault_raw(long number, long a, long b, long c, long d, long e, long f) __attribute__((visibility("hidden")));
extern char fault_back[] __attribute__((visibility("hidden")));

#if defined(__x86_64__)
__asm__(".text\n.globl fault_raw\n.hidden fault_raw\n.type fault_raw,@function\nfault_raw:\n"
        "mov %rdi,%rax\nmov %rsi,%rdi\nmov %rdx,%rsi\nmov %rcx,%rdx\nmov %r8,%r10\nmov %r9,%r8\nmov 8(%rsp),%r9\n"
        "syscall\n.globl fault_back\n.hidden fault_back\nfault_back:\nret\n");
#define REGISTER(c, i) ((c)->uc_mcontext.gregs[(const int[]){REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9}[i]])
#define RESULT(c) ((c)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
__asm__(".text\n.globl fault_raw\n.hidden fault_raw\n.type fault_raw,%function\nfault_raw:\n"
        "mov x8,x0\nmov x0,x1\nmov x1,x2\nmov x2,x3\nmov x3,x4\nmov x4,x5\nmov x5,x6\n"
        "svc #0\n.globl fault_back\n.hidden fault_back\nfault_back:\nret\n");
#define REGISTER(c, i) ((c)->uc_mcontext.regs[i])
#define RESULT(c) ((c)->uc_mcontext.regs[0])
#else
#error "the shim knows x86_64 and aarch64"
#endif

/* What is watched; which argument holds the number of bytes it writes, and which its flags of open (-1: none). */
struct call { int number; const char *name; int length; int flags; };
#define CALL(name, length, flags) {SYS_##name, #name, length, flags}
static const struct call calls[] = {
    CALL(openat, -1, 2), CALL(openat2, -1, 2), CALL(close, -1, -1), CALL(read, -1, -1), CALL(pread64, -1, -1),
    CALL(readv, -1, -1), CALL(write, 2, -1), CALL(pwrite64, 2, -1), CALL(writev, -1, -1), CALL(pwritev, -1, -1),
    CALL(sendfile, 3, -1), CALL(copy_file_range, 4, -1), CALL(splice, 4, -1), CALL(lseek, -1, -1),
    CALL(fsync, -1, -1), CALL(fdatasync, -1, -1), CALL(sync, -1, -1), CALL(syncfs, -1, -1),
    CALL(sync_file_range, -1, -1), CALL(msync, -1, -1), CALL(ftruncate, -1, -1), CALL(truncate, -1, -1),
    CALL(fallocate, -1, -1), CALL(renameat2, -1, -1), CALL(linkat, -1, -1), CALL(symlinkat, -1, -1),
    CALL(unlinkat, -1, -1), CALL(mkdirat, -1, -1), CALL(mknodat, -1, -1), CALL(flock, -1, -1), CALL(fcntl, -1, -1),
    CALL(ioctl, -1, -1), CALL(dup, -1, -1), CALL(dup3, -1, -1), CALL(fstat, -1, -1), CALL(newfstatat, -1, -1),
    CALL(statx, -1, -1), CALL(statfs, -1, -1), CALL(fstatfs, -1, -1), CALL(faccessat, -1, -1),
    CALL(readlinkat, -1, -1), CALL(getdents64, -1, -1), CALL(fchmod, -1, -1), CALL(fchmodat, -1, -1),
    CALL(fchown, -1, -1), CALL(fchownat, -1, -1), CALL(utimensat, -1, -1), CALL(fsetxattr, -1, -1),
    CALL(fgetxattr, -1, -1), CALL(chdir, -1, -1), CALL(fchdir, -1, -1), CALL(io_uring_enter, -1, -1),
#ifdef SYS_renameat
    CALL(renameat, -1, -1),
#endif
#ifdef SYS_open /* the old names, which newer architectures do not have */
    CALL(open, -1, 1), CALL(creat, -1, -1), CALL(rename, -1, -1), CALL(link, -1, -1), CALL(symlink, -1, -1),
    CALL(unlink, -1, -1), CALL(mkdir, -1, -1), CALL(rmdir, -1, -1), CALL(mknod, -1, -1), CALL(dup2, -1, -1),
    CALL(stat, -1, -1), CALL(lstat, -1, -1), CALL(access, -1, -1), CALL(readlink, -1, -1), CALL(chmod, -1, -1),
#endif
};
#define WATCHED ((int)(sizeof calls / sizeof *calls))
#define REMEMBERED 65536

enum { NOTHING, KILL, FAIL, SHORTEN, KILL_HALFWAY, FAIL_HALFWAY };

static int armed, fault, at, error, older, fail_next_write, made;
static struct { const struct call *call; int creates; } trace[REMEMBERED];

static int flags_of(const struct call *call, const long *a) {
    if (call->number == SYS_openat2)
        return (int)*(const uint64_t *)a[call->flags];
    return call->flags < 0 ? 0 : (int)a[call->flags];
}

static int creates(const struct call *call, const long *a) {
    int flags = flags_of(call, a);
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

/* What an older kernel, or another filesystem, does not have. */
static int refusal(const struct call *call, const long *a) {
    if (call->number == SYS_openat2 || call->number == SYS_renameat2)
        return ENOSYS;
    return (flags_of(call, a) & O_TMPFILE) == O_TMPFILE ? EOPNOTSUPP : 0;
}

static long perform(const struct call *call, const long *a) {
    return fault_raw(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static long perform_half(const struct call *call, const long *a) {
    long half[] = {a[0], a[1], a[2], a[3], a[4], a[5]};
    half[call->length] = a[call->length] / 2;
    return perform(call, half);
}

static long judged(const struct call *call, const long *a) {
    int writes = call->length >= 0;
    if (made < REMEMBERED) {
        trace[made].call = call;
        trace[made].creates = creates(call, a);
    }
    made++;
    if (older && refusal(call, a))
        return -refusal(call, a);
    if (writes && fail_next_write) {
        fail_next_write = 0;
        return -error;
    }
    if (fault == SHORTEN && writes && a[call->length] > 1)
        return perform_half(call, a);
    if (made != at)
        return perform(call, a);
    if (fault == FAIL && call->number == SYS_close)
        perform(call, a); /* a close that fails has closed all the same */
    if (fault == FAIL)
        return -error;
    if (fault == KILL_HALFWAY)
        perform_half(call, a);
    if (fault == KILL || fault == KILL_HALFWAY)
        kill(getpid(), SIGKILL);
    if (fault == FAIL_HALFWAY) {
        fail_next_write = 1;
        return perform_half(call, a);
    }
    return perform(call, a);
}

static void on_call(int signal, siginfo_t *info, void *context) {
    ucontext_t *state = context;
    long a[6];
    int i = 0, saved = errno;
    (void)signal;
    for (int n = 0; n < 6; n++)
        a[n] = (long)REGISTER(state, n);
    while (i < WATCHED - 1 && calls[i].number != info->si_syscall)
        i++;
    RESULT(state) = armed ? judged(&calls[i], a) : perform(&calls[i], a);
    errno = saved;
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOAD_HIGH(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field) + 4)
#define IF_EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), yes, no)
#define DECIDE(what) BPF_STMT(BPF_RET | BPF_K, what)

static int watch(void) {
    uint64_t back = (uint64_t)(uintptr_t)fault_back;
    struct sock_filter start[] = {
        LOAD(instruction_pointer), IF_EQUAL(back, 0, 3), LOAD_HIGH(instruction_pointer), IF_EQUAL(back >> 32, 0, 1),
        DECIDE(SECCOMP_RET_ALLOW), LOAD(nr),
    };
    enum { FIRST = sizeof start / sizeof *start };
    struct sock_filter filter[FIRST + 2 * WATCHED + 1];
    struct sock_fprog program = {FIRST + 2 * WATCHED + 1, filter};
    for (int i = 0; i < FIRST; i++)
        filter[i] = start[i];
    for (int i = 0; i < WATCHED; i++) {
        filter[FIRST + 2 * i] = (struct sock_filter)IF_EQUAL(calls[i].number, 0, 1);
        filter[FIRST + 2 * i + 1] = (struct sock_filter)DECIDE(SECCOMP_RET_TRAP);
    }
    filter[FIRST + 2 * WATCHED] = (struct sock_filter)DECIDE(SECCOMP_RET_ALLOW);
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return errno;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? errno : 0;
}

/* Watch this thread from now on; 0, or the errno of a system that does not let itself be watched. */
int fault_arm(int what, int at_call, int with_error, int on_older_system) {
    int refused = watch();
    fault = what, at = at_call, error = with_error, older = on_older_system, made = 0, armed = !refused;
    return refused;
}

/* Let every call pass again; how many were made. */
int fault_disarm(void) { armed = 0; return made < REMEMBERED ? made : REMEMBERED; }

const char *fault_name(int index) { return trace[index].call->name; }

int fault_creates(int index) { return trace[index].creates; }
