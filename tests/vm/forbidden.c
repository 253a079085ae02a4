/* Turns an agent at work into the calls that its kernel does not refuse it: `forbidden PID`, as root.
 *
 * The filter is the agent's own, as its kernel keeps it; the numbers of the calls are those of this processor's C library, and not those
 * that the agent was built with. Each is made once without the filter, to see that it is the filter which refuses it, and once with
 * it. A line for each that is wrong; nothing, and 0, where all is well. No libc here may need a compiler's own library: no printf. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/filter.h"

#define SECCOMP_SET_MODE_FILTER 1
#define GET_FILTER 0x420c

#define CALL(name) {#name, SYS_##name}
static const struct {
    const char *name;
    long number;
} refused[] = {
    CALL(execve), CALL(execveat), CALL(ptrace), CALL(process_vm_readv), CALL(process_vm_writev), CALL(kcmp), CALL(pidfd_getfd),
    CALL(mount), CALL(umount2), CALL(pivot_root), CALL(chroot), CALL(move_mount), CALL(open_tree), CALL(fsopen), CALL(fsconfig),
    CALL(fsmount), CALL(fspick), CALL(mount_setattr), CALL(setns), CALL(unshare), CALL(bpf), CALL(perf_event_open),
    CALL(userfaultfd), CALL(init_module), CALL(finit_module), CALL(delete_module), CALL(kexec_load), CALL(reboot), CALL(swapon),
    CALL(swapoff), CALL(acct), CALL(quotactl), CALL(keyctl), CALL(add_key), CALL(request_key), CALL(open_by_handle_at),
    CALL(name_to_handle_at), CALL(io_uring_setup), CALL(io_uring_enter), CALL(io_uring_register), CALL(sethostname),
    CALL(setdomainname), CALL(personality), CALL(syslog), CALL(fanotify_init),
#ifdef SYS_settimeofday
    CALL(settimeofday),
#endif
#ifdef SYS_settimeofday_time32
    CALL(settimeofday_time32),
#endif
#ifdef SYS_clock_settime
    CALL(clock_settime),
#endif
#ifdef SYS_clock_settime32
    CALL(clock_settime32),
#endif
#ifdef SYS_clock_settime64
    CALL(clock_settime64),
#endif
};

static int wrong;

static void say(const char *text) { (void)!write(1, text, strlen(text)); }

static void complain(const char *name, const char *what)
{
    say(name);
    say(": ");
    say(what);
    say("\n");
    wrong++;
}

/* With arguments that mean nothing: who is allowed to make it gets another error, or none. */
static int error_of(long number)
{
    errno = 0;
    return syscall(number, -1L, -1L, -1L, -1L, -1L, -1L) == -1 ? errno : 0;
}

static int error_of_socket(int family)
{
    int made = socket(family, SOCK_DGRAM, 0);
    if (made < 0) return errno;
    close(made);
    return 0;
}

/* What it is for to a thread of an agent: to end. */
static void *thread(void *none) { return none; }

static struct instruction *filter_of(pid_t agent, long *length)
{
    struct instruction *filter;
    *length = -1;
    if (ptrace(PTRACE_SEIZE, agent, 0, 0) || ptrace(PTRACE_INTERRUPT, agent, 0, 0)) return 0;
    if (waitpid(agent, 0, __WALL) != agent) return 0;
    *length = ptrace(GET_FILTER, agent, 0, 0);
    filter = *length > 0 ? calloc(*length, sizeof *filter) : 0;
    if (filter) *length = ptrace(GET_FILTER, agent, 0, filter);
    ptrace(PTRACE_DETACH, agent, 0, 0);
    return filter;
}

int main(int count, char **arguments)
{
    size_t i, calls = sizeof refused / sizeof *refused;
    long length;
    struct program program;
    struct timex clock;
    pthread_t made;
    if (count != 2) return 64;
    program.filter = filter_of(atoi(arguments[1]), &length);
    program.length = length;
    if (!program.filter || length < 1) {
        complain(arguments[1], "has no filter that its kernel would show");
        return 1;
    }
    for (i = 0; i < calls; i++)
        if (error_of(refused[i].number) == EPERM) complain(refused[i].name, "is refused without the filter");
    if (error_of_socket(AF_PACKET)) complain("AF_PACKET", "is refused without the filter");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) {
        complain("seccomp", "the kernel does not take its own filter back");
        return 1;
    }
    for (i = 0; i < calls; i++)
        if (error_of(refused[i].number) != EPERM) complain(refused[i].name, "is not refused");
    if (syscall(SYS_vhangup) != -1 || errno != EPERM) complain("vhangup", "is not refused");
    if (error_of(SYS_clone3) != ENOSYS) complain("clone3", "is there");
    for (i = 0; i < 2; i++) {
        long child = syscall(SYS_clone, (i ? CLONE_NEWUSER | CLONE_NEWNET : CLONE_NEWNS) | SIGCHLD, 0L, 0L, 0L, 0L);
        if (!child) _exit(0);
        if (child > 0) waitpid(child, 0, 0);
        if (child != -1 || errno != EPERM) complain("clone", "makes namespaces");
    }
    if (error_of_socket(AF_PACKET) != EAFNOSUPPORT) complain("AF_PACKET", "is not refused");
    if (error_of_socket(AF_UNIX) || error_of_socket(AF_INET) || error_of_socket(AF_NETLINK)) complain("socket", "is refused");
    if (pthread_create(&made, 0, thread, 0) || pthread_join(made, 0)) complain("a thread", "is refused");
    memset(&clock, 0, sizeof clock);
    if (adjtimex(&clock) < 0) complain("adjtimex", "is refused");
    if (getppid() != syscall(SYS_getppid)) complain("getppid", "is refused");
    return wrong != 0;
}
