/* Gives one process a disk that breaks: a sync of whatever path ends in SYNC_FAILS_FOR fails as a worn-out card's does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int file) {
    char link[64], path[4096];
    const char *end = getenv("SYNC_FAILS_FOR");
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path);
    size_t wanted = end ? strlen(end) : 0;
    if (length < 0 || !end || (size_t)length < wanted || memcmp(path + length - wanted, end, wanted) != 0)
        return 0;
    errno = EIO;
    return 1;
}

int fsync(int file) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    return fails(file) ? -1 : real(file);
}

int fdatasync(int file) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return fails(file) ? -1 : real(file);
}
