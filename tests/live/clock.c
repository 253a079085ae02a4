/* Gives one process another wall clock, and the kernel's word about it: a test of clocks sets none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    const char *off = getenv("CLOCK_OFF_SECONDS");
    if (answer == 0 && clock == CLOCK_REALTIME && off)
        now->tv_sec += atol(off);
    return answer;
}

int adjtimex(struct timex *clock) {
    memset(clock, 0, sizeof *clock);
    if (getenv("CLOCK_SYNCHRONISED"))
        return TIME_OK;
    clock->status = STA_UNSYNC;
    return TIME_ERROR;
}
